"""Lets waiters save what comes free below limits that refuse them (preemption.md B.7, "Limits fill up").

A large ask under a full limit would never be placed while smaller ones come and go there: each takes the amount that
the one before it leaves. So as soon as something of what an ask lacks is free, but too little of it, the ask may begin
to save, before smaller ones are tried. One waiter at most saves at each limit, and either at all limits that refuse it
or at none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.domain.settings import SortPolicy
from kornel.core.engine.gangs.gang_places import add_up, choose_places, demand_of
from kornel.core.engine.gangs.gang_savings import find_saved_places, may_have_places
from kornel.core.engine.scheduling.lapsing import pause_of
from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim, together_of
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.nodes import Node
from kornel.core.model.orders.waiting_rooms import WaitingRoom
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.model.users import Account
from kornel.core.policies.application_order import usage_shares
from kornel.core.policies.claim_order import comes_before, limits_of, line_key, rank_below
from kornel.core.policies.queue_order import fair_share
from kornel.core.state.asks.limit_claims import end_saving_below, find_lacking, lapse_below, save_below, sum_missing
from kornel.core.state.asks.savings import can_save, find_homes, has_slot, saved_on
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission, turns
from kornel.core.state.waiting.gathering import find_least, minimum_members
from kornel.core.state.waiting.rooms import UNSERVED, Gate, is_short, line_of, note_short, park_below
from kornel.core.state.waiting.waking import wake_admitted, wake_others

WAITERS_PER_UNIT: Final = 20
"""The number of waiters looked at that count as one decision in the budget of a slice."""
WAITERS_PER_CHOICE: Final = 500
"""The number of waiters that one choice looks at; after its pause, the next one goes on with the others."""
NODES_PER_CHOICE: Final = 5_000
"""The number of nodes that one choice looks at, once for each size of ask, or for one size if there are more."""
NODES_PER_WAITER: Final = 10
"""The number of nodes that cost as much to look at as one waiter."""
PAUSE_PER_WAITER_NS: Final = 100_000
"""The time to the next choice for each waiter looked at, so that choices take a small part of the time."""
TIMES_WITHOUT_ROOM: Final = 10
"""The factor by which that time is longer where nothing came free below the limits."""

_Known = dict[tuple[object, ...], bool]
"""The answers of one choice to whether nodes have or could have room, by what is asked for."""


def park_short(state: PartitionState, group: AskGroup, shape: Shape, gate: Gate, now_ns: int) -> None:
    """Parks *group*, which was tried in its turn, until there is room for *shape* below *gate*, and has others there
    tried whom nobody keeps back who saves there."""
    room = gate.parked.get(shape)
    others_wait = room is not None and room.fall_asleep(now_ns)
    park_below(group, shape, gate)
    note_short(state, gate, (shape,))
    if others_wait:
        wake_others(state, gate, shape)


def is_due(state: PartitionState, now_ns: int) -> bool:
    """Tells whether to choose now who may save below limits where too little came free."""
    at_ns = state.reserving.choose_at_ns
    return at_ns is not None and now_ns >= at_ns


def choose_savers(state: PartitionState, now_ns: int) -> int:
    """Lets those save for whom too little came free lately, in the line in which room is saved. Returns the cost in
    decisions."""
    round_ = state.reserving
    if round_.delay_ns is None:
        round_.short, round_.asked = {}, (0, 0, False)  # The core continues without reservations.
        return 1
    waiting = find_waiters(state)
    # Those who may not save yet are asked again when something has changed.
    round_.short = {limit: round_.short[limit] for limit in waiting}
    found: dict[Allocation, Pairs] = {}
    known: _Known = {}
    part, looked = find_part(state, waiting, now_ns)
    passed, again_ns, changed = round_.asked
    for ask, pairs in part:
        due_ns = ask.waits_since_ns + round_.delay_ns + 1
        if now_ns >= due_ns:
            found[ask] = pairs
        else:
            again_ns = min(again_ns or due_ns, due_ns)
    passed += len(part)
    later_ns = round_.choose_not_before_ns = now_ns + _pause_after(looked)
    if passed < sum(len(groups) for rooms in waiting.values() for groups in rooms):
        round_.asked = passed, again_ns, changed
        again_ns = later_ns
    else:
        round_.asked = 0, 0, False
        if changed:
            later_ns = max(later_ns, _next_time(state, now_ns))
            again_ns = min(again_ns or later_ns, later_ns)
    round_.choose_at_ns = max(again_ns, round_.choose_not_before_ns) if again_ns else None
    if again_ns or looked > WAITERS_PER_UNIT:
        state.run_slice_at(max(again_ns, round_.choose_not_before_ns))
    # Those at whose limit somebody before them in the line wants to save do not save anywhere meanwhile.
    wanted: set[Queue | Account] = set()
    for ask in sorted(found, key=line_key):
        limits = _refusing(ask, found[ask])
        if not wanted.isdisjoint(limits) or _save_in_turn(state, ask, found[ask], limits, now_ns, known):
            wanted.update(limits)
    return 1 + looked // WAITERS_PER_UNIT


def _next_time(state: PartitionState, now_ns: int) -> int:
    """Returns the time at which to ask those again who may not save yet, if something has changed now."""
    nodes, short = len(state.node_order) // NODES_PER_WAITER, state.reserving.short.items()
    looks = sum(len(limit.parked.get(shape, ())) + nodes for limit, shapes in short for shape in shapes)
    return max(now_ns + TIMES_WITHOUT_ROOM * _pause_after(looks), state.reserving.choose_not_before_ns)


def _pause_after(looked: int) -> int:
    return PAUSE_PER_WAITER_NS * max(0, looked - WAITERS_PER_UNIT)


def find_waiters(state: PartitionState) -> dict[Queue | Account, list[Collection[AskGroup]]]:
    """Returns the groups of which one may begin to save because too little came free lately below a limit, by limit."""
    short = {
        limit: [groups for shape in shapes if is_short(limit, shape) for groups in _asleep(limit, shape)]
        for limit, shapes in state.reserving.short.items()
    }
    return {limit: rooms for limit, rooms in short.items() if any(rooms)}


def find_part(
    state: PartitionState, waiting: Mapping[Queue | Account, list[Collection[AskGroup]]], now_ns: int
) -> tuple[list[tuple[Allocation, Pairs]], int]:
    """Returns the asks for those *waiting* at whom the next choice looks, each with the amounts that it needs,
    whether they have waited long enough or not; and how many waiters cost as much to look at."""
    nodes, latest_ns = len(state.node_order), now_ns - (state.reserving.delay_ns or 0)
    part: list[tuple[Allocation, Pairs]] = []
    walks = set[Shape | AskGroup]()
    for group in islice(chain(*chain(*waiting.values())), state.reserving.asked[0], None):
        walk = group if isinstance(group, GangUnit) else group.shape
        too_many = walks and walk not in walks and (len(walks) + 1) * nodes > NODES_PER_CHOICE
        if too_many or len(part) == WAITERS_PER_CHOICE:
            break
        walks.add(walk)
        part.append(_stands_for(group, latest_ns))
    return part, len(part) + len(walks) * nodes // NODES_PER_WAITER


def _asleep(limit: Queue | Account, shape: Shape) -> list[Collection[AskGroup]]:
    """Returns who waits at *limit* for room for *shape* and has been tried since there was some."""
    room = limit.parked.get(shape)
    if room is None:
        return []
    at_once = [waiter for waiter in room.at_once if isinstance(waiter, AskGroup)]
    return [at_once] if room.awake else [at_once, room.groups]


def _stands_for(group: AskGroup, latest_ns: int) -> tuple[Allocation, Pairs]:
    """Returns the ask of *group* that is first in the line among those that came by *latest_ns*, or the first of all;
    of a gang the least important member, with the amounts of all."""
    if isinstance(group, GangUnit):
        members = minimum_members(group)
        return find_least(members), add_up(members)
    first = group.first_ask()
    if first.waits_since_ns >= latest_ns:
        aged = [ask for ask in group.unordered_asks() if ask.waits_since_ns < latest_ns]
        first = min(aged or group.unordered_asks(), key=line_key)
    return first, group.shape.pairs


def _refusing(ask: Allocation, pairs: Pairs) -> tuple[Queue | Account, ...]:
    """Returns the limits that let *ask* have no *pairs* now, whoever saves there, and those where it saves already."""
    claim = ask.limit_claim
    saves = () if claim is None else claim.limits
    return tuple(limit for limit in limits_of(ask) if limit in saves or not limit.admits(pairs))


def _save_in_turn(
    state: PartitionState,
    ask: Allocation,
    pairs: Pairs,
    limits: tuple[Queue | Account, ...],
    now_ns: int,
    known: _Known,
) -> bool:
    """Lets *ask* save *pairs* below *limits*, in the place of those behind it in the line. Returns false if it may not,
    whoever saves there."""
    own = ask.limit_claim
    if own is not None and own.limits == limits:
        return True
    lapsed = any(state.reserving.has_lapsed(limit, find_lacking(limit, pairs)) for limit in limits)
    if lapsed or not _can_come_true(state, ask, pairs, limits, known):
        return False
    there = {limit.saving: None for limit in limits if limit.saving is not None}
    if any(line_key(claim.ask) < line_key(ask) for claim in there):
        return True
    begins = [limit for limit in limits if own is None or limit not in own.limits]
    if not all(_is_in_turn(state, ask, pairs, limit) for limit in begins):
        return False
    for claim in there:
        end_saving_below(state, claim.ask)
    claim = save_below(state, ask, pairs, limits, now_ns)
    if own is not None:
        claim.clock.stalled_ns = own.clock.stalled_ns
    _look_later(state, claim, now_ns)
    return True


def _can_come_true(
    state: PartitionState, ask: Allocation, pairs: Pairs, limits: tuple[Queue | Account, ...], known: _Known
) -> bool:
    """Tells whether *limits* could hold *pairs* if everybody below had ended, no limit of applications keeps *ask*
    back, and nodes could hold it and its gang."""
    application = ask.application
    if application.state in UNSERVED or application.backoff_until_ns or state.reserving.delay_ns is None:
        return False
    if not all(limit.could_hold(pairs) for limit in limits):
        return False
    if application.state is AppState.ACCEPTED and admission.may_run(state, application, ask.spec.priority) is not None:
        return False
    return has_slot(state, ask) and _has_nodes(state, ask, known)


def _has_nodes(state: PartitionState, ask: Allocation, known: _Known) -> bool:
    """Tells whether nodes have or could have room for *ask*, or for all members together of the gang for which it
    stands."""
    if state.gangs.hold_of(ask) is not None:
        return True  # Whoever keeps their places makes sure of that.
    unit = ask.group
    if not isinstance(unit, GangUnit):
        return _has_node(state, ask, known)
    members = minimum_members(unit)
    if demand_of(members)[0] not in state.gangs.rooms and choose_places(state, members) is not None:
        return True
    return may_have_places(members) and find_saved_places(state, members, ask) is not None


def _has_node(state: PartitionState, ask: Allocation, known: _Known) -> bool:
    """Tells whether an open node has or could have room for *ask*, beside what those before it in the line save
    there."""
    required = ask.spec.required_node
    if required:
        node = state.nodes.get(required)
        return node is not None and node.could_hold_shape(ask.shape)
    refused, group = ask.refused or (), ask.spec.task_group and (ask.application, ask.spec.task_group)
    # Whoever asks for the same and is behind in the line has no more nodes than those before it, until a claim ends.
    together = together_of(ask.spec) and (ask.application, ask.spec.topology)
    same = ask.shape, tuple(refused), group, together, state.changes
    if same not in known:
        is_home = find_homes(state, ask)
        nodes = [node for node in state.node_order if node.node_id not in refused]
        if any(node.has_room_for(ask.shape) and is_home(node) for node in nodes):
            known[same] = True
        elif not _could_save(state, ask, nodes, is_home):
            known[same] = False
    return known.get(same, True)


def _could_save(state: PartitionState, ask: Allocation, nodes: list[Node], is_home: Callable[[Node], bool]) -> bool:
    """Tells whether one of *nodes* that *is_home* could have room for *ask*, beside what those before it in the line
    save there."""
    key = line_key(ask)
    return _is_within_bound(state, ask) and any(
        can_save(node, ask, [claim for claim in saved_on(node) if line_key(claim.ask) < key]) and is_home(node)
        for node in nodes
    )


def _is_within_bound(state: PartitionState, ask: Allocation) -> bool:
    """Tells whether the bound on claims by age lets *ask* save room on a node beside those before it in the line."""
    key = line_key(ask)
    before = [claim for claim in state.reserving.saved if claim.by_age and claim.least is None]
    return sum(line_key(claim.ask) < key for claim in before) < state.reserving.most_saved(len(state.nodes))


def _is_in_turn(state: PartitionState, ask: Allocation, pairs: Pairs, limit: Queue | Account) -> bool:
    """Tells whether nobody whom *ask* does not come before, and who asks for less, is to be served first below *limit*
    because of a smaller share.

    Otherwise a queue with an old backlog of large asks would have the limit for itself, whatever the others have. This
    matters only when it begins to save: from then on it keeps its turn.
    """
    asked = dict(pairs)
    parked = limit.parked.items()
    smaller = [room for shape, room in parked if not shape.no_room and any(n < asked.get(t, 0) for t, n in shape.pairs)]
    rooms = [*turns.open_rooms(state), *smaller]
    others = [waiter for room in smaller for waiter in room.at_once]
    firsts = (waiter.first_ask() if isinstance(waiter, AskGroup) else waiter.ask for waiter in others)
    if any(_has_less(other, ask) and not comes_before(ask, other) for other in firsts):
        return False
    leaf, top = ask.queue, limit if isinstance(limit, Queue) else limit.queue
    if leaf.properties.sort_policy is SortPolicy.FAIR:
        share = usage_shares(ask.application)
        if _is_passed(leaf, ask.turn_priority, usage_shares, share, rooms):
            return False
    path = leaf.lineage()
    return not any(
        _is_passed(parent, rank_below(ask, parent), fair_share, fair_share(queue), rooms)
        for queue, parent in islice(pairwise(path), path.index(top))
    )


def _is_passed(
    above: Queue, rank: float, share_of: Callable[[Any], Any], share: Any, rooms: Sequence[WaitingRoom]
) -> bool:
    """Tells whether a child (or application) of *above* whose waiters are in *rooms*, or are about to be tried, has a
    smaller share than *share*, and no lower rank than *rank*. By shares, which *share_of* returns, they are sorted."""
    least = rank if above.properties.sort_by_priority else NOTHING_WAITS
    if any(member.rank >= least and share_of(member) < share for member in above.order):
        return True
    branches = (room.branches[above] for room in rooms if above in room.branches)
    return any(branch.has_smaller(share_of, share, least) for branch in branches)


def _has_less(ask: Allocation, other: Allocation) -> bool:
    """Tells whether the queue of *ask* has a smaller share than that of *other* below their common queue, or its
    application in a leaf that is sorted so."""
    leaf, other_leaf = ask.queue, other.queue
    if leaf is other_leaf:
        fair = leaf.properties.sort_policy is SortPolicy.FAIR
        return fair and usage_shares(ask.application) < usage_shares(other.application)
    above, other_above = leaf.lineage(), other_leaf.lineage()
    child = next(queue for queue in above if queue.parent in other_above)
    other_child = next(queue for queue in other_above if queue.parent is child.parent)
    return fair_share(child) < fair_share(other_child)


def _look_later(state: PartitionState, claim: LimitClaim, now_ns: int) -> None:
    state.run_at(now_ns + pause_of(claim.ask.queue), partial(_look_at, state, claim))


def _look_at(state: PartitionState, claim: LimitClaim, now_ns: int) -> None:
    if claim not in state.reserving.at_limits:
        return
    ask = claim.ask
    if not _can_come_true(state, ask, claim.pairs, claim.limits, {}):
        end_saving_below(state, ask)
        return
    claim.clock.note_missing(sum_missing(claim.pairs, claim.limits), partial(_keeps_back, claim), now_ns)
    if claim.clock.stalled_ns < ask.queue.properties.reservation_timeout_ns:
        _look_later(state, claim, now_ns)
        return
    ask.lapsed_ns = now_ns
    if ask.group is not None:
        line_of(ask.group).mark_changed(ask.group)
    lapse_below(state, ask)


def _keeps_back(claim: LimitClaim) -> bool:
    """Tells whether somebody else waits at a limit of *claim* for what is free there, who could be placed or save if
    nothing were saved. While it collects on a node as well, the clock of that claim runs for both."""
    if claim.ask.reservation is not None:
        return False
    group = claim.ask.group
    for limit in claim.limits:
        for shape, room in limit.parked.items():
            free = any(limit.used[t] < limit.max.get(t, 0) for t, _ in shape.pairs)
            if free and not shape.no_room and any(waiter is not group for waiter in room):
                return True
    return False


def review_claims(state: PartitionState, now_ns: int) -> int:
    """Ends the claims below limits that cannot come true any more, wakes those to whom what is saved has come to be
    lent, and asks those again who may not save yet. Returns how many waiters were looked at."""
    looked, round_ = 0, state.reserving
    if round_.asked[0]:
        round_.asked = *round_.asked[:2], True
    elif round_.short and round_.choose_at_ns is None:
        round_.choose_at_ns = _next_time(state, now_ns)
        if round_.choose_at_ns > now_ns:
            state.run_slice_at(round_.choose_at_ns)
    for claim in list(round_.at_limits):
        if claim not in round_.at_limits:
            continue
        if not _can_come_true(state, claim.ask, claim.pairs, claim.limits, {}):
            end_saving_below(state, claim.ask)
            continue
        if isinstance(claim.ask.group, GangUnit):
            looked += len(state.node_order)
        for limit in claim.limits:
            looked += sum(map(len, limit.parked.values()))
            wake_admitted(state, limit)
    return looked
