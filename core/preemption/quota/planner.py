"""Plans the enforcement of a lowered max: finds victims in a queue that uses more than its max (preemption.md D.6-D.8).

Fairness between the leaves comes first: each leaf has to bear a part of the target, and loses tasks that fit into this
part. The rest of the target is then taken from all leaves in turns, the least important tasks first, then whole gangs;
originators come after both. Where a guarantee keeps somebody only because of others, the walk begins again with him. In
the end, victims that are not needed are given back. :mod:`.drive` decides when a run starts (D.4, D.5), and applies its
plan (D.9).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.commands import Waivable
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.gang_losses import SpareMembers, is_bound, members_of
from kornel.core.preemption.quota.gang_choice import give_back, join_gangs, take_gangs, take_protected
from kornel.core.preemption.quota.plan import QuotaPlan
from kornel.core.preemption.quota.shares import (
    NONE_STAYING,
    Amounts,
    find_attainable,
    find_excess,
    leaf_shares,
    net_usage,
)
from kornel.core.preemption.quota.timer_rules import is_late
from kornel.core.preemption.quota.victims import NONE_WAIVED, RUN_LENGTH, Choice, Rank, VictimOrder, rank_of
from kornel.core.preemption.walk import list_firsts
from kornel.core.state.records.enforcement import ProtectedBy, Protection

MOST_PROTECTIONS: Final = 32
"""The most reasons in a plan why something stays above a max, those with the largest amounts of each type. Tasks that
are ending are always included, because the next attempt waits for their end."""

Steps = Generator[int, None, QuotaPlan]
"""A generator that makes the plan of a run: it yields the number of allocations looked at in every step, and returns
the plan."""


def plan_enforcement(
    queue: Queue, miss: int, staying: Mapping[int, int] = NONE_STAYING, *, now_ns: int = 0
) -> QuotaPlan:
    """Returns the plan for *queue*, computed at once. *miss*: the percentage of the target that may be left."""
    return finish_plan(plan_in_steps(queue, miss, staying, now_ns=now_ns))


def finish_plan(steps: Steps) -> QuotaPlan:
    """Returns the plan that *steps* make, computed at once."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: QuotaPlan = finished.value
            return result


def plan_in_steps(
    queue: Queue,
    miss: int,
    staying: Mapping[int, int] = NONE_STAYING,
    *,
    now_ns: int = 0,
    due_ns: int = 0,
    ceilings: Mapping[int, int] | None = None,
    waived: frozenset[Waivable] = NONE_WAIVED,
) -> Steps:
    """Plans as :func:`plan_enforcement` does, in steps of limited length. Between two steps, the queue may change.

    *staying*: the amounts of stuck victims, which will not leave. *due_ns*: since when the max was due, after which
    minimum run times keep tasks for a while only; 0: always. The target and the parts of the leaves are those of the
    first step. Allocations that have left in the meantime are not chosen, and new ones are not looked at. *ceilings*:
    what stands in the place of the max; ``None``: nothing. *waived*: the laws that keep nobody back.
    """
    ceilings = dict(queue.max if ceilings is None else ceilings)
    guarded = Waivable.GUARANTEE not in waived
    wanted = find_excess(queue, ceilings, staying)
    if not wanted:
        return QuotaPlan(queue, ceilings, {}, (), {}, Outcome.NOTHING_TO_DO, staying)
    shares = leaf_shares(queue, find_attainable(queue, wanted, guarded=guarded), guarded=guarded)
    yield len(shares)
    order = VictimOrder(queue, wanted, ceilings, now_ns, waived)
    ranked: dict[Queue, list[list[Allocation]]] = {}
    for leaf in shares:
        runs = ranked[leaf] = []
        allocations = [a for application in leaf.applications.values() for a in application.allocations.values()]
        for at in range(0, len(allocations), RUN_LENGTH):
            runs.append(order.run(allocations[at : at + RUN_LENGTH]))
            yield min(RUN_LENGTH, len(allocations) - at)
    choice = yield from _find_choice(queue, _Frame(wanted, miss, shares, ranked, order, waived))
    late = is_late(queue, due_ns, now_ns)
    if late and choice.lacking_amounts():
        yield from take_protected(choice, shares, order)
    protected: tuple[Protection, ...] = ()
    if choice.lacking_amounts():
        protected = yield from _find_protections(choice, queue, order, late=late)
    victims = tuple(victim for part in join_gangs(tuple(choice.victims)) for victim in part)
    return QuotaPlan(
        queue,
        ceilings,
        wanted,
        victims,
        choice.unmet_amounts(),
        _name_outcome(choice),
        staying,
        protected,
        miss,
        due_ns,
    )


