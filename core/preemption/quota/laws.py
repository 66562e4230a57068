"""The laws that bind the enforcement of a lowered max: no. 2 on all levels, and invariant 16 (preemption.md A.1, D)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.laws import eligible, overkill, plain_walk, whole_gangs
from kornel.core.laws.verdict import Law, Violation, net_of, path_of
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.quota.plan import QuotaPlan


def check(view: PartitionView, plan: QuotaPlan, *, bound: bool = True, named: bool = False) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    *plan* may be a part of one that was made for an earlier state. *bound* tells whether tasks that must run on their
    node are protected, *named* whether each task was named by itself, so that the minimum run time of its leaf counts.
    """
    return (
        *_check_eligible(view, plan, bound=bound, named=named),
        *_law_2(view, plan),
        *_check_target(view, plan),
        *_check_outcome(view, plan),
        *_not_too_much(view, plan),
        *whole_gangs.check(plan.victims),
    )


def check_whole(view: PartitionView, plan: QuotaPlan) -> tuple[Violation, ...]:
    """Returns what :func:`check` finds, and whether the plain walk over a single leaf ends with milder victims.

    For *plan* as it was made for *view*. The cost is the number of tasks in the leaf times that of the victims.
    """
    return (*check(view, plan), *_check_mildest(view, plan))


