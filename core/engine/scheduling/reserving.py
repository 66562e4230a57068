"""Reserves room for asks that have waited long enough (scheduling.md 7.3, 8).

If quotas allow an ask but no node has room for it, it reserves what it needs once it is older than the reservation
delay, on the node that lacks least. Otherwise smaller asks would take the room that becomes free there, one after the
other. A new reservation becomes possible only when an ask reaches that age or a node gains room, so nodes are reserved
in rounds, in scheduling order, and not in every failed search.

So that waiting asks cannot occupy the whole cluster, no more is promised than the quotas could grant, and only a small
percentage of nodes is reserved by age at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from kornel.core.domain.ask_places import AskPlace, WaitsFor
from kornel.core.engine.gangs import gang_places, gang_savings
from kornel.core.engine.scheduling import lapsing
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.nodes import Node
from kornel.core.model.orders.waiting_rooms import is_asleep
from kornel.core.model.shapes import Shape
from kornel.core.policies.application_order import application_key
from kornel.core.policies.claim_order import comes_before, importance_of, line_key, line_since
from kornel.core.policies.queue_order import queue_key
from kornel.core.state.asks import finding
from kornel.core.state.asks.reservations import end_reservation, reserve_node
from kornel.core.state.asks.savings import (
    can_save,
    find_homes,
    find_in_way,
    give_back,
    list_behind,
    may_look_around,
    may_save,
    saved_on,
)
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import inquiries, pausing
from kornel.core.state.waiting.gathering import came_ns, find_least, minimum_members
from kornel.core.state.waiting.places import refused_asks, resume_refused
from kornel.core.state.waiting.rooms import activate_group

PAUSE_NS: Final = 100 * 10**6
"""The least time between two rounds, equal to the idle interval of the scheduling loop."""
PAUSE_PER_GROUP_NS: Final = 100_000
"""The same for each group that a round has looked at, so that rounds take a small part of the time."""
NODES_PER_UNIT: Final = 20
"""The number of nodes looked at that count as one decision in the budget of a slice."""
GROUPS_PER_UNIT: Final = 3
"""The same for the gangs that a round sorts when it begins."""


_Placed = tuple[tuple[object, ...], AskGroup | Allocation]
"""An ask or group that waits, behind its place in the line in which room is saved."""


def wait_for_age(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Schedules a round for the time when *ask*, which has just found no room, is old enough."""
    if state.reserving.delay_ns is not None and len(state.node_order):
        state.reserving.call_round(max(ask.created_ns + state.reserving.delay_ns + 1, now_ns))


def is_due(state: PartitionState, now_ns: int) -> bool:
    """Tells whether a round is under way or should begin."""
    round_ = state.reserving
    under_way = round_.line is not None or round_.left
    return bool(under_way) or (round_.due_ns is not None and round_.due_ns <= now_ns)


