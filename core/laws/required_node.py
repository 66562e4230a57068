"""The laws that bind preemption for an ask that must run on one node: no. 1 as an order, no. 6, and invariant 18.

Rules: preemption.md A.0, C. Shares and tenants do not count here: the system cannot work without such tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.laws.verdict import Law, Violation
from core.model.allocations import Allocation
from core.policies.preemption.plan import PreemptionPlan
from core.policies.view import PartitionView


def check(view: PartitionView, plan: PreemptionPlan) -> tuple[Violation, ...]:
    """Every law that *plan*, not yet applied to *view*, would break. Changes nothing. Cost: what the node holds."""
    return (*_node(view, plan), *_eligible(plan), *_sufficient_and_minimal(view, plan), *_milder(plan))


def _node(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    required = plan.ask.spec.required_node
    if plan.node.node_id != required or view.nodes.get(required) is not plan.node:
        yield Violation(Law.NODE_USABLE, f"{plan.ask.key} must run on {required!r}, not on {plan.node.node_id}")


def _eligible(plan: PreemptionPlan) -> Iterator[Violation]:
    seen: set[str] = set()
    for victim in plan.victims:
        if victim.key in seen:
            yield Violation(Law.ELIGIBLE, f"{victim.key} is named twice")
        seen.add(victim.key)
        if victim.node is not plan.node:
            yield Violation(Law.REQUIRED_NODE, f"{victim.key} does not run on {plan.node.node_id}")
        if victim.priority > plan.ask.priority:
            yield Violation(Law.PRIORITY, f"{victim.key} has {victim.priority}, the ask {plan.ask.priority}")
        for fault, present in (
            ("bound to its required node", bool(victim.spec.required_node)),
            ("being released", victim.released),
            ("already a victim", victim.preempted),
        ):
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def _freed(victims: list[Allocation], t: int) -> int:
    return sum(dict(victim.shape.pairs).get(t, 0) for victim in victims)


def _covered(plan: PreemptionPlan, victims: list[Allocation]) -> bool:
    return all(plan.node.free[t] + _freed(victims, t) >= amount for t, amount in plan.ask.shape.pairs)


def _sufficient_and_minimal(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    victims = list(plan.victims)
    freed = {t: _freed(victims, t) for t, _ in plan.ask.shape.pairs}
    for t, amount in plan.ask.shape.pairs:
        if plan.node.free[t] + freed[t] < amount:
            detail = f"{plan.node.node_id} would have {view.types.names[t]}={plan.node.free[t] + freed[t]} for {amount}"
            yield Violation(Law.SUFFICIENT, detail)
    if not victims:
        yield Violation(Law.MINIMAL, "nobody has to go")
    for victim in victims:
        own = dict(victim.shape.pairs)
        if all(plan.node.free[t] + freed[t] - own.get(t, 0) >= amount for t, amount in plan.ask.shape.pairs):
            yield Violation(Law.MINIMAL, f"{victim.key} need not go")


def _class(allocation: Allocation) -> int:
    """Regular, opted out, originator: each goes only where all before it do not do."""
    if allocation.spec.originator:
        return 3
    return 1 if allocation.spec.allow_preempt_self else 2


def _milder(plan: PreemptionPlan) -> Iterator[Violation]:
    worst = max((_class(victim) for victim in plan.victims), default=1)
    if worst == 1:
        return
    milder = [
        allocation
        for allocation in plan.node.allocations.values()
        if _class(allocation) < worst
        and allocation.priority <= plan.ask.priority
        and not (allocation.spec.required_node or allocation.released or allocation.preempted)
    ]
    if _covered(plan, milder):
        yield Violation(Law.OPT_OUT_LAST, f"milder victims would do on {plan.node.node_id}")
