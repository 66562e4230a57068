"""Compares the records after a plan with those before it (preemption.md A.1 no. 1, 2 and 7).

The laws of its kind judge a plan before it is applied, in production and in tests. Because applying it could still go
wrong, this module judges the result, from the two states and the plan alone. It looks at all records, so it is for
tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from kornel.core.laws.verdict import Law, Violation, net_of, path_of
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import Plan, PreemptionPlan


class Before(NamedTuple):
    """The facts that are remembered of a state: the victims that are leaving, and for each queue the net and claimed
    amounts by type index."""

    marked: dict[str, None]
    net: dict[Queue, list[int]]
    claimed: dict[Queue, list[int]]


def remember_state(view: PartitionView) -> Before:
    """Returns the state before a plan is applied to *view*."""
    queues = list(_queues(view.root))
    return Before(
        {allocation.key: None for allocation in _marked_victims(view)},
        {queue: [net_of(queue, t) for t in range(len(queue.used))] for queue in queues},
        {queue: list(queue.claimed) for queue in queues},
    )


def check_applied(before: Before, plan: Plan, after: PartitionView, laws: Collection[int]) -> tuple[Violation, ...]:
    """Returns every law that *plan*, now applied, has broken, and every other change that it should not have made.

    *laws*: the numbers of the laws that bind its kind. If no. 2 is not among them, shares and maxima do not count.
    """
    shares_count = 2 in laws
    return (
        *_nobody_else(before, plan, after),
        *_check_amounts(before, plan),
        *(_check_law_2(before, plan, after) if shares_count else ()),
        *_check_room(before, plan, after, shares_count=shares_count),
    )


def _nobody_else(before: Before, plan: Plan, after: PartitionView) -> Iterator[Violation]:
    chosen = {victim.key: None for victim in plan.victims}
    marked = {allocation.key: None for allocation in _marked_victims(after)}
    for key in [key for key in marked if key not in before.marked and key not in chosen]:
        yield Violation(Law.APPLIED, f"{key} is on its way out and in no plan")
    for key in [key for key in chosen if key not in marked]:
        yield Violation(Law.APPLIED, f"{key} is in the plan and stays")
    for key in [key for key in before.marked if key not in marked]:
        yield Violation(Law.APPLIED, f"{key} was on its way out and is no more")


def _check_amounts(before: Before, plan: Plan) -> Iterator[Violation]:
    """Yields queues in which victims are not booked as leaving, and queues of the ask in which its claim is not
    booked."""
    leaving: dict[Queue, dict[int, int]] = {}
    for victim in plan.victims:
        for queue in path_of(victim.queue):
            _add(leaving.setdefault(queue, {}), victim)
    claiming: dict[Queue, dict[int, int]] = {}
    if isinstance(plan, PreemptionPlan):
        for queue in path_of(plan.ask.queue):
            _add(claiming.setdefault(queue, {}), plan.ask)
        if not plan.ask.triggered:
            yield Violation(Law.APPLIED, f"{plan.ask.key} may preempt again")
    for queue, net in before.net.items():
        for t, amount in enumerate(net):
            expected = amount - leaving.get(queue, {}).get(t, 0)
            if net_of(queue, t) != expected:
                yield Violation(Law.APPLIED, f"{queue.path} nets {net_of(queue, t)} of type {t}, not {expected}")
            claimed = before.claimed[queue][t] + claiming.get(queue, {}).get(t, 0)
            if queue.claimed[t] != claimed:
                yield Violation(Law.APPLIED, f"{queue.path} claims {queue.claimed[t]} of type {t}, not {claimed}")


def _check_law_2(before: Before, plan: Plan, after: PartitionView) -> Iterator[Violation]:
    """Yields queues that the plan brought below their guarantee, or further below it. In queues on the path of the ask,
    its claim counts as usage."""
    above: tuple[Queue, ...] = ()
    if isinstance(plan, PreemptionPlan):
        above = path_of(plan.ask.queue)
    for queue, net in before.net.items():
        for t, least in queue.guaranteed.items():
            had, has = net[t], net_of(queue, t)
            if queue in above:
                had, has = had + before.claimed[queue][t], has + queue.claimed[t]
            if has < min(least, had):
                detail = f"{queue.path} went from {after.types.names[t]}={had} to {has}, below {least}"
                yield Violation(Law.GUARANTEE_KEPT, detail)


def _check_room(before: Before, plan: Plan, after: PartitionView, *, shares_count: bool) -> Iterator[Violation]:
    """Yields a breach unless the ask, once all marked victims have left, fits on its node beside all other claims
    there, and under every max on its path.

    A queue that was above its max may stay above it if it does not hold more than before. Claims of asks that require
    the node come first.
    """
    if not isinstance(plan, PreemptionPlan):
        return
    ask, node = plan.ask, plan.node
    leaving: dict[int, int] = {}
    for allocation in node.allocations.values():
        if allocation.preempted and allocation not in after.given_up:
            _add(leaving, allocation)
    claimed: dict[int, int] = {}
    for reservation in node.reservations.values():
        first = not reservation.comes_last and (reservation.ask.spec.required_node or not ask.spec.required_node)
        if reservation.ask not in (ask, *node.held.values()) and first:
            _add(claimed, reservation.ask)
    for t, amount in ask.shape.pairs:
        if node.free[t] + leaving.get(t, 0) - claimed.get(t, 0) < amount:
            yield Violation(Law.SUFFICIENT, f"{node.node_id} will have too little of type {t} for {ask.key}")
        for queue in path_of(ask.queue)[:-1] if shares_count else ():
            most = queue.max.get(t)
            had = before.net[queue][t] + before.claimed[queue][t]
            if most is not None and net_of(queue, t) + queue.claimed[t] > max(most, had):
                yield Violation(Law.SUFFICIENT, f"{queue.path} will hold more than {most} of type {t}")


def _add(amounts: dict[int, int], allocation: Allocation) -> None:
    for t, amount in allocation.shape.pairs:
        amounts[t] = amounts.get(t, 0) + amount


def _marked_victims(view: PartitionView) -> Iterator[Allocation]:
    for node in view.nodes.values():
        yield from (allocation for allocation in node.allocations.values() if allocation.preempted)


def _queues(root: Queue) -> Iterator[Queue]:
    yield root
    for child in root.children.values():
        yield from _queues(child)
