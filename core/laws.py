"""The seven laws of preemption as code: whether a plan obeys them, worked out from the rules and from nothing else.

The planners are not consulted: a plan that is right for the wrong reason passes, one that a planner's bug let through
does not. Every plan is checked before it is applied, so :func:`check` looks at the plan and the queues around it
only; :func:`check_exhaustive` also tries every other plan and is for tests on small clusters.

Rules: preemption.md A (the laws and the invariants of A.1), A.0 (which bind guarantee-driven preemption), B.2, B.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from core.domain.settings import GuaranteeMode, PreemptionPolicyKind, PriorityPolicy
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.policies.preemption.plan import PreemptionPlan
from core.policies.view import PartitionView


class Law(StrEnum):
    """What a plan can break: the laws, then the invariants of A.1 that they leave open."""

    OPT_OUT_LAST = "law 1"
    """Somebody unwilling goes although somebody less unwilling would do (exhaustive check only)."""
    GUARANTEE_KEPT = "law 2"
    """A queue ends below its guarantee, or further below it."""
    OTHER_APPLICATION = "law 3"
    ENTITLED = "law 4"
    """The ask's queue is not owed what the ask wants, nor do victims inside the shared guarantee make up for it."""
    OVER_GUARANTEE = "law 5"
    """A victim's queue is not over its guarantee to begin with, or has none of its own where that is required."""
    PRIORITY = "law 6"
    FENCE = "law 7"
    ELIGIBLE = "invariant 3"
    """A victim that no plan may hold: protected, leaving already, not placed, or named twice."""
    ON_NODE = "invariant 6"
    """A victim elsewhere although the node lacks room."""
    SUFFICIENT = "invariant 7"
    """The ask would not fit the node or a queue once the victims are gone."""
    MINIMAL = "invariant 8"
    """A victim too many, or victims where none is needed."""
    NODE_USABLE = "usable node"
    """The node does not take this ask: not schedulable, or held for another ask that does not give way."""
    NOTIFIED = "invariant 17, notice"
    """A victim of the periodic policy that was not told in time, or not selected in every round since."""
    ROUND_LIMIT = "invariant 17, limit"
    """More than its part of the cluster is selected in one round of the periodic policy."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A law broken, and the numbers that show it."""

    law: Law
    detail: str


def check(view: PartitionView, plan: PreemptionPlan) -> tuple[Violation, ...]:
    """Every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    Costs as much as the plan has victims times the depth of the tree. The age of a reservation that gives way is not
    judged, for want of a clock; who may hold it is.
    """
    case = _Case(view, plan)
    return tuple(
        violation
        for rule in (
            _eligible, _law_2, _law_3, _law_4, _law_5, _law_6, _law_7, _on_node, _sufficient, _minimal, _node_usable,
        )
        for violation in rule(case)
    )  # fmt: skip


def check_exhaustive(view: PartitionView, plan: PreemptionPlan) -> tuple[Violation, ...]:
    """As :func:`check`, and law 1: no lawful plan with milder victims only exists on any node.

    Tries every set of milder victims on every node: for clusters of a dozen allocations.
    """
    found = check(view, plan)
    worst = max((_reluctance(victim) for victim in plan.victims), default=(False, False))
    milder = [
        allocation
        for node in view.nodes.values()
        for allocation in node.allocations.values()
        if _reluctance(allocation) < worst
    ]
    for node in view.nodes.values():
        for count in range(1, len(milder) + 1):
            for victims in combinations(milder, count):
                rival = replace(plan, node=node, victims=victims, cancelled=(), extended=False)
                if not check(view, rival):
                    names = ", ".join(victim.key for victim in victims)
                    detail = f"{names} would do on {node.node_id}"
                    return (*found, Violation(Law.OPT_OUT_LAST, detail))
    return found


class _Case:
    """A plan with what several rules need of it: the paths of everybody and what leaves each queue."""

    def __init__(self, view: PartitionView, plan: PreemptionPlan) -> None:
        self.ask = plan.ask
        self.plan = plan
        self.mode = view.guarantee_mode
        self.names = view.types.names
        self.demand = dict(plan.ask.shape.pairs)
        self.ask_path = _path(plan.ask.queue)
        self.victims = plan.victims
        self.leaving: dict[Queue, dict[int, int]] = {}
        """By queue and type: what its victims hold."""
        for victim in plan.victims:
            for queue in _path(victim.queue):
                amounts = self.leaving.setdefault(queue, {})
                for t, amount in victim.shape.pairs:
                    amounts[t] = amounts.get(t, 0) + amount

    def out_of(self, queue: Queue, t: int) -> int:
        """How much of type *t* the victims below *queue* give up."""
        return self.leaving.get(queue, {}).get(t, 0)

    def common(self, victim: Allocation) -> Queue:
        """The lowest queue that ask and *victim* share."""
        return next(queue for queue in _path(victim.queue) if queue in self.ask_path)

    def entitling(self) -> dict[int, Queue]:
        """By asked type, the lowest queue on the ask's path that guarantees it."""
        found: dict[int, Queue] = {}
        for t in self.demand:
            for queue in self.ask_path:
                if t in queue.guaranteed:
                    found[t] = queue
                    break
        return found


