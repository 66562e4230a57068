"""The laws that bind the enforcement of a lowered max: no. 2 on all levels, and invariant 16 (preemption.md A.1, D)."""

from __future__ import annotations

from collections.abc import Iterator

from core.laws.verdict import Law, Violation, net_of, path_of
from core.model.queues import Queue
from core.policies.preemption.plan import QuotaPlan
from core.policies.view import PartitionView


def check(view: PartitionView, plan: QuotaPlan) -> tuple[Violation, ...]:
    """Every law that *plan*, not yet applied to *view*, would break. Changes nothing."""
    return (*_eligible(view, plan), *_law_2(view, plan), *_target(view, plan), *_not_too_much(view, plan))


def _eligible(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    seen: set[str] = set()
    for victim in plan.victims:
        faults = {
            "named twice": victim.key in seen,
            "not placed": victim.node is None,
            "bound to its required node": bool(victim.spec.required_node),
            "being released": victim.released,
            "already a victim": victim.preempted,
            f"outside {plan.queue.path}": plan.queue not in path_of(victim.queue),
            "of no type that has to be freed": not any(t in plan.target for t, _ in victim.shape.pairs),
        }
        seen.add(victim.key)
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def _law_2(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """No queue that loses anything of a type ends below what it is guaranteed of it."""
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


def _target(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """No more is aimed at than the queue is above its max."""
    for t, amount in plan.target.items():
        over = net_of(plan.queue, t) - plan.ceilings.get(t, net_of(plan.queue, t))
        if not 0 < amount <= over:
            detail = f"{plan.queue.path} is {view.types.names[t]}={over} above its max, {amount} is aimed at"
            yield Violation(Law.WITHIN_QUOTA, detail)


def _not_too_much(view: PartitionView, plan: QuotaPlan) -> Iterator[Violation]:
    """Where the target is met nobody goes who need not; with one type it is exceeded by less than one victim."""
    freed = dict.fromkeys(plan.target, 0)
    for victim in plan.victims:
        for t, amount in victim.shape.pairs:
            if t in freed:
                freed[t] += amount
    if len(plan.target) == 1 and plan.victims:
        ((t, target),) = plan.target.items()
        largest = max(dict(victim.shape.pairs).get(t, 0) for victim in plan.victims)
        if freed[t] - target >= largest:
            yield Violation(Law.WITHIN_QUOTA, f"{view.types.names[t]}={freed[t]} freed for {target}")
    slack = {t: freed[t] - target for t, target in plan.target.items()}
    if min(slack.values(), default=-1) < 0:
        return
    for victim in plan.victims:
        own = dict(victim.shape.pairs)
        if all(own.get(t, 0) <= over for t, over in slack.items()):
            yield Violation(Law.MINIMAL, f"{victim.key} need not go")