def _check_mildest(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    queue = plan.queue
    if not queue.leaf or not plan.victims or plan.unmet or plan.miss:
        return
    if any(eligible.list_young(view.now_ns, plan.victims, queue)):
        return  # They go last of all.
    whole = whole_gangs.leave_minimum(plan.victims)
    tasks = {
        task.key: task
        for application in queue.applications.values()
        for task in application.allocations.values()
        if task not in whole and not any(_check_eligible(view, replace(plan, victims=(task,))))
    }
    minimum = whole_gangs.list_minimum_members(list(tasks.values()))
    tasks = {key: task for key, task in tasks.items() if task not in minimum and task.place is not AskPlace.REPLACING}

    def may_go(keys: Sequence[str]) -> bool:
        return not any(_law_2(view, replace(plan, victims=tuple([tasks[key] for key in keys]))))

    names = view.types.names
    needs = [
        overkill.Need(names[t], amount, {key: task.shape.amounts.get(t, 0) for key, task in tasks.items()}, all_of)
        for all_of in [frozenset(tasks)]
        for t, amount in plan.target.items()
    ]
    victims = {victim.key: _order_of(plan, victim) for victim in plan.victims if victim not in whole}
    for gang in dict.fromkeys(whole.values()):
        members = [_order_of(plan, victim) for victim in plan.victims if whole.get(victim) is gang]
        victims[f"gang {gang.application_id}"] = (any(member[0] for member in members), True)
    orders = {key: _order_of(plan, task) for key, task in tasks.items()}
    yield from plain_walk.check(needs, orders, may_go, victims)


def _order_of(plan: QuotaPlan, task: Allocation) -> plain_walk.Order:
    """Returns the sort key of *task* (preemption.md D.7), in which a gang that leaves as a whole stands behind all
    single tasks of its class."""
    spec, pairs = task.spec, task.shape.pairs
    sizes = [Fraction(amount, plan.ceilings.get(t) or 1) for t, amount in pairs if t in plan.target]
    return (
        spec.originator, False, spec.priority, not spec.allow_preempt_self, not spec.placeholder, -task.created_ns,
        -Fraction(len(sizes), len(pairs)), sorted(sizes, reverse=True), task.key,
    )  # fmt: skip


def _check_eligible(
    view: PartitionView, plan: QuotaPlan, *, bound: bool = True, named: bool = False
) -> Iterator[Violation]:
    yield from eligible.check_victims(plan.victims, shields=False, replacing=False, bound=bound)
    wait_ns = plan.queue.properties.max_wait_ns
    if named:
        for victim in plan.victims:
            yield from eligible.list_young(view.now_ns, (victim,), victim.application.queue)
    elif not (wait_ns and plan.due_ns) or view.now_ns - plan.due_ns < wait_ns:
        yield from eligible.list_young(view.now_ns, plan.victims, plan.queue)
    whole = whole_gangs.leave_whole(plan.victims)
    for victim in plan.victims:
        faults = {
            f"outside {plan.queue.path}": plan.queue not in path_of(victim.queue),
            "of no type that has to be freed": victim not in whole
            and not any(t in plan.target for t, _ in victim.shape.pairs),
        }
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def _law_2(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """Yields queues that lose some amount of a type and end below their guarantee of that type."""
    leaving: dict[Queue, dict[int, int]] = {}
    for victim in plan.victims:
        for queue in path_of(victim.queue):
            if queue.guaranteed:
                amounts = leaving.setdefault(queue, {})
                for t, amount in victim.shape.pairs:
                    amounts[t] = amounts.get(t, 0) + amount
    for queue, amounts in leaving.items():
        for t, amount in amounts.items():
            if t in queue.guaranteed and net_of(queue, t) - amount < queue.guaranteed[t]:
                detail = f"{queue.path} would end at {view.types.names[t]}={net_of(queue, t) - amount}"
                yield Violation(Law.GUARANTEE_KEPT, f"{detail}, below {queue.guaranteed[t]}")


def _check_target(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """Yields types whose target is more than the queue is above its max, with stuck victims counted as staying."""
    names = view.types.names
    for t, amount in plan.staying.items():
        if not 0 <= amount <= plan.queue.preempting[t]:
            yield Violation(Law.WITHIN_QUOTA, f"{names[t]}={amount} stays, of {plan.queue.preempting[t]} in flight")
    for t, amount in plan.target.items():
        over = _held_above(plan, t)
        if not 0 < amount <= over:
            yield Violation(
                Law.WITHIN_QUOTA, f"{plan.queue.path} is {names[t]}={over} above its max, but the target is {amount}"
            )


def _held_above(plan: QuotaPlan, t: int) -> int:
    """Returns what the queue holds of a type above its max once all victims but the stuck ones are gone."""
    held = net_of(plan.queue, t) + plan.staying.get(t, 0)
    return held - plan.ceilings.get(t, held)


def _check_outcome(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """Yields a breach if the outcome is ``FULL`` although some type does not end within the max."""
    freed = _freed_by(plan)
    for t in plan.ceilings if plan.outcome is Outcome.FULL else ():
        left = _held_above(plan, t) - freed.get(t, 0)
        if left > 0:
            detail = f"{plan.queue.path} is said to be enforced in full and keeps {view.types.names[t]}={left}"
            yield Violation(Law.WITHIN_QUOTA, f"{detail} above its max")


def _freed_by(plan: QuotaPlan) -> dict[int, int]:
    freed: dict[int, int] = {}
    for victim in plan.victims:
        for t, amount in victim.shape.pairs:
            freed[t] = freed.get(t, 0) + amount
    return freed


def _not_too_much(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """Yields victims that are not needed for any type of the target, whether or not the target is met.

    A victim is needed for a type if sparing it would free less of the type, counted up to the target. So the amount of
    a type that is freed beyond the target is less than the smallest victim that is needed for this type alone. A gang
    that leaves as a whole is one victim.
    """
    freed = _freed_by(plan)
    whole = whole_gangs.leave_whole(plan.victims)
    parcels: dict[tuple[str, int], dict[int, int]] = {}
    for number, victim in enumerate(plan.victims):
        gang = whole.get(victim)
        parcel = (victim.key, number) if gang is None else (f"gang {gang.application_id}", -1)
        amounts_of = parcels.setdefault(parcel, {})
        for t, amount in victim.shape.pairs:
            amounts_of[t] = amounts_of.get(t, 0) + amount
    goes_for: list[tuple[dict[int, int], list[int]]] = []
    for (name, _), amounts_of in parcels.items():
        needing = [t for t, amount in amounts_of.items() if t in plan.target and freed[t] - amount < plan.target[t]]
        goes_for.append((amounts_of, needing))
        if not needing:
            yield Violation(Law.MINIMAL, f"{name} is not needed")
    for t, target in plan.target.items():
        amounts = [amounts_of.get(t, 0) for amounts_of, needing in goes_for if not set(needing) - {t}]
        alone = [amount for amount in amounts if amount]
        if alone and freed[t] - target >= min(alone):
            yield Violation(Law.WITHIN_QUOTA, f"{view.types.names[t]}={freed[t]} freed for {target}")