def _path(queue: Queue) -> list[Queue]:
    """*queue* and its ancestors, root last."""
    path = [queue]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    return path


def _net(queue: Queue, t: int) -> int:
    """Used once the victims in flight are gone."""
    return queue.used[t] - queue.preempting[t]


def _expected(queue: Queue, t: int) -> int:
    """Used once the victims in flight are gone and the asks they leave for are placed."""
    return _net(queue, t) + queue.claimed[t]


def _priority_at(queue: Queue, priority: int, top: Queue) -> int:
    """*priority* of a task of *queue*, as *top* sees it (B.3)."""
    for step in _path(queue):
        if step is top:
            break
        offset = step.properties.priority_offset
        fenced = step.properties.priority_policy is PriorityPolicy.FENCE
        priority = offset if fenced else priority + offset
    return priority


def _reluctance(allocation: Allocation) -> tuple[bool, bool]:
    return (not allocation.spec.allow_preempt_self, allocation.spec.originator)


def _eligible(case: _Case) -> Iterator[Violation]:
    """A.1 no. 3, but for the application (law 3)."""
    seen: set[str] = set()
    for victim in case.victims:
        faults = {
            "named twice": victim.key in seen,
            "not placed": victim.node is None,
            "in the ask's own queue": victim.queue is case.ask.queue,
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


def _law_2(case: _Case) -> Iterator[Violation]:
    """No queue ends below its guarantee; where the ask comes in, none that was below it loses anything."""
    for queue, amounts in case.leaving.items():
        for t, leaving in amounts.items():
            guaranteed = queue.guaranteed.get(t)
            if guaranteed is None:
                continue
            net = _net(queue, t)
            if queue in case.ask_path:
                after, least = net - leaving + case.demand.get(t, 0), min(guaranteed, net)
            else:
                after, least = net - leaving, guaranteed
            if after < least:
                detail = f"{queue.path} would end at {case.names[t]}={after}, below {least}"
                yield Violation(Law.GUARANTEE_KEPT, detail)


def _law_3(case: _Case) -> Iterator[Violation]:
    """Not inside the same application."""
    own = case.ask.application.application_id
    for victim in case.victims:
        if victim.application.application_id == own:
            yield Violation(Law.OTHER_APPLICATION, f"{victim.key} belongs to {own}, as the ask does")


def _law_4(case: _Case) -> Iterator[Violation]:
    """The queue is under its guarantee before (reach) or still within it after (strict), or the victims inside the
    guarantee free what the ask would exceed it by."""
    entitling = case.entitling()
    if not entitling:
        yield Violation(Law.ENTITLED, f"no guarantee on the path of {case.ask.queue.path} for any type asked for")
    for t, queue in entitling.items():
        asked, guaranteed, held = case.demand[t], queue.guaranteed[t], _expected(queue, t)
        numbers = f"{queue.path} {case.names[t]}: asked {asked}, guaranteed {guaranteed}, held or claimed {held}"
        if asked > guaranteed:
            yield Violation(Law.ENTITLED, numbers)
            continue
        under = held < guaranteed if case.mode is GuaranteeMode.REACH else held + asked <= guaranteed
        freed = case.out_of(queue, t)
        if not under and freed < held + asked - guaranteed:
            yield Violation(Law.ENTITLED, f"{numbers}, freed inside {freed}")


def _law_5(case: _Case) -> Iterator[Violation]:
    """A victim's queues are over their guarantees; for an inherited entitlement one of them must declare its own."""
    entitling = set(case.entitling().values())
    for victim in case.victims:
        common = case.common(victim)
        below = [queue for queue in _path(victim.queue) if queue.depth > common.depth]
        types = [t for t, _ in victim.shape.pairs]
        for queue in below:
            for t in types:
                if _net(queue, t) <= queue.guaranteed.get(t, 0):
                    detail = (
                        f"{victim.key}: {queue.path} has {case.names[t]}={_net(queue, t)},"
                        f" guaranteed {queue.guaranteed.get(t, 0)}"
                    )
                    yield Violation(Law.OVER_GUARANTEE, detail)
        inherited = not any(queue.depth > common.depth for queue in entitling)
        if inherited and not any(t in queue.guaranteed for queue in below for t in types if t in case.demand):
            detail = f"{victim.key}: inherited entitlement, and no guarantee of its own below {common.path}"
            yield Violation(Law.OVER_GUARANTEE, detail)


def _law_6(case: _Case) -> Iterator[Violation]:
    """No victim is more important than the ask, both as seen by the lowest queue they share."""
    for victim in case.victims:
        common = case.common(victim)
        theirs = _priority_at(victim.queue, victim.priority, common)
        ours = _priority_at(case.ask.queue, case.ask.priority, common)
        if theirs > ours:
            yield Violation(Law.PRIORITY, f"{victim.key} has {theirs} at {common.path}, the ask {ours}")


def _law_7(case: _Case) -> Iterator[Violation]:
    """Every victim is inside the lowest fence around the ask."""
    fence = _fence(case)
    for victim in case.victims:
        if fence not in _path(victim.queue):
            yield Violation(Law.FENCE, f"{victim.key} in {victim.queue.path} is outside {fence.path}")


def _fence(case: _Case) -> Queue:
    """The lowest queue on the ask's path that is the root, fenced, or would end above its effective max (B.2)."""
    for at, queue in enumerate(case.ask_path):
        if queue.parent is None or queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return queue
        for t, asked in case.demand.items():
            ceilings = [above.max[t] for above in case.ask_path[at:] if t in above.max]
            if ceilings and _expected(queue, t) + asked > min(ceilings):
                return queue
    raise AssertionError("a path ends at the root")


def _lacks_room(case: _Case) -> bool:
    return any(case.plan.node.free[t] < asked for t, asked in case.demand.items())


def _on_node(case: _Case) -> Iterator[Violation]:
    """Where the node lacks room, every victim runs on it."""
    if _lacks_room(case):
        for victim in case.victims:
            if victim.node is not case.plan.node:
                where = "nowhere" if victim.node is None else victim.node.node_id
                yield Violation(Law.ON_NODE, f"{victim.key} runs on {where}, {case.plan.node.node_id} lacks room")


def _sufficient(case: _Case) -> Iterator[Violation]:
    """Once all victims are gone the ask fits the node and every max on its path."""
    node = case.plan.node
    for t, asked in case.demand.items():
        free = node.free[t] + sum(dict(v.shape.pairs).get(t, 0) for v in case.victims if v.node is node)
        if free < asked:
            detail = f"{node.node_id} would have {case.names[t]}={free} free for {asked}"
            yield Violation(Law.SUFFICIENT, detail)
        for queue in case.ask_path:
            most = queue.max.get(t)
            if most is not None:
                after = _expected(queue, t) + asked - case.out_of(queue, t)
                if after > most:
                    detail = f"{queue.path} would reach {case.names[t]}={after} of {most}"
                    yield Violation(Law.SUFFICIENT, detail)


def _minimal(case: _Case) -> Iterator[Violation]:
    """There is a victim, and without any one of them the plan would not do; a predicate's wishes aside."""
    if not case.victims:
        yield Violation(Law.MINIMAL, "nobody has to go")
    if case.plan.extended:
        return
    slack = _slack(case)
    for victim in case.victims:
        amounts = dict(victim.shape.pairs)
        path = _path(victim.queue)
        if all(
            amounts.get(t, 0) <= over
            for t, place, over in slack
            if (place in path if isinstance(place, Queue) else place == _where(victim))
        ):
            yield Violation(Law.MINIMAL, f"{victim.key} need not go")


def _where(victim: Allocation) -> str:
    return "" if victim.node is None else victim.node.node_id


def _slack(case: _Case) -> list[tuple[int, Queue | str, int]]:
    """(type, queue or node ID, by how much the plan frees more there than it has to), where something must be freed."""
    found: list[tuple[int, Queue | str, int]] = []
    node = case.plan.node
    entitling = case.entitling()
    for t, asked in case.demand.items():
        if node.free[t] < asked:
            freed = sum(dict(v.shape.pairs).get(t, 0) for v in case.victims if v.node is node)
            found.append((t, node.node_id, freed - (asked - node.free[t])))
        for queue in case.ask_path:
            needed = 0
            if t in queue.max:
                needed = _expected(queue, t) + asked - queue.max[t]
            if entitling.get(t) is queue and not _under(case, queue, t):
                needed = max(needed, _expected(queue, t) + asked - queue.guaranteed[t])
            if needed > 0:
                found.append((t, queue, case.out_of(queue, t) - needed))
    return found


def _under(case: _Case, queue: Queue, t: int) -> bool:
    """Whether the queue is owed the type without a swap."""
    held, guaranteed = _expected(queue, t), queue.guaranteed[t]
    return held < guaranteed if case.mode is GuaranteeMode.REACH else held + case.demand[t] <= guaranteed


def _node_usable(case: _Case) -> Iterator[Violation]:
    """The node is schedulable, and whoever else it is held for gives way, and may (B.6)."""
    node, ask = case.plan.node, case.ask
    if not node.schedulable:
        yield Violation(Law.NODE_USABLE, f"{node.node_id} is not schedulable")
    cancelled = {reservation.ask.key for reservation in case.plan.cancelled}
    for key, reservation in node.reservations.items():
        holder = reservation.ask
        if holder is ask:
            continue
        if key not in cancelled:
            yield Violation(Law.NODE_USABLE, f"{node.node_id} is reserved for {key}")
        elif holder.spec.required_node or holder.triggered or holder.priority >= ask.priority:
            yield Violation(Law.NODE_USABLE, f"the reservation of {key} on {node.node_id} does not give way")
