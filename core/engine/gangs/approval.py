"""Asks the shim, if it answers predicates, before a real ask takes the place of a placeholder (protocol.md 13).

The first question is about the nodes of placeholders of its group; only if the shim refuses all of these does another
question follow, about other nodes with room. Until the shim answers, the ask and the placeholder are reserved for each
other. Once the answer arrives, the code checks whether both are still as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.engine.gangs import replacement
from kornel.core.engine.gangs.replacement import Pair
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.asks.questions import look_for_pairs, part_pair, withdraw_pair
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import dependence, inquiries, pausing
from kornel.core.state.waiting.rooms import UNSERVED

MOST_NODES: Final = 64
"""The most nodes offered in one question."""


def seek_approval(state: PartitionState, pair: Pair, now_ns: int) -> None:
    """Asks the shim about *pair*; the two are linked only after the answer."""
    ask, placeholder, node = pair
    own = node is placeholder.node
    number = state.callbacks.next_number()
    node_ids = _own_nodes(ask, node) if own else _other_nodes(state, ask, placeholder, node)
    ask.proposed_placeholder, placeholder.proposed_by = placeholder, ask
    decide, drop = partial(_decide_pairs, state, ask, number, own), partial(_drop_question, state, ask, number)
    if ask.dependent:
        offer = partial(_name_nodes, node_ids)
        inquiries.line_up(state, ask, offer, decide, drop, now_ns, number=number, allocate=not own)
        return
    ask.inquiry = inquiries.ask_predicates(state, ask, node_ids, decide, drop, now_ns, number=number, allocate=not own)


def _drop_question(state: PartitionState, ask: Allocation, number: int) -> None:
    if inquiries.is_open(ask, number):
        withdraw_pair(state, ask)


def _name_nodes(node_ids: tuple[str, ...]) -> tuple[str, ...]:
    """Returns *node_ids*, the nodes that were chosen before the question had to wait for its turn."""
    return node_ids


def _own_nodes(ask: Allocation, first: Node) -> tuple[str, ...]:
    """Returns the nodes of the placeholders whose place *ask* could take, the node *first* of the chosen one at the
    head."""
    assert ask.pool is not None, "an ask that looks for a placeholder waits in the pool of its group"
    usable = (p for p in ask.pool.free.sorted_members() if p.proposed_by is None and not replacement.is_larger(ask, p))
    others = (p.node.node_id for p in usable if p.node is not None and p.node is not first)
    refused = ask.refused or {}
    distinct = dict.fromkeys((first.node_id, *(node_id for node_id in others if node_id not in refused)))
    return tuple(islice(distinct, MOST_NODES))


def _other_nodes(state: PartitionState, ask: Allocation, placeholder: Allocation, first: Node) -> tuple[str, ...]:
    if ask.spec.required_node:
        return (first.node_id,)
    assert placeholder.node is not None, "only allocated placeholders are proposed"
    nodes = replacement.other_nodes(state, ask, placeholder.node)
    others = (node.node_id for node in nodes if node is not first)
    return (first.node_id, *islice(others, MOST_NODES - 1))


def _decide_pairs(
    state: PartitionState,
    ask: Allocation,
    number: int,
    own: bool,
    refused: Mapping[str, str],
    now_ns: int,
) -> None:
    """Links the first pair that the shim has allowed and that is still possible; otherwise, lets the next cycle look
    for another pair."""
    if not inquiries.is_open(ask, number):
        return
    inquiry = ask.inquiry
    assert inquiry is not None, "the caller has looked"
    node_ids = inquiry.node_ids
    proposed = part_pair(ask)
    some_refused = pausing.leave_out(state, ask, node_ids, refused, now_ns, moves=inquiry.moves)
    passed = [node_id for node_id in node_ids if node_id not in refused]
    if ask.dependent:
        del passed[1:]
        if passed and not dependence.may_act_upon(state.callbacks, inquiry):
            look_for_pairs(state, ask)
            return
    if ask.place is AskPlace.POOLED and ask.application.state not in UNSERVED:
        pair = _own_pair(ask, proposed, passed) if own else _other_pair(state, ask, proposed, passed)
        if pair is not None:
            replacement.commit(state, pair, now_ns)
            if ask.dependent:
                dependence.note_placement(state, ask, now_ns)
            look_for_pairs(state, ask)
            return
    if some_refused and state.recording:
        state.events.refused_everywhere(ask)
    look_for_pairs(state, ask)


def _own_pair(ask: Allocation, proposed: Allocation, passed: list[str]) -> Pair | None:
    assert ask.pool is not None, "checked by the caller"
    others = [p for p in ask.pool.free.sorted_members() if p is not proposed and p.proposed_by is None]
    candidates = [p for p in (proposed, *others) if _is_free(p) and not replacement.is_larger(ask, p)]
    for node_id in passed:
        for placeholder in candidates:
            if placeholder.node is not None and placeholder.node.node_id == node_id:
                return Pair(ask, placeholder, placeholder.node)
    return None


def _other_pair(state: PartitionState, ask: Allocation, proposed: Allocation, passed: list[str]) -> Pair | None:
    if not _is_free(proposed) or replacement.is_larger(ask, proposed):
        return None
    for node_id in passed:
        node = state.nodes.get(node_id)
        if node is None or node not in state.node_order or not node.has_room(ask.shape.pairs):
            continue
        if node.has_devices(replacement.wanted_devices(ask)):
            return Pair(ask, proposed, node)
    return None


def _is_free(placeholder: Allocation) -> bool:
    return placeholder.node is not None and not placeholder.released and not placeholder.preempted
