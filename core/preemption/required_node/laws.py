"""Checks preemption for an ask with a required node against its laws: no. 1 as an order, no. 6, and invariant 18.

Rules: preemption.md A.0, C. Shares and tenants do not count here, because a cluster cannot work without such tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from kornel.core.domain.ask_places import AskPlace
from kornel.core.laws import freed_devices, overkill
from kornel.core.laws.limits import check_limits
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import PreemptionPlan


def check(view: PartitionView, plan: PreemptionPlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing. The cost is the number of
    allocations on the node."""
    return (
        *_check_node(view, plan),
        *_check_eligible(plan),
        *_sufficient_and_minimal(view, plan),
        *_check_milder(view, plan),
        *check_limits((plan.ask,), view.types.names),
    )


def _check_node(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    required = plan.ask.spec.required_node
    if plan.node.node_id != required or view.nodes.get(required) is not plan.node:
        yield Violation(Law.NODE_USABLE, f"{plan.ask.key} must run on {required!r}, not on {plan.node.node_id}")


def _check_eligible(plan: PreemptionPlan) -> Iterator[Violation]:
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
            ("taking the place of a placeholder", victim.place is AskPlace.REPLACING),
        ):
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def _freed_by(victims: list[Allocation], t: int) -> int:
    return sum(dict(victim.shape.pairs).get(t, 0) for victim in victims)


def _available_amount(view: PartitionView, plan: PreemptionPlan, t: int) -> int:
    """Returns how much of type *t* the ask can use on its node without victims of its own: what is free or leaving.

    Only claims of other asks that require the node come before it.
    """
    leaving = [a for a in plan.node.allocations.values() if a.preempted and a not in view.given_up]
    others = [
        r.ask for r in plan.node.reservations.values() if r.ask is not plan.ask and r.ask.held_on is not plan.node
    ]
    claims = [ask for ask in others if ask.spec.required_node]
    return plan.node.free[t] + _freed_by(leaving, t) - _freed_by(claims, t)


def _is_covered(view: PartitionView, plan: PreemptionPlan, victims: list[Allocation]) -> bool:
    if not freed_devices.leaves_enough(plan.node, plan.ask, victims, view.given_up):
        return False
    return all(_available_amount(view, plan, t) + _freed_by(victims, t) >= amount for t, amount in plan.ask.shape.pairs)


def _sufficient_and_minimal(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    victims = list(plan.victims)
    needs: list[overkill.Need] = []
    everybody = frozenset(victim.key for victim in victims)
    for t, amount in plan.ask.shape.pairs:
        name = view.types.names[t]
        there = _available_amount(view, plan, t)
        if there + _freed_by(victims, t) < amount:
            detail = f"{plan.node.node_id} would have {name}={there + _freed_by(victims, t)} for {amount}"
            yield Violation(Law.SUFFICIENT, detail)
        gains = {victim.key: _freed_by([victim], t) for victim in victims}
        needs.append(overkill.Need(f"{name} on {plan.node.node_id}", amount - there, gains, everybody))
    if not victims:
        yield Violation(Law.MINIMAL, "nobody has to go")
    if not freed_devices.leaves_enough(plan.node, plan.ask, victims, view.given_up):
        yield Violation(Law.SUFFICIENT, f"{plan.node.node_id} would not have the devices that the ask wants")
    spare = [
        victim.key
        for victim in victims
        if freed_devices.leaves_enough(plan.node, plan.ask, [v for v in victims if v is not victim], view.given_up)
    ]
    yield from overkill.check(needs, spare)


def _class_of(allocation: Allocation) -> int:
    """Returns the class of a task: ordinary, opted out, originator, originator that opted out. A task of a class is
    taken only if all earlier classes are not enough."""
    willing = allocation.spec.allow_preempt_self
    if allocation.spec.originator:
        return 3 if willing else 4
    return 1 if willing else 2


def _check_milder(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    worst = max((_class_of(victim) for victim in plan.victims), default=1)
    if worst == 1:
        return
    milder = [
        allocation
        for allocation in plan.node.allocations.values()
        if _class_of(allocation) < worst
        and allocation.priority <= plan.ask.priority
        and not (allocation.spec.required_node or allocation.released or allocation.preempted)
        and allocation.place is not AskPlace.REPLACING
    ]
    if _is_covered(view, plan, milder):
        yield Violation(Law.OPT_OUT_LAST, f"milder victims would do on {plan.node.node_id}")
