"""Handles node requests: there are seven actions, and only creations are answered (protocol.md 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import NodeAction, NodeSpec, TerminationType
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceSpec, InvalidDevices, read_devices
from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.effects import NodeAccepted, NodeRejected, Released
from kornel.core.domain.names import LONGEST_NAME, LONGEST_TAGS, items_length, length_flaw
from kornel.core.domain.reasons import Ignored, Rejection
from kornel.core.domain.resources import Resources
from kornel.core.engine import lifecycle
from kornel.core.engine.configuration import offered_types
from kornel.core.engine.gangs import replacement
from kornel.core.engine.intake import allocation_intake, handshake, removal
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import TooManyTypes
from kornel.core.preemption import budgets, eviction
from kornel.core.state.asks import moves, questions
from kornel.core.state.asks.answers import answer_release
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import pausing
from kornel.core.state.waiting.rooms import note_lost_capacity, note_new_capacity
from kornel.core.state.waiting.waking import wake_for_domains, wake_for_node, wake_waiting

_ACTIONS: Final = frozenset(NodeAction) - {NodeAction.UNKNOWN}


def handle(state: PartitionState, spec: NodeSpec, now_ns: int) -> None:
    """Handles one entry of a node request. An action that makes no sense in the current state of the node is ignored
    (table in protocol.md 7)."""
    action = spec.action
    if action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN):
        _create_node(state, spec, now_ns, draining=action == NodeAction.CREATE_DRAIN)
        return
    node = state.nodes.get(spec.node_id)
    if action not in _ACTIONS:
        state.ignore_entry(Ignored.UNKNOWN_ACTION, spec.node_id)
    elif node is None:
        state.ignore_entry(Ignored.UNKNOWN_NODE, spec.node_id)
    elif action == NodeAction.UPDATE:
        _update(state, node, spec, now_ns)
    elif action == NodeAction.DECOMISSION:
        _decommission_node(state, node, now_ns)
    else:
        _set_schedulable(state, node, now_ns, schedulable=action == NodeAction.DRAIN_TO_SCHEDULABLE)


def _create_node(state: PartitionState, spec: NodeSpec, now_ns: int, *, draining: bool) -> None:
    refused = _refuse_creation(state, spec)
    if refused is not None:
        state.effects.append(NodeRejected(spec.node_id, refused, state.name))
        return
    try:
        offered_types.offer_types(state, _named_by(spec))
    except TooManyTypes as error:
        reason = f"{Rejection.INVALID_RESOURCE}: node {spec.node_id}: {error}"
        state.effects.append(NodeRejected(spec.node_id, reason, state.name))
        return
    capacity = state.types.to_vector(spec.capacity)
    occupied = state.types.shape_of(spec.occupied) if spec.occupied is not None else None
    node = Node(spec.node_id, spec.attributes, capacity)
    node.touch()
    node.widen_amounts(len(state.types.names))
    node.drained_by_shim = draining
    node.operator_drain = state.operator_drains.get(spec.node_id)
    node.schedulable = _takes_work(node)
    before = len(state.effects)
    if state.recording:
        state.events.node_added(node)
    state.nodes[node.node_id] = node
    if state.topology is not None:
        state.topology.add_node(node, len(state.types.names))
    reported = _reported_devices(spec)
    if reported:
        device_books.report_devices(state, node, read_devices(reported))
    if state.no_room:
        state.reserving.call_round()  # Even a closed node raises the number of nodes that may be kept free.
    ledger.capacity_changed(state, [], node.capacity)
    wake_waiting(state)
    if occupied is not None:
        node.book_foreign(_whole_node_key(node), occupied.pairs)
        state.foreign[_whole_node_key(node)] = node
    refused = allocation_intake.recover_with_node(state, node, spec.existing, now_ns)
    if refused is not None:
        del state.effects[before:]
        _decommission_node(state, node, now_ns)
        del state.effects[before:]
        state.callbacks.end_recording()
        state.effects.append(NodeRejected(spec.node_id, refused, state.name))
        return
    state.effects.insert(before, NodeAccepted(node.node_id))
    if node.schedulable:
        _open(state, node)
    else:
        wake_for_node(state, node)


def set_operator_drain(state: PartitionState, node_id: str, drain: OperatorDrain | None, by: str, now_ns: int) -> None:
    """Drains *node_id* for the operator *by* as *drain* says; ``None`` ends the drain."""
    if drain is None:
        state.operator_drains.pop(node_id, None)
    else:
        state.operator_drains[node_id] = drain
    node = state.nodes.get(node_id)
    if node is None:
        return
    was, node.operator_drain = node.schedulable, drain
    node.schedulable = _takes_work(node)
    if state.recording:
        state.events.operator_drain_set(node, by)
    _follow_schedulable(state, node, now_ns, was=was)


def _takes_work(node: Node) -> bool:
    """Tells whether *node* takes work. Its manager and the operators can each drain it, independently of each other."""
    return not node.drained_by_shim and node.operator_drain is None


def _set_schedulable(state: PartitionState, node: Node, now_ns: int, *, schedulable: bool) -> None:
    changed, node.drained_by_shim = node.drained_by_shim is schedulable, not schedulable
    was, node.schedulable = node.schedulable, _takes_work(node)
    if state.recording:
        state.events.schedulable_set(node)
    if not changed:
        state.ignore_entry(Ignored.NO_CHANGE, node.node_id)
        return
    _follow_schedulable(state, node, now_ns, was=was)


def _follow_schedulable(state: PartitionState, node: Node, now_ns: int, *, was: bool) -> None:
    if node.schedulable is was:
        return
    node.touch()
    if node.domains:
        node.tell_domains()
    pausing.node_changed(state, node)
    if node.schedulable:
        _open(state, node)
    else:
        state.node_order.discard(node)
        note_lost_capacity(state, node)
        eviction.leave_drained(state, node, now_ns)
    state.changes += 1


def _refuse_creation(state: PartitionState, spec: NodeSpec) -> str | None:
    if not spec.node_id:
        return f"{Rejection.INVALID_ID}: a node needs an ID"
    for what, length, most in (
        ("the node's ID", len(spec.node_id), LONGEST_NAME),
        ("an attribute's key", max([len(key) for key, _ in spec.attributes], default=0), LONGEST_NAME),
        ("the list of attributes", items_length(spec.attributes), LONGEST_TAGS),
    ):
        if length > most:
            return f"{Rejection.NAME_TOO_LONG}: {length_flaw(what, length, most)}"
    if spec.node_id in state.nodes:
        return f"{Rejection.NODE_EXISTS}: node {spec.node_id} is registered already"
    for what, amounts in (("capacity", spec.capacity), ("occupied", spec.occupied)):
        if amounts is not None and amounts.has_negative():
            return (
                f"{Rejection.INVALID_RESOURCE}: {what} of node {spec.node_id} is negative: {_list_negatives(amounts)}"
            )
    try:
        read_devices(_reported_devices(spec) or "")
    except InvalidDevices as error:
        return f"{Rejection.INVALID_DEVICES}: node {spec.node_id}: {error}"
    return None


def _reported_devices(spec: NodeSpec) -> str | None:
    """Returns the list of devices in *spec* as text, or ``None`` if it does not mention devices."""
    return next((value for key, value in spec.attributes if key == DEVICES_ATTRIBUTE), None)


def _named_by(spec: NodeSpec) -> Iterator[str]:
    """Yields the resource types that the node has and that foreign load on it uses."""
    for amounts in (spec.capacity, spec.occupied):
        if amounts is not None:
            yield from amounts


def _list_negatives(amounts: Resources) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()) if amount < 0)


def _update(state: PartitionState, node: Node, spec: NodeSpec, now_ns: int) -> None:
    """Changes the capacity of a node completely or not at all. Of its attributes, only those that name its place in the
    topology and its devices can change (protocol.md 4.2)."""
    try:
        devices = read_devices(_reported_devices(spec) or "")
    except InvalidDevices:
        state.ignore_entry(Ignored.INVALID_DEVICES, spec.node_id)
        return
    moved = _move_node(state, node, spec, now_ns)
    equipped = _equip_node(state, node, spec, devices, now_ns)
    if spec.capacity is None and spec.occupied is None:
        if not moved and not equipped:
            pausing.node_changed(state, node)  # By labels or taints, for instance, which only the shim knows.
        return
    if any(amounts is not None and amounts.has_negative() for amounts in (spec.capacity, spec.occupied)):
        state.ignore_entry(Ignored.INVALID_RESOURCE, spec.node_id)
        return
    try:
        offered_types.offer_types(state, _named_by(spec))
    except TooManyTypes:
        state.ignore_entry(Ignored.INVALID_RESOURCE, spec.node_id)
        return
    capacity = state.types.to_vector(spec.capacity) if spec.capacity is not None else None
    occupied = state.types.shape_of(spec.occupied) if spec.occupied is not None else None
    # Shims repeat what they have said, and asks that wait in vain must not be searched for again because of that.
    if capacity == node.capacity:
        capacity = None
    if occupied is not None and node.foreign.get(_whole_node_key(node)) == occupied.pairs:
        occupied = None
    if capacity is None and occupied is None:
        return
    if capacity is not None:
        before = node.capacity
        node.resize(capacity)
        if state.recording:
            state.events.capacity_changed(node)
        ledger.capacity_changed(state, before, capacity)
        wake_waiting(state)
    if occupied is not None:
        node.book_foreign(_whole_node_key(node), occupied.pairs)
        state.foreign[_whole_node_key(node)] = node
    state.changes += 1
    state.node_order.refresh_node(node)
    pausing.node_changed(state, node)
    if capacity is not None:
        note_new_capacity(state, node)
        note_lost_capacity(state, node)
    eviction.review_claims(state, node, now_ns)
    wake_for_node(state, node)


def _move_node(state: PartitionState, node: Node, spec: NodeSpec, now_ns: int) -> bool:
    """Moves *node* to the domains that *spec* names for levels of the topology. Returns whether that is a change.

    Levels that are left out stay as they are, because most updates name no attributes; an empty value takes the node
    out of its domain at that level.
    """
    if state.topology is None or not spec.attributes:
        return False
    if items_length(spec.attributes) > LONGEST_TAGS:
        state.ignore_entry(Ignored.NOT_APPLICABLE, spec.node_id)
        return False
    levels = {level.attribute for level in state.topology.levels}
    said = {key: value for key, value in spec.attributes if key in levels}
    before = dict(node.attributes)
    if all(before.get(key, "") == value for key, value in said.items()):
        return False
    node.attributes = tuple(sorted({**before, **said}.items()))
    state.topology.remove_node(node)
    state.topology.add_node(node, len(state.types.names))
    node.touch()
    state.changes += 1
    eviction.review_claims(state, node, now_ns)
    wake_for_domains(state)
    return True


def _equip_node(state: PartitionState, node: Node, spec: NodeSpec, devices: Sequence[DeviceSpec], now_ns: int) -> bool:
    """Gives *node* the *devices* of *spec*, if *spec* mentions devices. Returns whether they differ from the previous
    ones."""
    reported = _reported_devices(spec)
    before = dict(node.attributes)
    if reported is None or before.get(DEVICES_ATTRIBUTE, "") == reported:
        return False
    node.attributes = tuple(sorted({**before, DEVICES_ATTRIBUTE: reported}.items()))
    device_books.report_devices(state, node, devices)
    if state.recording:
        state.events.devices_changed(node, len(devices))
    node.touch()
    state.changes += 1
    pausing.node_changed(state, node)
    note_new_capacity(state, node)
    note_lost_capacity(state, node)
    eviction.review_claims(state, node, now_ns)
    wake_for_node(state, node)
    return True


def _open(state: PartitionState, node: Node) -> None:
    state.node_order.add(node)
    note_new_capacity(state, node)
    wake_for_node(state, node)


def _decommission_node(state: PartitionState, node: Node, now_ns: int) -> None:
    """Removes *node* by the steps of protocol.md 7.2: first its reservations, then its own allocations, then its
    capacity. One answer lists the allocations that ran there."""
    node.schedulable = False
    state.node_order.discard(node)
    if state.topology is not None:
        state.topology.remove_node(node)
    for ask in list(node.held.values()):
        questions.cancel_question(state, ask)
    for reservation in list(node.reservations.values()):
        ask = reservation.ask
        end_reservation(state, reservation, requeue=True)
        if ask.triggered:
            moves.end_claim(state, ask)
            budgets.watch_age(state, ask)
    arriving = [a for a in node.allocations.values() if a.place is AskPlace.REPLACING]
    gone = [a for a in node.allocations.values() if a.place is not AskPlace.REPLACING]
    del state.nodes[node.node_id]
    state.reserving.lapsed.pop(node, None)
    state.reserving.looked_at.pop(node, None)
    state.reserving.shares.forget_gone(state.nodes)
    note_lost_capacity(state, node)
    pausing.node_changed(state, node)
    state.nodes_removed += 1
    for ask in arriving:
        replacement.undo_replacement(state, ask)
    confirmed: list[Allocation] = []
    lost: dict[Application, list[Allocation]] = {}
    for allocation in gone:
        real = allocation.replaced_by
        if real is not None and real.node is not node:
            confirmed.append(handshake.swap_in(state, allocation, now_ns))
        else:
            removal.remove_allocation(state, allocation, None, now_ns)
            lost.setdefault(allocation.application, []).append(allocation)
    state.sharing.pop(node, None)
    for key in list(node.foreign):
        if state.recording and key != _whole_node_key(node):
            state.events.foreign_load_set(key, node, None, None)
        state.foreign.pop(key, None)
    ledger.capacity_changed(state, node.capacity, [])
    wake_waiting(state)
    if state.recording:
        state.events.node_removed(node)
    for application, allocations in lost.items():
        lifecycle.allocations_removed(state, application, allocations, now_ns)
    message = f"node {node.node_id} was removed"
    answers: list[Released] = [answer_release(state, a, TerminationType.STOPPED_BY_RM, message) for a in gone]
    state.effects.extend(answers)
    for real in confirmed:
        handshake.announce_swap(state, real, now_ns)


def _whole_node_key(node: Node) -> str:
    return f"occupied/{node.node_id}"