class _Frame(NamedTuple):
    """The target, the parts of the leaves and their tasks in order, which are the same for all walks of a run."""

    wanted: Amounts
    miss: int
    shares: Mapping[Queue, Amounts]
    ranked: Mapping[Queue, Sequence[Sequence[Allocation]]]
    order: VictimOrder
    waived: frozenset[Waivable]

    @property
    def guarded(self) -> bool:
        """Tells whether law 2 keeps anybody back."""
        return Waivable.GUARANTEE not in self.waived


def _find_choice(queue: Queue, frame: _Frame) -> Generator[int, None, Choice]:
    """Returns the first choice that meets the target: without originators, then with them, each time first the plain
    walk and then those that begin with whom a guarantee kept. If none does, returns the one that leaves least."""
    attainable = find_attainable(queue, frame.wanted, guarded=frame.guarded)
    tried: list[Choice] = []
    for originators in (False, True):
        tried, kept = [], list[Allocation]()
        for first in list_firsts(kept, _alike):
            choice = yield from _walk(frame, first, originators=originators)
            tried.append(choice)
            if all(choice.freed[t] >= attainable.get(t, 0) for t in choice.lacking_amounts()):
                break
            yield len(choice.kept)
            kept += filter(choice.could_give_at_first, choice.kept)
        if not choice.lacking_amounts():
            break
    choice = min(tried, key=Choice.part_left)
    if Waivable.NEED not in frame.waived:
        yield from give_back(choice, frame.order)
    return choice


def _alike(task: Allocation) -> tuple[Queue, Rank, Pairs]:
    return task.queue, rank_of(task), task.shape.pairs


def _walk(frame: _Frame, first: Sequence[Allocation], *, originators: bool) -> Generator[int, None, Choice]:
    """Returns what the walk takes that begins with *first*; *originators* tells whether it may take them, too."""
    choice = Choice(frame.wanted, frame.miss, frame.shares, guarded=frame.guarded)
    choice.take_first(first)
    left = {leaf: dict(share) for leaf, share in frame.shares.items()}
    # A single leaf has no part to be compared with; with 100, nobody may exceed what is left of the target.
    by_parts = len(frame.shares) > 1 or frame.miss >= 100
    for with_them in (False, True) if originators else (False,):
        for leaf, share in frame.shares.items() if by_parts else ():
            tasks = frame.order.merge_class(frame.ranked[leaf], originators=with_them)
            yield from choice.fill_share(tasks, share, left[leaf])
        if choice.lacking_amounts():
            yield from choice.complete_in_turns(frame.ranked, frame.order, originators=with_them)
        if choice.lacking_amounts():
            yield from take_gangs(choice, frame.shares, frame.order, originators=with_them)
        if frame.miss < 100 and not choice.lacking_amounts():
            break
    return choice


def _find_protections(
    choice: Choice, queue: Queue, order: VictimOrder, *, late: bool
) -> Generator[int, None, tuple[Protection, ...]]:
    """Determines the protection of the tasks in *queue* that hold unmet amounts and are no victims. Each task counts
    once, for the first reason."""
    unmet = choice.unmet_amounts()
    found: dict[tuple[int, ProtectedBy, Queue, int], list[int]] = {}
    looked = 0
    for leaf in _leaves_below(queue):
        # Equal tasks of one leaf are protected by the same reason, so equal ones are looked at once.
        counts: dict[tuple[ProtectedBy, Shape], tuple[int, int]] = {}
        for application in list(leaf.applications.values()):
            for task in list(application.allocations.values()):
                looked += 1
                if looked == RUN_LENGTH:
                    looked = 0
                    yield RUN_LENGTH
                if not (task.preempted or task.node is None or task in choice.victims):
                    until_ns = 0 if late else order.protected_until((task,))
                    reason = _kept_by(task, order, until_ns)
                    until_ns = until_ns if reason is ProtectedBy.RUN_TIME else 0
                    count, first_ns = counts.get((reason, task.shape), (0, until_ns))
                    counts[reason, task.shape] = count + 1, min(first_ns, until_ns)
        for (reason, shape), (count, until_ns) in counts.items():
            level, of = queue, -1
            if reason is ProtectedBy.GUARANTEE:
                guard = choice.find_hindrance(leaf, shape)
                if guard is None:
                    continue
                level, of = guard
            smallest = shape.amounts.get(of, 0)
            for t, amount in shape.pairs:
                if t in unmet:
                    known = found.setdefault((t, reason, level, of), [0, smallest, until_ns])
                    known[0] += amount * count
                    known[1] = min(known[1], smallest)
                    known[2] = min(known[2], until_ns)
    yield looked
    ordered = sorted(found.items(), key=lambda entry: (entry[0][0], -entry[1][0], entry[0][2].path, entry[0][1]))
    return tuple(
        Protection(
            reason,
            t,
            amount,
            level,
            max(0, of),
            level.guaranteed.get(of, 0),
            net_usage(level, max(0, of)),
            smallest,
            until_ns,
        )
        for at, ((t, reason, level, of), (amount, smallest, until_ns)) in enumerate(ordered)
        if at < MOST_PROTECTIONS or reason in (ProtectedBy.ENDING, ProtectedBy.RUN_TIME)
    )


