"""Books the replacement of a placeholder by a real task: it begins, is confirmed by the shim, or is undone.

Rules: protocol.md 11.
"""

from __future__ import annotations

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import book_amounts
from kornel.core.state.books import device_books, user_accounting
from kornel.core.state.books.ledger import book_pending, exchange_amounts, remove_ask, wait_no_more
from kornel.core.state.books.placeholder_books import drop_placeholder, keep_placeholder_from_use
from kornel.core.state.partition_state import PartitionState


def book_replacement(state: PartitionState, ask: Allocation, placeholder: Allocation, node: Node, now_ns: int) -> None:
    """Books that *ask* is no longer pending and will take the place of *placeholder*, which is to leave.

    If the ask is to run on another node than the placeholder, its room there is charged now, but nothing else.
    """
    wait_no_more(state, ask)
    if placeholder.shape.devices is not None and ask.shape.devices is None:
        # From now on it requests the devices of its placeholder, also if it has to wait again.
        ask.shape = state.types.shape_with(ask.shape.resources, placeholder.shape.devices)
    ask.node = node
    ask.bound_ns = now_ns
    ask.where, placeholder.where = placeholder, ask
    keep_placeholder_from_use(placeholder)
    if node is not placeholder.node:
        node.allocations[ask.key] = ask
        node.charge_pairs(ask.shape.pairs)
        if ask.shape.devices is not None:
            device_books.take_devices(state, ask, node, ask.shape.devices)
        state.node_order.refresh_node(node)
        if state.recording:
            state.events.node_charged(ask, node)


def undo_replacement(state: PartitionState, ask: Allocation) -> None:
    """Books *ask* as pending again; the placeholder it was to replace is still leaving."""
    placeholder, node = ask.replaces, ask.node
    assert placeholder is not None, "only a replacement under way can be undone"
    assert node is not None, "a replacement under way has a node"
    ask.where = placeholder.where = ask.node = None
    ask.version = state.next_number()
    state.changes += 1
    if node is not placeholder.node:
        del node.allocations[ask.key]
        node.refund_pairs(ask.shape.pairs)
        if ask.devices:
            device_books.give_back_devices(state, ask, node)
        state.node_order.refresh_node(node)
        state.gained.append(node)
        if state.recording:
            state.events.node_refunded(ask, node)
    book_pending(ask)


def confirm_replacement(state: PartitionState, placeholder: Allocation) -> Allocation:
    """Gives the place of *placeholder* to the ask linked to it, which becomes an allocation, and returns it."""
    ask, old_node = placeholder.replaced_by, placeholder.node
    assert ask is not None, "only a linked pair can be swapped"
    assert old_node is not None, "a linked placeholder is allocated"
    application = ask.application
    before, after = placeholder.shape.pairs, ask.shape.pairs
    # If it runs on another node, its room there was charged when the replacement began.
    if ask.node is old_node:
        old_node.allocations[ask.key] = ask
        old_node.charge_pairs(after)
        if old_node.devices is not None:
            device_books.hand_over_devices(state, placeholder, ask, old_node)
    elif placeholder.devices:
        device_books.give_back_devices(state, placeholder, old_node)
    del old_node.allocations[placeholder.key]
    old_node.refund_pairs(before)
    state.node_order.refresh_node(old_node)
    placeholder.where = ask.where = placeholder.node = None
    ask.placeholder_ns = placeholder.created_ns
    ask.version = state.next_number()
    remove_ask(ask)
    del application.allocations[placeholder.key]
    application.allocations[ask.key] = ask  # It is the same member of its task group, so it is not counted again.
    drop_placeholder(placeholder)
    book_amounts(application.real, after)
    application.mark_turn()
    if application.accounts:
        user_accounting.exchange_amounts(state, placeholder, before, ask, after)
    for queue in application.queue.lineage():
        exchange_amounts(queue.used, before, after)
        queue.mark_turn()
        if queue.parked:
            state.gained.append(queue)
    state.changes += 1
    assert ask.node is not None, "whoever takes a place has a node"
    ask.node.touch()  # From now on the allocation may be a victim on this node.
    state.gained.append(old_node)
    if state.recording:
        state.events.placeholder_replaced(placeholder, ask, old_node)
    return ask
