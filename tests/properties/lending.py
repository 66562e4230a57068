"""Who may use room that is saved for another ask, from the words of the rule (preemption.md B.7).

Whoever comes before the holder may, and whoever is owed a guarantee that the holder has no part in, where the holder is
owed none and may run elsewhere. A gang is owed one if that is enough for all its members.
"""

from __future__ import annotations

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import GuaranteeMode, PriorityPolicy
from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.state.partition_state import PartitionState

LOWEST, HIGHEST = -(2**31), 2**31 - 1


def may_use(
    state: PartitionState,
    ask: Allocation,
    holder: Allocation,
    *,
    before: bool = True,
    repaired: bool = False,
    pairs: Pairs = (),
) -> bool:
    """Whether *ask* may use what is saved for *holder*. Not *before*: after it has been placed, when what its queues
    held at the time is not known, and a guarantee that it fits counts as owed. *repaired*: it repaired a gang then, of
    which nobody may be missing now. *pairs*: what *holder* saves below a limit."""
    hold = state.gangs.hold_of(holder)
    if hold is not None and hold.by_age:
        pairs = tuple(sum_amounts(hold.members).items())
    holder = stands_for(state, holder)
    holder_is_owed = owed_by(state, holder, before=True, pairs=pairs)
    if is_ahead(state, ask, holder, repaired=repaired):
        only_repairs = not is_ahead(state, ask, holder, repairs=False)
        if not only_repairs or owed_by(state, ask, before=before) or not holder_is_owed:
            return True
    if holder.spec.required_node:
        return False
    owing = owed_by(state, ask, before=before)
    apart = [path for path in owing if not f"{holder.queue.path}.".startswith(f"{path}.")]
    return bool(apart) and not holder_is_owed


def stands_for(state: PartitionState, holder: Allocation) -> Allocation:
    """The ask by whose importance what is saved for *holder* is judged: of a gang that saves places for all its
    members, the least important one."""
    hold = state.gangs.hold_of(holder)
    if hold is None or not hold.by_age:
        return holder
    return max(hold.members, key=lambda member: (-member.spec.priority, member.order))


def is_kept_below(state: PartitionState, ask: Allocation, pairs: Pairs = ()) -> bool:
    """Whether what others save below limits keeps *ask* back, if it needs *pairs* (empty: its own amounts). Of equal
    asks of one application the first is the one that is tried, in the turn of the one that has waited longest."""
    equals = [ask]
    if not pairs and ask.group is not None:
        ask = ask.group.first_ask()
        equals = [ask] if ask.group is None or ask.group.is_unit else ask.group.asks()
    for claim in state.reserving.at_limits:
        holder = claim.ask
        ours = ask is holder or (ask.group is not None and ask.group is holder.group)
        firm = ask.triggered or (ask.reservation is not None and not ask.reservation.comes_last)
        if ours or firm or may_use(state, ask, holder, pairs=claim.pairs) or holder.place is AskPlace.HELD:
            continue
        if any(_waits_longer(one, holder) and not is_ahead(state, holder, one) for one in equals):
            continue
        for limit in claim.limits:
            if isinstance(limit, Queue):
                most, binds = limit.max, limit in ask.queue.lineage()
                net = [u - p for u, p in zip(limit.used, limit.preempting, strict=True)]
            else:
                most, binds, net = limit.limit.max, limit in ask.application.accounts, limit.used
            for t, amount in pairs or ask.shape.pairs:
                used = max(limit.used[t], net[t] + limit.claimed[t])
                if binds and t in most and amount and used + dict(claim.pairs).get(t, 0) + amount > most[t]:
                    return True
    return False


def _waits_longer(one: Allocation, other: Allocation) -> bool:
    since = [(max(ask.created_ns, ask.lapsed_ns), ask.order) for ask in (one, other)]
    return since[0] < since[1]


def is_ahead(
    state: PartitionState, ask: Allocation, other: Allocation, *, repairs: bool = True, repaired: bool = False
) -> bool:
    """Whether *ask* is more important where its way to the root meets that of *other*, or as important and the only
    one that *repairs* a gang, or *repaired* it when it was placed."""
    ways = ask.queue.path.split("."), other.queue.path.split(".")
    shared = 0
    while all(len(way) > shared for way in ways) and ways[0][shared] == ways[1][shared]:
        shared += 1
    meeting = state.queues[".".join(ways[0][:shared])]
    inside = ask.application is other.application
    if not inside and not meeting.properties.sort_by_priority:
        return False
    own = _seen_from(state, ask, ways[0], shared, repairs=repaired or repairs_gang(ask))
    others = _seen_from(state, other, ways[1], shared, repairs=repairs_gang(other))
    if not repairs or own[0] != others[0]:
        return own[0] > others[0]
    return own[1] and not others[1]


def repairs_gang(ask: Allocation) -> bool:
    """Whether members of its gang are missing."""
    members = ask.application.members.get(ask.spec.task_group)
    return members is not None and members.short > 0


def _seen_from(
    state: PartitionState, ask: Allocation, way: list[str], shared: int, *, repairs: bool
) -> tuple[int, bool]:
    """The priority of *ask* as seen from there, and whether it is seen that it *repairs* a gang: a fence hides it."""
    priority = ask.spec.priority
    for length in range(len(way), shared, -1):
        properties = state.queues[".".join(way[:length])].properties
        if properties.priority_policy is PriorityPolicy.FENCE:
            priority, repairs = properties.priority_offset, False
        else:
            priority = min(HIGHEST, max(LOWEST, priority + properties.priority_offset))
    return priority, repairs


def owed_by(state: PartitionState, ask: Allocation, *, before: bool, pairs: Pairs = ()) -> set[str]:
    """The paths of the queues whose guarantees entitle *ask* (law 4, without a swap); none if one of them is spent. A
    gang that needs *pairs* has to fit its guarantee as a whole."""
    found: dict[int, str] = {}
    whole = bool(pairs) and dict(pairs) != dict(ask.shape.pairs)
    for t, amount in pairs or ask.shape.pairs:
        queue = ask.queue
        while t not in queue.guaranteed and queue.parent is not None:
            queue = queue.parent
        if t not in queue.guaranteed:
            continue
        held = queue.used[t] - queue.preempting[t] + queue.claimed[t] if before else 0
        reach = state.guarantee_mode is GuaranteeMode.REACH and not whole
        if amount > queue.guaranteed[t] or not (
            held < queue.guaranteed[t] if reach else held + amount <= queue.guaranteed[t]
        ):
            return set()
        found[t] = queue.path
    return set(found.values())