def _kept_by(task: Allocation, order: VictimOrder, until_ns: int) -> ProtectedBy:
    if order.bound and task.spec.required_node:
        return ProtectedBy.REQUIRED_NODE
    if task.released:
        return ProtectedBy.ENDING
    if until_ns:
        return ProtectedBy.RUN_TIME
    return ProtectedBy.GUARANTEE if order.spare_members.may_leave(task) else ProtectedBy.GANG


def _leaves_below(queue: Queue) -> Iterator[Queue]:
    if queue.leaf:
        yield queue
    else:
        for child in list(queue.children.values()):
            yield from _leaves_below(child)


def confirm_batch(
    queue: Queue,
    ceilings: Mapping[int, int],
    wanted: Amounts,
    victims: Iterable[Allocation],
    staying: Mapping[int, int] = NONE_STAYING,
    *,
    now_ns: int = 0,
    due_ns: int = 0,
) -> QuotaPlan:
    """Returns the plan with those of the chosen *victims* that are still needed and allowed in the present state of
    *queue*.

    *wanted* is what has yet to be freed; tasks that have ended by themselves count.
    """
    over = find_excess(queue, ceilings, staying)
    choice = Choice({t: min(amount, over[t]) for t, amount in wanted.items() if t in over})
    # Since they were chosen, their gangs may have lost members.
    spare = SpareMembers()
    order = VictimOrder(queue, wanted, ceilings, now_ns)
    late = is_late(queue, due_ns, now_ns)
    parts = [part for part in join_gangs(tuple(victims)) if late or not order.is_protected(part)]
    whole = [part for part in parts if len(part) > 1 or not spare.may_leave(part[0])]
    gangs = [part for part in whole if is_bound(part[0]) and len(part) == len(members_of(part[0].application))]
    alone = [part[0] for part in parts if len(part) == 1 and spare.may_leave(part[0])]
    for _ in choice.complete_target(alone):
        pass
    for _ in choice.prune_victims(list(reversed(choice.victims))):
        pass
    for gang in gangs:
        lacking = choice.lacking_amounts()
        if lacking:
            choice.take_gang(gang, lacking)
    left = {t: amount - choice.freed.get(t, 0) for t, amount in over.items()}
    unmet = {t: amount for t, amount in left.items() if amount > 0}
    reached = outcome_of(over, unmet, 0, any_victims=bool(choice.victims))
    return QuotaPlan(queue, ceilings, choice.wanted, tuple(choice.victims), unmet, reached, staying, due_ns=due_ns)


def outcome_of(wanted: Mapping[int, int], unmet: Mapping[int, int], miss: int, *, any_victims: bool) -> Outcome:
    """Returns the outcome of a run (preemption.md D.7). *unmet* contains no amounts of 0."""
    if not wanted:
        return Outcome.NOTHING_TO_DO
    if not unmet:
        return Outcome.FULL
    if not any_victims:
        return Outcome.NONE
    tolerable = all(amount * 100 <= wanted[t] * miss for t, amount in unmet.items())
    return Outcome.BEST_EFFORT if tolerable else Outcome.PARTIAL


def _name_outcome(choice: Choice) -> Outcome:
    return outcome_of(choice.wanted, choice.unmet_amounts(), choice.miss, any_victims=bool(choice.victims))
