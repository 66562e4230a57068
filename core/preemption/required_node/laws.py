"""Checks preemption for an ask with a required node against its laws: no. 1 as an order, no. 6, and invariant 18.

Rules: preemption.md A.0, C. Shares and tenants do not count here, because a cluster cannot work without such tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kornel.core.domain.ask_places import AskPlace
from kornel.core.laws import eligible, freed_devices, limits, overkill, plain_walk, whole_gangs
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
        *_check_mildest(view, plan),
        *limits.check_limits((plan.ask,), view.types.names),
    )


def _check_node(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    required = plan.ask.spec.required_node
    if plan.node.node_id != required or view.nodes.get(required) is not plan.node:
        yield Violation(Law.NODE_USABLE, f"{plan.ask.key} must run on {required!r}, not on {plan.node.node_id}")


def _check_eligible(plan: PreemptionPlan) -> Iterator[Violation]:
    yield from eligible.check_victims(plan.victims, shields=False)
    for victim in plan.victims:
        if victim.node is not plan.node:
            yield Violation(Law.REQUIRED_NODE, f"{victim.key} does not run on {plan.node.node_id}")
        if victim.priority > plan.ask.priority:
            yield Violation(Law.PRIORITY, f"{victim.key} has {victim.priority}, the ask {plan.ask.priority}")


def _freed_by(victims: list[Allocation], t: int) -> int:
    return sum(victim.shape.amounts.get(t, 0) for victim in victims)


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


class _Devices:
    """The devices that the ask lacks on its node, as a need of the plain walk."""

    def __init__(self, view: PartitionView, plan: PreemptionPlan, tasks: Mapping[str, Allocation]) -> None:
        self._view = view
        self._plan = plan
        self._tasks = tasks

    def left_after(self, gone: Sequence[str]) -> int:
        """Returns 1 if the devices are missing once the tasks *gone*, by key, have left, otherwise 0."""
        victims = [self._tasks[key] for key in gone]
        return int(not freed_devices.leaves_enough(self._plan.node, self._plan.ask, victims, self._view.given_up))

    def may_serve(self, key: str) -> bool:
        """Tells whether the task called *key* holds devices."""
        return bool(self._tasks[key].devices)


def _check_mildest(view: PartitionView, plan: PreemptionPlan) -> Iterator[Violation]:
    """Yields a breach if the plain walk over the node ends with milder victims."""
    if not plan.victims:
        return
    asked = [t for t, _ in plan.ask.shape.pairs]

    def order(task: Allocation) -> tuple[object, ...]:
        spec, amounts = task.spec, task.shape.amounts
        return (
            spec.originator, not spec.allow_preempt_self, task in torn, task.priority, not spec.placeholder,
            -task.created_ns, tuple([amounts.get(t, 0) for t in asked]), task.key,
        )  # fmt: skip

    going = [task for task in plan.node.allocations.values() if _may_go(plan, task)]
    torn = whole_gangs.list_minimum_members(going)
    tasks = {task.key: task for task in going}
    needs: list[plain_walk.Need] = [_Devices(view, plan, tasks)]
    for t, amount in plan.ask.shape.pairs:
        gains = {task.key: _freed_by([task], t) for task in going}
        lack = amount - _available_amount(view, plan, t)
        needs.append(overkill.Need(view.types.names[t], lack, gains, frozenset(gains)))
    orders = {key: order(task) for key, task in tasks.items()}
    yield from plain_walk.check(needs, orders, lambda _: True, {victim.key: order(victim) for victim in plan.victims})


def _may_go(plan: PreemptionPlan, task: Allocation) -> bool:
    bound = bool(task.spec.required_node) or task.released or task.preempted or task.place is AskPlace.REPLACING
    return not bound and task.priority <= plan.ask.priority
