"""The laws of the periodic policy as code: whether victims whose time is up may be taken, worked out from the rules.

As in :mod:`core.laws` the planner is not consulted. Rules: preemption.md A.0 (row E), A.1 no. 3 and 17, E.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core.domain.settings import PreemptionPolicyKind, PriorityPolicy
from core.laws.verdict import Law, Violation
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.policies.preemption.monitor.plan import MonitorPlan
from core.policies.view import PartitionView


def check(view: PartitionView, plan: MonitorPlan) -> tuple[Violation, ...]:
    """Every law that *plan*, not yet applied to *view*, would break. Changes nothing."""
    victims = [doomed.allocation for doomed in plan.victims]
    names = view.types.names
    return (
        *_eligible(victims),
        *_notified(plan),
        *_within_limit(plan, names),
        *_guarantees_kept(view, victims),
        *_over_guarantee(victims),
        *_demanded(view, victims),
    )


def _eligible(victims: Iterable[Allocation]) -> Iterator[Violation]:
    """A.1 no. 3, the application's and the queue's own asks left aside."""
    seen: set[str] = set()
    for victim in victims:
        faults = {
            "named twice": victim.key in seen,
            "not placed": victim.node is None,
            "in a queue protected from preemption": (
                victim.queue.properties.preemption_policy is PreemptionPolicyKind.DISABLED
            ),
            "bound to its required node": bool(victim.spec.required_node),
            "being released": victim.released,
            "taking the place of a placeholder": victim.replaces is not None,
            "already a victim": victim.preempted,
        }
        seen.add(victim.key)
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def _notified(plan: MonitorPlan) -> Iterator[Violation]:
    """A.1 no. 17: told long enough ago, and selected in every round since."""
    for doomed in plan.victims:
        age_ns = plan.now_ns - doomed.notified_ns
        if age_ns < plan.max_wait_ns:
            detail = f"{doomed.allocation.key} was notified {age_ns} ns ago, due after {plan.max_wait_ns}"
            yield Violation(Law.NOTIFIED, detail)
        rounds = plan.round - doomed.first_round + 1
        if doomed.times != rounds:
            detail = f"{doomed.allocation.key} was selected in {doomed.times} of {rounds} rounds since its notice"
            yield Violation(Law.NOTIFIED, detail)


def _within_limit(plan: MonitorPlan, names: list[str]) -> Iterator[Violation]:
    """A.1 no. 17: no round selects more than its part of the cluster."""
    for t, selected in plan.selected.items():
        if selected > plan.limits.get(t, 0):
            detail = f"round {plan.round} selected {names[t]}={selected} of {plan.limits.get(t, 0)}"
            yield Violation(Law.ROUND_LIMIT, detail)


def _guarantees_kept(view: PartitionView, victims: Iterable[Allocation]) -> Iterator[Violation]:
    """Law 2: no queue ends below its guarantee, unless it already was and demand from below it makes up for it."""
    leaving: dict[Queue, dict[int, int]] = {}
    leaves: dict[Queue, None] = {}
    for victim in victims:
        leaves[victim.queue] = None
        for queue in victim.queue.lineage():
            amounts = leaving.setdefault(queue, {})
            for t, amount in victim.shape.pairs:
                amounts[t] = amounts.get(t, 0) + amount
    for queue, amounts in leaving.items():
        own = [leaf for leaf in leaves if queue in leaf.lineage()]
        for t, amount in amounts.items():
            guaranteed = queue.guaranteed.get(t)
            if guaranteed is None:
                continue
            net = queue.used[t] - queue.preempting[t]
            coming = queue.pending[t] - sum(leaf.pending[t] for leaf in own)
            least = min(guaranteed, net) if coming > 0 else guaranteed
            if net - amount + coming < least:
                detail = f"{queue.path} would end at {view.types.names[t]}={net - amount}, below {least}"
                yield Violation(Law.GUARANTEE_KEPT, detail)


def _over_guarantee(victims: Iterable[Allocation]) -> Iterator[Violation]:
    """Law 5: the victim's leaf holds more than its guarantee of something that the victim uses."""
    for victim in victims:
        leaf = victim.queue
        if not any(leaf.used[t] - leaf.preempting[t] > leaf.guaranteed.get(t, 0) for t, _ in victim.shape.pairs):
            yield Violation(Law.OVER_GUARANTEE, f"{victim.key}: {leaf.path} is not over its guarantee")


def _demanded(view: PartitionView, victims: Iterable[Allocation]) -> Iterator[Violation]:
    """Laws 6 and 7: an ask elsewhere is at least as important where the queues meet, with no fence in between."""
    by_leaf: dict[Queue, list[Allocation]] = {}
    for victim in victims:
        by_leaf.setdefault(victim.queue, []).append(victim)
    for leaf, theirs in by_leaf.items():
        if _outranked(view.root, leaf, max(victim.priority for victim in theirs)):
            continue
        for victim in theirs:
            if not _outranked(view.root, leaf, victim.priority):
                detail = f"{victim.key}: no ask elsewhere has priority {victim.priority} or a way in"
                yield Violation(Law.PRIORITY, detail)


def _outranked(root: Queue, leaf: Queue, priority: int) -> bool:
    """Whether some ask of another leaf may take a task of *leaf* with *priority*."""
    path = leaf.lineage()
    for other in _waiting_leaves(root):
        asked = max((app.priority for app in other.applications.values() if app.asks), default=None)
        if other is leaf or asked is None:
            continue
        common = next(queue for queue in other.lineage() if queue in path)
        steps = other.lineage()[: other.depth - common.depth]
        if any(step.properties.preemption_policy is PreemptionPolicyKind.FENCE for step in steps):
            continue
        shown = priority
        for step in path[: leaf.depth - common.depth]:
            shown = _shifted(step, shown)
        for step in steps:
            asked = _shifted(step, asked)
        if shown <= asked:
            return True
    return False


def _shifted(queue: Queue, priority: int) -> int:
    offset = queue.properties.priority_offset
    return offset if queue.properties.priority_policy is PriorityPolicy.FENCE else priority + offset


def _waiting_leaves(queue: Queue) -> Iterator[Queue]:
    if queue.waiting:
        if queue.leaf:
            yield queue
        for child in queue.children.values():
            yield from _waiting_leaves(child)