def advance_round(state: PartitionState, now_ns: int) -> int:
    """Begins a round, or makes at most one reservation for its next group. Returns the cost in decisions.

    A round ends when no more nodes may be kept free. The next round is scheduled when more may be; until then, the age
    of asks does not matter.
    """
    round_ = state.reserving
    if round_.line is None and not round_.left:
        return _begin_round(state, now_ns)
    waiter = _waiter_in_turn(state)
    if waiter is None or not len(state.node_order):
        round_.left.clear()
        round_.line = None
        round_.candidates.clear()
        if round_.due_ns is not None:
            round_.due_ns = max(round_.due_ns, round_.not_before_ns)
        return 1
    sorted_before = len(round_.candidates)
    if isinstance(waiter, GangUnit):
        round_.left.popleft()
        return _save_for_gang(state, waiter, now_ns)
    in_domain = isinstance(waiter, AskGroup) and waiter.parked_at is state.waiting_for_domain
    if not _reserve_for_one(state, waiter, now_ns):
        round_.left.popleft()
    # Most of the cost is sorting all nodes for a shape that is new in this round, or looking for those of a domain, so
    # the slice is charged for it.
    walks = len(round_.candidates) - sorted_before + in_domain
    return 1 + walks * (len(state.node_order) // NODES_PER_UNIT)


def _begin_round(state: PartitionState, now_ns: int) -> int:
    round_, line = state.reserving, state.in_line
    beside: list[_Placed] = []
    round_.due_ns = None
    if round_.delay_ns is not None:
        beside = _waiting_beside(state)
        # How many have to be sorted still differs in an engine that was restored, so it does not count in the cost.
        line.sort_marked()
        round_.line = _line_up(state, beside, line.walk_members(), now_ns)
    round_.not_before_ns = now_ns + max(PAUSE_NS, PAUSE_PER_GROUP_NS * len(beside))
    return 1 + len(beside) // GROUPS_PER_UNIT


def _line_up(
    state: PartitionState,
    beside: Sequence[_Placed],
    walk: Iterable[tuple[Any, AskGroup]],
    now_ns: int,
) -> Iterator[AskGroup | Allocation]:
    """Yields those *beside* the groups of *walk*, for which no node or domain has room, and these groups, in the line
    in which room is saved: the more important first, of equals the one that has waited longest. Groups are left out
    once no more may be saved and nobody saves who stands behind them. With each, the next round is put off further from
    *now_ns*, when this one began."""
    left, round_, last = deque(beside), state.reserving, _find_last(state)

    def may_save_now(place: tuple[object, ...], waiter: AskGroup | Allocation) -> bool:
        more = isinstance(waiter, GangUnit) or round_.more_may_be_saved(len(state.nodes))
        return more or place < last

    for looked, (key, group) in enumerate(walk, len(beside)):
        round_.not_before_ns = max(round_.not_before_ns, now_ns + PAUSE_PER_GROUP_NS * looked)
        while left and left[0][0] < key:
            place, waiter = left.popleft()
            if may_save_now(place, waiter):
                yield waiter
        if not may_save_now(key, group):
            break
        yield group
    for place, waiter in left:
        if may_save_now(place, waiter):
            yield waiter


def _find_last(state: PartitionState) -> tuple[object, ...]:
    """Returns the place in the line of the last one who saves room alone; empty: nobody does."""
    claims = [claim for claim in state.reserving.saved if claim.by_age and claim.least is None]
    return max((line_key(claim.ask) for claim in claims if claim.ask.place is not AskPlace.HELD), default=())


def _waiter_in_turn(state: PartitionState) -> AskGroup | Allocation | None:
    """Returns who the round under way looks at now; ``None``: there is nobody left."""
    left, line = state.reserving.left, state.reserving.line
    if not left and line is not None:
        left.extend(islice(line, 1))
    return left[0] if left else None


def _reserve_for_one(state: PartitionState, waiter: AskGroup | Allocation, now_ns: int) -> bool:
    """Reserves a node for *waiter*, or the first ask of a group that is old enough. Returns false if there is nothing
    more to do for it."""
    round_, delay_ns = state.reserving, state.reserving.delay_ns
    assert delay_ns is not None, "a round has begun, so reservations are made"
    if isinstance(waiter, AskGroup):
        if not _waits_for_room(state, waiter):
            return False  # It has been woken and will be tried like any other group.
        oldest_ns = waiter.oldest_ns()
        if now_ns - oldest_ns <= delay_ns:
            round_.call_round(oldest_ns + delay_ns + 1)
            return False
    for ask in _in_order(waiter) if isinstance(waiter, AskGroup) else filter(may_look_around, (waiter,)):
        since_ns = ask.waits_since_ns
        if now_ns - since_ns <= delay_ns:
            round_.call_round(since_ns + delay_ns + 1)
            continue
        if now_ns < ask.reserve_after_ns:
            round_.call_round(ask.reserve_after_ns)
            continue
        if finding.exceeded_limit(state, ask) is not None:  # It will wait for that limit, and may save below it.
            if isinstance(waiter, AskGroup):
                activate_group(waiter)
            else:
                resume_refused(state, ask)
            return False
        lost = find_in_way(state, ask, ask.shape.pairs, line_since(ask))
        if lost is None:
            return False
        candidates, left_out = _candidate_nodes(state, ask.shape), list[Node]()
        is_home = find_homes(state, ask)
        found = None
        while candidates and found is None:
            node = candidates.popleft()
            if node.node_id in (ask.refused or ()) or not is_home(node):
                left_out.append(node)
            elif node in state.node_order and _may_save_on(state, node, ask, lost):
                found = node
        candidates.extendleft(reversed(left_out))  # Others of this size may save room there.
        found = found or _find_taken(state, ask, is_home, lost)
        if found is not None:
            _reserve(state, ask, found, now_ns)
        return found is not None
    return False


def _reserve(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Reserves *node* for *ask*, at once or when the shim agrees; another node is tried in a later round (scheduling.md
    7.3)."""
    callbacks = state.callbacks
    if not callbacks.predicates:
        _make_way(state, node, ask)
        save_room(state, ask, node, now_ns)
        return
    # With this time set, no round asks about the ask again before the shim has answered or the question is overdue.
    ask.reserve_after_ns = now_ns + callbacks.timeout_ns + 1
    decide, drop = partial(_decide_reservation, state, ask, node), partial(_drop_question, ask)
    number = callbacks.next_number()
    inquiries.ask_predicates(state, ask, (node.node_id,), decide, drop, now_ns, number=number, allocate=False)


def save_room(
    state: PartitionState, ask: Allocation, node: Node, now_ns: int, since_ns: int | None = None
) -> Reservation:
    """Saves room for *ask* on *node*, instead of where some is saved for it now. *since_ns*: the time since which it
    has held room, and which gives it its turn among equals; ``None``: now."""
    made_ns = now_ns if since_ns is None else since_ns
    return lapsing.watch_claim(state, reserve_node(state, ask, node, made_ns, by_age=True), now_ns)


def keep_room(state: PartitionState, left: Reservation, now_ns: int) -> None:
    """Saves what is *left* of a firm claim that has passed to another ask, if anything is and room may be saved there
    for the former holder, whatever its age and the bound on claims."""
    ask, node, group = left.ask, left.node, left.ask.group
    if (
        not left.pairs
        or state.reserving.delay_ns is None
        or group is None
        or group.is_unit
        or node not in state.node_order
    ):
        return
    if may_save(state, ask) and can_save(node, ask, saved_on(node)) and find_homes(state, ask)(node):
        save_room(state, ask, node, now_ns)


def _find_taken(
    state: PartitionState, ask: Allocation, is_home: Callable[[Node], bool], lost: Sequence[Reservation]
) -> Node | None:
    """Returns the node on which room may be saved for *ask* once those *lost* have ended, and others lose theirs who
    stand behind it in the line, the last one first; ``None``: on none."""
    ended = [*lost]
    for claim in list_behind(state, ask, line_since(ask)):
        ended.append(claim)
        node = claim.node
        allowed = node in state.node_order and node.node_id not in (ask.refused or ()) and is_home(node)
        if allowed and _may_save_on(state, node, ask, ended):
            return node
    return None


def _make_way(state: PartitionState, node: Node, ask: Allocation) -> bool:
    """Ends what those save who stand behind *ask* in the line, the last one first, as far as room may be saved for it
    on *node* only without it. Returns whether it may."""
    since_ns = line_since(ask)
    ended = find_in_way(state, ask, ask.shape.pairs, since_ns)
    if ended is None:
        return False
    behind = [c for c in list_behind(state, ask, since_ns) if c.node is node and c not in ended]
    while not _may_save_on(state, node, ask, ended):
        if not behind:
            return False
        ended.append(behind.pop(0))
    for claim in ended:
        end_reservation(state, claim, requeue=True)
    return True


def _may_save_on(state: PartitionState, node: Node, ask: Allocation, without: Collection[Reservation] = ()) -> bool:
    """Tells whether room may be saved for *ask* on *node* beside what is saved there, but for the claims *without*, and
    nobody's claim has lapsed there who lacked no more."""
    if not can_save(node, ask, [claim for claim in saved_on(node) if claim not in without]):
        return False
    if node not in state.reserving.lapsed:
        return True
    room = node.beside
    return not state.reserving.has_lapsed(node, {t: amount - room[t] for t, amount in ask.shape.pairs})


def _decide_reservation(
    state: PartitionState, ask: Allocation, node: Node, refused: Mapping[str, str], now_ns: int
) -> None:
    ask.reserve_after_ns = 0
    if node.node_id in refused:
        pausing.leave_out(state, ask, (node.node_id,), refused, now_ns, logged=False)
        state.reserving.call_round(now_ns)
        return
    # Since the question was sent, the node, the quotas or the ask may have changed, so all conditions are tested again.
    sound = finding.exceeded_limit(state, ask) is None
    waits = may_look_around(ask) or _waits_for_room(state, ask.group)
    sound = sound and node in state.node_order and find_homes(state, ask)(node)
    if sound and waits and _make_way(state, node, ask):
        save_room(state, ask, node, now_ns)
    else:
        state.reserving.call_round(now_ns)


def _drop_question(ask: Allocation) -> None:
    ask.reserve_after_ns = 0


def _waits_for_room(state: PartitionState, group: AskGroup | None) -> bool:
    """Tells whether no node, or domain, has room for the asks of *group*, and whether nothing else keeps them
    waiting."""
    if group is None or not is_asleep(group) or group.application.backoff_until_ns:
        return False
    return group.parked_at is state.waiting_for_domain or group.parked_at is state.no_room.get(group.shape)


def _in_order(group: AskGroup) -> Iterator[Allocation]:
    """Yields the asks of *group* in order. The first one is cheap to find and usually enough; all are sorted only if
    the caller goes on to the second."""
    yield group.first_ask()
    yield from group.asks()[1:]


def _waiting_beside(state: PartitionState) -> list[_Placed]:
    """Returns the gangs that have not enough room, and the asks that were refused on every node with room, each with
    its place in the line in which the other asks stand."""
    found: list[_Placed] = [(line_key(ask), ask) for ask in filter(may_look_around, refused_asks(state))]
    if not state.reserving.more_may_be_saved(len(state.nodes)):
        last = _find_last(state)
        found = [entry for entry in found if entry[0] < last]
    for room in state.gangs.rooms.values():
        for unit in [waiter for waiter in room.waiters if isinstance(waiter, GangUnit)]:
            members = minimum_members(unit)
            if members:
                since_ns = came_ns(members)
                found.append(((importance_of(find_least(members)), since_ns, *members[0].order), unit))
    found.sort(key=lambda entry: entry[0])
    return found


def _save_for_gang(state: PartitionState, unit: GangUnit, now_ns: int) -> int:
    """Saves places for all members of the gang of *unit* if it is old enough and they can have some, unless room is
    saved for another gang that it does not come before. Returns the cost in decisions."""
    round_, delay_ns, application = state.reserving, state.reserving.delay_ns, unit.application
    waits = unit.parked_at is not None and unit.waits_for is WaitsFor.ROOM_FOR_GANG
    preempts = unit.id in state.gangs.attempts or unit.id in state.gangs.proposed
    if delay_ns is None or not waits or application.backoff_until_ns or preempts:
        return 1  # Until it has preempted, it waits as a unit.
    if not (members := minimum_members(unit)):
        return 1
    since_ns = came_ns(members)
    if now_ns - since_ns <= delay_ns:
        round_.call_round(since_ns + delay_ns + 1)
        return 1
    saver = state.gangs.find_saver()
    least = find_least(members)
    if saver is not None and not comes_before(least, find_least(saver.members)):
        return 1
    if not gang_savings.may_have_places(members):
        return 1
    if gang_places.exceeded_limit(state, application, members, least.spec.priority) is not None:
        activate_group(unit)
        return 1
    lost = find_in_way(state, least, gang_places.add_up(members), since_ns, alone=False)
    places = None if lost is None else gang_savings.take_places(state, members, members, lost)
    if places is not None:
        if saver is not None:
            give_back(state, saver.id)
        lapsing.watch_gang(state, unit.id, gang_savings.save_places(state, unit.id, places, now_ns))
    return 1 + len(members) // NODES_PER_UNIT + len(state.node_order) // NODES_PER_UNIT


class Turns:
    """Computes the positions of asks in the scheduling order of the partition, valid as long as nothing changes. Keys
    that asks share are computed once."""

    def __init__(self) -> None:
        self._shared: dict[Application, tuple[object, ...]] = {}

    def sort_key(self, ask: Allocation) -> tuple[object, ...]:
        """Returns the sort key of *ask*: those of its queues from the root down, of its application, and its own."""
        application = ask.application
        shared = self._shared.get(application)
        if shared is None:
            path = tuple(queue_key(queue) for queue in reversed(application.queue.lineage()))
            shared = self._shared[application] = (path, application_key(application))
        return (*shared, ask.order)


def _candidate_nodes(state: PartitionState, shape: Shape) -> deque[Node]:
    """Returns the open nodes that could hold *shape* if they were empty, without those that the round has already
    looked at. The node that lacks least comes first (S-3); ties keep the node order.

    They are sorted only when the round first needs one for this shape.
    """
    round_ = state.reserving
    candidates = round_.candidates.get(shape)
    if candidates is None:
        candidates = round_.shares.order_nodes(state.nodes, state.node_order, shape.pairs)
        round_.candidates[shape] = candidates
    return candidates
