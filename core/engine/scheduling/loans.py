"""Lends room that is saved for others to those who come before them or are owed their guarantee (preemption.md B.7).

Saved room lies idle until there is enough for its holder. Whoever may pass the holder uses it meanwhile, as much as it
asks for, if no room serves it that nobody has saved; the holder keeps the rest, its place and its age.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.engine.scheduling import limit_savings
from kornel.core.engine.scheduling.reserving import NODES_PER_UNIT
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import holds_pairs
from kornel.core.policies.claim_order import list_lent, owing_queues, rank_below
from kornel.core.policies.guarantees import project_usage
from kornel.core.policies.queue_order import fair_share
from kornel.core.state.asks import group_domains
from kornel.core.state.asks.savings import end_excess, review_savings
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import turns
from kornel.core.state.waiting.waking import count_lent, wake_borrowers

_WITHOUT_ROOM: Final = frozenset(
    {Unschedulable.NO_FITTING_NODE, Unschedulable.NO_FITTING_DOMAIN, Unschedulable.REFUSED_BY_PREDICATE}
)
"""The reasons for which an ask may use room that is saved for others."""

WAITERS_PER_UNIT: Final = 500
"""The number of waiters on one node that cost as much to look at as one decision."""
PAUSE_PER_UNIT_NS: Final = 2 * 10**6
"""The time to the next look for each such cost, so that looks take a percentage of the time at most."""


def find_lent_node(state: PartitionState, ask: Allocation, why: NotPlaced) -> Node | NotPlaced:
    """Returns the first open node, in order, that has room for *ask*, which found none because of *why*, if it uses
    room saved for those whom it may pass. If there is none, returns *why*, or that the shim has refused them all."""
    if ask.spec.required_node or why.reason not in _WITHOUT_ROOM:
        return why
    pairs, saved = ask.shape.pairs, state.reserving.saved
    # Few nodes have the room, and most lack the first type already.
    t, least = pairs[0] if pairs else (0, 0)
    dues = state.dues
    others = (claim for claim in dues.list_lenders(ask, saved) if claim.ask is not ask)
    roomy = [claim for claim in others if claim.node.free[t] >= least and holds_pairs(claim.node.free, pairs)]
    nodes = dict.fromkeys(claim.node for claim in list_lent(ask, roomy, dues))
    lent = {node: count for node in nodes if node in state.node_order and (count := count_lent(node, ask, dues))}
    # A member of a group that requires a domain takes the place only where the others are, or have theirs, or where it
    # saves room itself, because the first of them starts there.
    own = ask.reservation.node if ask.reservation is not None and ask.reservation.by_age else None
    among = group_domains.nodes_on_loan(state, ask, lent) if lent else lent
    found = [node for node in lent if node in among or node is own]
    allowed = [node for node in found if node.node_id not in (ask.refused or ())]
    if found and not allowed:
        return NotPlaced(Unschedulable.REFUSED_BY_PREDICATE)
    return min(allowed, key=lambda node: (node.score, node.node_id), default=None) or why


def is_due(state: PartitionState, now_ns: int) -> bool:
    """Tells whether to look again who may use saved room, because amounts have changed on which that depends."""
    round_ = state.reserving
    may_be = bool(round_.saved or round_.at_limits or round_.short) and now_ns >= round_.review_after_ns
    return may_be and round_.reviewed != _marks(state)


def review_loans(state: PartitionState, now_ns: int) -> int:
    """Ends saved claims that cannot come true now, and wakes those who may use saved room, because they have come to be
    owed their guarantee, or a holder is owed none any more. Returns the cost in decisions."""
    round_, nodes = state.reserving, {claim.node: None for claim in state.reserving.saved}
    for node in nodes:
        review_savings(state, node)
    end_excess(state)
    if not (round_.reviewed and _may_leave_out(state)):
        round_.looked_at.clear()
    round_.reviewed = _marks(state)
    for node in nodes:
        if round_.looked_at.get(node) != node.version:
            wake_borrowers(state, node)
    round_.looked_at = {node: node.version for node in nodes if node.devices is None}
    looked = len(nodes) * sum(map(len, state.no_room.values())) + limit_savings.review_claims(state, now_ns)
    cost = 1 + len(nodes) // NODES_PER_UNIT + looked // WAITERS_PER_UNIT
    if cost > 1:
        round_.review_after_ns = now_ns + PAUSE_PER_UNIT_NS * cost
        state.run_slice_at(round_.review_after_ns)
    return cost


def _may_leave_out(state: PartitionState) -> bool:
    """Tells whether nobody has come to be owed a guarantee since the last look, or is owed none any more, so that nodes
    on which nothing has changed are lent to nobody else now. Who waits anew was tried when it came."""
    rooms, gangs, before = state.no_room.values(), state.gangs, state.reserving.owing
    asks = [claim.ask for claim in state.reserving.saved]
    asks += [each.first_ask() if isinstance(each, AskGroup) else each.ask for room in rooms for each in room.at_once]
    around = set[Queue]().union(*(room.branches for room in rooms), *(ask.queue.lineage() for ask in asks))
    owing = state.reserving.owing = {
        queue.path: [project_usage(queue, t) < most for t, most in queue.guaranteed.items()]
        for queue in around
        if queue.guaranteed
    }
    # Its own claim does not count against who has one.
    owing |= {f"ask {ask.key}": [bool(owing_queues(ask, state.guarantee_mode))] for ask in asks if ask.triggered}
    if state.guarantee_mode is not GuaranteeMode.REACH or gangs.rooms or gangs.holds or gangs.below:
        return False  # What gangs are owed depends on how much their queues hold.
    if state.refused or state.waiting_for_domain:
        return False
    return all(before.get(path, owes) == owes for path, owes in owing.items())


def _marks(state: PartitionState) -> tuple[int, int, int]:
    return state.changes, state.allocation_count, len(state.reserving.saved) + len(state.reserving.at_limits)


def is_outranked(state: PartitionState, ask: Allocation, *, within_leaf: bool = False) -> bool:
    """Tells whether the cycle is about to try somebody, *within_leaf* or anywhere, who comes before *ask*, so that it
    has to wait for its turn."""
    application, rooms = ask.application, turns.open_rooms(state)
    if turns.rank_of(application, rooms) > ask.turn_priority:
        return True
    below: Application | Queue = application
    for queue in ask.queue.lineage()[: 1 if within_leaf else None]:
        first, rank = turns.first_offered(queue, rooms)
        lead = rank - rank_below(ask, queue) if queue.properties.sort_by_priority and first is not below else 0
        # Who only repairs a gang does not come before a queue that is below its guarantee while its own is not.
        if lead >= 1 or (lead > 0 and not (isinstance(below, Queue) and fair_share(below) < 1 <= fair_share(first))):
            return True
        below = queue
    return False
