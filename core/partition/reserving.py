"""Nodes kept free for asks that have waited long enough (scheduling.md 7.3, 8).

An ask that quota allows, that no node has room for and that is older than the reservation delay gets the unreserved
node that lacks least. No more is promised this way than the quotas, the size of the cluster included, could grant: a
backlog larger than the cluster would otherwise reserve every node, and a reserved node is closed to preemption. What to
reserve changes only when an ask grows old enough or a node becomes free to be reserved,
so nodes are given out in rounds, in scheduling order, instead of with every failed search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from core.model.allocations import Allocation, AskGroup
from core.model.nodes import Node
from core.model.shapes import Pairs, Shape
from core.partition import inquiries, ledger, placement
from core.partition.state import PartitionState
from core.policies.application_order import application_key
from core.policies.queue_order import queue_key

PAUSE_NS: Final = 100 * 10**6
"""Least time between two rounds: the idle tick of the scheduling loop."""
PAUSE_PER_GROUP_NS: Final = 100_000
REFUSAL_PAUSE_NS: Final = 15 * 10**9
"""From the shim's refusal of a node to be reserved to the next question for the same ask."""
NODES_PER_UNIT: Final = 20
"""Nodes looked at that count for one decision in a slice's budget."""


def wait_for_age(state: PartitionState, group: AskGroup, now_ns: int) -> None:
    """*group* has just found no room: see that a round comes when its first ask is old enough."""
    if state.reservation_delay_ns is not None and len(state.node_order):
        state.reserving.call(max(group.head().created_ns + state.reservation_delay_ns + 1, now_ns))


def is_due(state: PartitionState, now_ns: int) -> bool:
    """Whether a round is under way or should begin."""
    round_ = state.reserving
    return bool(round_.left) or (round_.due_ns is not None and round_.due_ns <= now_ns)


def step(state: PartitionState, now_ns: int) -> int:
    """Begin a round, or look at its next group up to the first node given out. Returns what it cost."""
    round_ = state.reserving
    if not round_.left:
        round_.due_ns = None
        round_.candidates.clear()
        if state.reservation_delay_ns is not None:
            round_.left.extend(_waiting(state))
        round_.not_before_ns = now_ns + max(PAUSE_NS, PAUSE_PER_GROUP_NS * len(round_.left))
        return 1
    if not len(state.node_order):
        round_.left.clear()
        return 1
    group = round_.left[0]
    cost = 1
    if group.shape not in round_.candidates:
        round_.candidates[group.shape] = iter(_candidates(state, group.shape))
        cost += len(state.node_order) // NODES_PER_UNIT
    if not _reserve_for_one(state, group, now_ns):
        round_.left.popleft()
    return cost


def _reserve_for_one(state: PartitionState, group: AskGroup, now_ns: int) -> bool:
    """A node for the first ask of *group* that is old enough. False: there is no more to do for the group."""
    round_, delay_ns = state.reserving, state.reservation_delay_ns
    assert delay_ns is not None, "a round has begun, so reservations are made"
    if not _waits_for_room(state, group):
        return False  # It was woken, and is tried like any other.
    for ask in group.asks():
        if now_ns - ask.created_ns <= delay_ns:
            round_.call(ask.created_ns + delay_ns + 1)
            continue
        if now_ns < ask.reserve_after_ns:
            round_.call(ask.reserve_after_ns)
            continue
        if not ledger.promise_is_sound(ask):
            return False
        for node in round_.candidates[group.shape]:
            if node in state.node_order:
                _reserve(state, ask, node, now_ns)
                return True
        return False
    return False


def _reserve(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Keep *node* for *ask*, at once or when the shim agrees; there is no second candidate (7.3)."""
    callbacks = state.callbacks
    if not callbacks.predicates:
        placement.reserve(state, ask, node, now_ns, by_age=True)
        return
    ask.reserve_after_ns = now_ns + callbacks.timeout_ns + 1

    def decide(refused: Mapping[str, str], at_ns: int) -> None:
        if node.node_id in refused:
            ask.reserve_after_ns = at_ns + REFUSAL_PAUSE_NS
            state.reserving.call(ask.reserve_after_ns)
            return
        ask.reserve_after_ns = 0
        open_to_it = node in state.node_order and node.could_hold(ask.shape.pairs)
        if open_to_it and _waits_for_room(state, ask.group) and ledger.promise_is_sound(ask):
            placement.reserve(state, ask, node, at_ns, by_age=True)
        else:
            state.reserving.call(at_ns)

    def drop() -> None:
        ask.reserve_after_ns = 0

    inquiries.ask_predicates(state, ask, (node.node_id,), decide, drop, now_ns, allocate=False)


def _waits_for_room(state: PartitionState, group: AskGroup | None) -> bool:
    """Whether no node has room for the asks of *group*, which is all that keeps them waiting."""
    if group is None or group.parked_at is None or group.application.backoff_until_ns:
        return False
    return group.parked_at is state.no_room.get(group.shape)


def _waiting(state: PartitionState) -> list[AskGroup]:
    """The groups that no node has room for, in the order in which the cycle would serve them."""
    groups = [waiter for room in state.no_room.values() for waiter in room if isinstance(waiter, AskGroup)]
    return sorted(groups, key=_turn)


def _turn(group: AskGroup) -> tuple[object, ...]:
    return (*turn(group.head()), group.number)


def turn(ask: Allocation) -> tuple[object, ...]:
    """Place of *ask* among all asks of the partition: its queues from the root down, its application, itself."""
    path = tuple(queue_key(queue) for queue in reversed(ask.queue.lineage()))
    return (path, application_key(ask.application), ask.order)


def _candidates(state: PartitionState, shape: Shape) -> list[Node]:
    """Open nodes that could hold *shape* if they were empty, the one that lacks least first (S-3), then in order."""
    pairs = shape.pairs
    able = [node for node in state.node_order if node.could_hold(pairs)]
    return sorted(able, key=lambda node: missing_share(node, pairs))


def missing_share(node: Node, pairs: Pairs) -> float:
    """How much of *pairs* the node has no room for: the sum over types of the missing part, each between 0 and 1."""
    free = node.free
    return sum([min(1.0, (amount - free[t]) / amount) for t, amount in pairs if amount > free[t]])
