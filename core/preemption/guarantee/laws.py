"""Checks plans of preemption between queues against the seven laws (preemption.md A, A.1, B.2, B.3).

Every plan is checked before it is applied, so :func:`check` only looks at the plan and the queues around it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import GuaranteeMode, PreemptionPolicyKind, PriorityPolicy
from kornel.core.domain.topology import Wish
from kornel.core.laws import freed_devices, overkill, plain_walk, whole_gangs
from kornel.core.laws.limits import check_limits
from kornel.core.laws.verdict import Law, Violation, net_of, path_of
from kornel.core.model.allocations import Allocation, stand_together
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import NOBODY_SPARED, PreemptionPlan, Spared


def check(view: PartitionView, plan: PreemptionPlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    The cost is the number of victims times the depth of the tree, plus the number of allocations on the node.
    """
    case = _Case(view, plan)
    return tuple(
        violation
        for rule in (
            check_eligible, check_law_2, check_law_3, check_law_4, check_law_5, check_law_6, check_law_7,
            check_gangs, _on_node, _check_sufficient, check_maxima, _check_devices, _check_domain, _check_minimal,
            _check_mildest, _node_usable,
        )
        for violation in rule(case)
    ) + tuple(check_limits((plan.ask,), view.types.names))  # fmt: skip


class Case:
    """An ask and its victims, with what several rules need: the path of the ask, and the amounts that leave each queue.

    Nothing changes while it is judged, so what several rules need is computed once.
    """

    def __init__(self, view: PartitionView, ask: Allocation, victims: tuple[Allocation, ...]) -> None:
        self.ask = ask
        self.view = view
        self.mode = view.guarantee_mode
        self.names = view.types.names
        self.demand = ask.shape.amounts
        self.ask_path = path_of(ask.queue)
        self.victims = victims
        self.leaving: dict[Queue, dict[int, int]] = {}
        """The amounts that its victims hold, by queue and type."""
        for victim in victims:
            for queue in path_of(victim.queue):
                amounts = self.leaving.setdefault(queue, {})
                for t, amount in victim.shape.pairs:
                    amounts[t] = amounts.get(t, 0) + amount
        self._entitling: dict[int, Queue] | None = None

    def out_of(self, queue: Queue, t: int) -> int:
        """Returns how much of type *t* the victims below *queue* free."""
        return self.leaving.get(queue, {}).get(t, 0)

    def common_queue(self, victim: Allocation) -> Queue:
        """Returns the lowest queue that ask and *victim* share."""
        return next(queue for queue in path_of(victim.queue) if queue in self.ask_path)

    def entitling_queues(self) -> dict[int, Queue]:
        """Returns, by asked type, the lowest queue on the ask's path that guarantees it."""
        if self._entitling is not None:
            return self._entitling
        found = self._entitling = {}
        for t in self.demand:
            for queue in self.ask_path:
                if t in queue.guaranteed:
                    found[t] = queue
                    break
        return found


class _Case(Case):
    """A plan for one ask, with the amounts on its node."""

    def __init__(self, view: PartitionView, plan: PreemptionPlan) -> None:
        super().__init__(view, plan.ask, plan.victims)
        self.plan = plan
        self.stuck = view.given_up
        node = plan.node
        self.will_be_free: dict[int, int] = {t: node.free[t] for t in self.demand}
        """By asked type, the free amount on the node once earlier victims have left, apart from stuck ones."""
        for allocation in node.allocations.values():
            if allocation.preempted and allocation not in self.stuck:
                for t, amount in allocation.shape.pairs:
                    if t in self.demand:
                        self.will_be_free[t] += amount
        self.available: dict[int, int] = {}
        """By asked type, the amount that the ask can use on the node without further victims: what will be free and is
        not claimed by others."""
        for t, left in self.will_be_free.items():
            self.available[t] = left - min(_spoken_for(self, t), max(0, left))


def expected_usage(queue: Queue, t: int) -> int:
    """Returns what *queue* will use of type *t* once its victims have left and their preemptors are placed."""
    return net_of(queue, t) + queue.claimed[t]


def _priority_at(queue: Queue, priority: int, top: Queue) -> int:
    """Returns *priority*, of a task in *queue*, as adjusted at *top* (preemption.md B.3)."""
    for step in path_of(queue):
        if step is top:
            break
        offset = step.properties.priority_offset
        fenced = step.properties.priority_policy is PriorityPolicy.FENCE
        priority = offset if fenced else priority + offset
    return priority


def check_eligible(case: Case) -> Iterator[Violation]:
    """Yields breaches of preemption.md A.1 no. 3: victims that no plan may contain. Their application is judged by law
    3."""
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
            "taking the place of a placeholder": victim.place is AskPlace.REPLACING,
            "already a victim": victim.preempted,
        }
        seen.add(victim.key)
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def check_law_2(case: Case) -> Iterator[Violation]:
    """Yields queues that would end below their guarantee. A queue on the path of the ask that is already below its
    guarantee must not lose anything."""
    for queue, amounts in case.leaving.items():
        for t, leaving in amounts.items():
            guaranteed = queue.guaranteed.get(t)
            if guaranteed is None:
                continue
            net = net_of(queue, t)
            if queue in case.ask_path:
                after, least = net - leaving + case.demand.get(t, 0), min(guaranteed, net)
            else:
                after, least = net - leaving, guaranteed
            if after < least:
                detail = f"{queue.path} would end at {case.names[t]}={after}, below {least}"
                yield Violation(Law.GUARANTEE_KEPT, detail)


def check_law_3(case: Case) -> Iterator[Violation]:
    """Yields victims of the ask's own application."""
    own = case.ask.application.application_id
    for victim in case.victims:
        if victim.application.application_id == own:
            yield Violation(Law.OTHER_APPLICATION, f"{victim.key} belongs to {own}, as the ask does")


def check_law_4(case: Case) -> Iterator[Violation]:
    """Yields a breach for each type unless the queue is below its guarantee before (mode ``reach``) or within it
    afterwards (mode ``strict``, and for gangs), or the victims inside the guarantee make up for the ask: the queue ends
    within its guarantee or, if the leaf has a guarantee of its own, holds no more than before."""
    entitling = case.entitling_queues()
    if not entitling:
        yield Violation(Law.ENTITLED, f"no guarantee on the path of {case.ask.queue.path} for any type asked for")
    own = any(queue is case.ask.queue for queue in entitling.values())
    for t, queue in entitling.items():
        asked, guaranteed, held = case.demand[t], queue.guaranteed[t], expected_usage(queue, t)
        after = held + asked - case.out_of(queue, t)
        numbers = f"{queue.path} {case.names[t]}: asked {asked}, guaranteed {guaranteed}, held or claimed {held}"
        if asked > guaranteed:
            yield Violation(Law.ENTITLED, numbers)
        elif _is_under(case, queue, t):
            continue
        elif queue is case.ask.queue or (held > guaranteed and not own):
            yield Violation(Law.ENTITLED, numbers)
        elif after > max(held, guaranteed):
            yield Violation(Law.ENTITLED, f"{numbers}, {after} afterwards")


def check_law_5(case: Case) -> Iterator[Violation]:
    """Yields victims whose queues are not above their guarantees. If the entitlement is inherited, one of these queues
    must have a guarantee of its own."""
    entitling = set(case.entitling_queues().values())
    for victim in case.victims:
        common = case.common_queue(victim)
        below = [queue for queue in path_of(victim.queue) if queue.depth > common.depth]
        types = [t for t, _ in victim.shape.pairs]
        for queue in below:
            for t in types:
                if net_of(queue, t) <= queue.guaranteed.get(t, 0):
                    detail = (
                        f"{victim.key}: {queue.path} has {case.names[t]}={net_of(queue, t)},"
                        f" guaranteed {queue.guaranteed.get(t, 0)}"
                    )
                    yield Violation(Law.OVER_GUARANTEE, detail)
        inherited = not any(queue.depth > common.depth for queue in entitling)
        if inherited and not any(t in queue.guaranteed for queue in below for t in types if t in case.demand):
            detail = f"{victim.key}: inherited entitlement, and no guarantee of its own below {common.path}"
            yield Violation(Law.OVER_GUARANTEE, detail)


def check_law_6(case: Case) -> Iterator[Violation]:
    """Yields victims with a higher priority than the ask, both as adjusted at the lowest queue that they share."""
    for victim in case.victims:
        common = case.common_queue(victim)
        theirs = _priority_at(victim.queue, victim.priority, common)
        ours = _priority_at(case.ask.queue, case.ask.priority, common)
        if theirs > ours:
            yield Violation(Law.PRIORITY, f"{victim.key} has {theirs} at {common.path}, the ask {ours}")


def check_law_7(case: Case) -> Iterator[Violation]:
    """Yields victims outside the lowest fence around the ask."""
    fence = find_fence(case)
    for victim in case.victims:
        if fence not in path_of(victim.queue):
            yield Violation(Law.FENCE, f"{victim.key} in {victim.queue.path} is outside {fence.path}")


def find_fence(case: Case) -> Queue:
    """Returns the lowest queue on the ask's path that is the root, is fenced, or would end above its effective max
    (preemption.md B.2)."""
    for at, queue in enumerate(case.ask_path):
        if queue.parent is None or queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return queue
        for t, asked in case.demand.items():
            ceilings = [max(above.max[t], expected_usage(above, t)) for above in case.ask_path[at:-1] if t in above.max]
            if ceilings and expected_usage(queue, t) + asked > min(ceilings):
                return queue
    raise AssertionError("a path ends at the root")


def _spoken_for(case: _Case, t: int, *, by_age: bool = True) -> int:
    """Returns how much of type *t* other asks have claimed on the node, by a required node, by preemption or by age.

    Without *by_age*, only claims that come before a new one count. An ask that is held there while the shim is asked
    counts as running.
    """
    node = case.plan.node
    if node.claims is None:
        return 0
    others = [r for r in node.reservations.values() if r.ask is not case.ask and r.ask.held_on is not node]
    return sum(r.ask.shape.amounts.get(t, 0) for r in others if by_age or not r.comes_last)


def _lacks_room(case: _Case) -> bool:
    return any(case.available[t] < asked for t, asked in case.demand.items())


def check_gangs(case: Case) -> Iterator[Violation]:
    """Yields gangs that would be left with fewer members than they need."""
    return whole_gangs.check(case.victims)


def _on_node(case: _Case) -> Iterator[Violation]:
    """Yields victims on other nodes although the node lacks room. Of a gang that leaves as a whole, one member has to
    be on the node."""
    if _lacks_room(case):
        whole = whole_gangs.leave_whole(case.victims)
        there = {whole[victim] for victim in case.victims if victim in whole and victim.node is case.plan.node}
        for victim in case.victims:
            if victim.node is not case.plan.node and whole.get(victim) not in there:
                where = "nowhere" if victim.node is None else victim.node.node_id
                yield Violation(Law.ON_NODE, f"{victim.key} runs on {where}, {case.plan.node.node_id} lacks room")


def _check_sufficient(case: _Case) -> Iterator[Violation]:
    """Yields breaches unless the ask, once all victims are gone, fits on the node beside the claims of others."""
    node = case.plan.node
    for t, asked in case.demand.items():
        free = case.available[t] + sum(v.shape.amounts.get(t, 0) for v in case.victims if v.node is node)
        if free < asked:
            detail = f"{node.node_id} would have {case.names[t]}={free} for {asked}"
            yield Violation(Law.SUFFICIENT, detail)


def check_maxima(case: Case) -> Iterator[Violation]:
    """Yields maxima on the path that the ask would exceed once all victims are gone.

    A queue that is above its max already may stay above it, but must not hold more than before.
    """
    for t, asked in case.demand.items():
        for queue in case.ask_path[:-1]:
            most = queue.max.get(t)
            if most is not None:
                before = expected_usage(queue, t)
                after = before + asked - case.out_of(queue, t)
                if after > max(most, before):
                    detail = f"{queue.path} would reach {case.names[t]}={after} of {most}"
                    yield Violation(Law.SUFFICIENT, detail)


def _check_devices(case: _Case) -> Iterator[Violation]:
    """Yields a breach unless the devices suffice that are free on the node once all victims are gone."""
    plan = case.plan
    if not freed_devices.leaves_enough(plan.node, case.ask, plan.victims, case.stuck):
        yield Violation(Law.SUFFICIENT, f"{plan.node.node_id} would not have the devices that the ask wants")


def _check_domain(case: _Case) -> Iterator[Violation]:
    """Yields a breach if the group of the ask requires a domain and the node is in none, or in none of those in which
    others of the group run or hold room. They may be in several if some of them do not require one."""
    spec, node = case.ask.spec, case.plan.node
    request = spec.topology
    if request is None or request.wish != Wish.REQUIRED:
        return
    own = _name_domain(node, request.level)
    if not own:
        yield Violation(Law.NODE_USABLE, f"{spec.key} needs a {request.level}, and {node.node_id} is in none")
    if request.slice_size:
        return
    application = case.ask.application
    theirs: dict[tuple[str, ...], str] = {}
    for other in (*application.allocations.values(), *application.asks.values()):
        reservation = other.reservation
        where = other.node or other.held_on or (reservation.node if reservation is not None else None)
        if other is case.ask or where is None or not stand_together(other.spec, spec):
            continue
        domain = _name_domain(where, request.level)
        if domain:
            theirs.setdefault(domain, other.spec.key)
    if theirs and own not in theirs:
        others = ", ".join(f"{key} of its group is in {'/'.join(domain)}" for domain, key in theirs.items())
        yield Violation(Law.NODE_USABLE, f"{spec.key} would be in {'/'.join(own)}, {others}")


def _name_domain(node: Node, level: str) -> tuple[str, ...]:
    """Returns the path of the domain of *node* at *level*; empty: it is in none."""
    return next((domain.path for domain in node.domains if domain.level.name == level), ())


def _is_needed_for_devices(case: _Case, victim: Allocation) -> bool:
    """Tells whether the devices would not suffice without *victim*, or without its gang if that leaves as a whole."""
    whole = whole_gangs.leave_whole(case.victims)
    own = {victim, *(other for other, gang in whole.items() if victim in whole and gang is whole[victim])}
    return not freed_devices.leaves_enough(
        case.plan.node, case.ask, [other for other in case.victims if other not in own], case.stuck
    )


def _check_minimal(case: _Case) -> Iterator[Violation]:
    """Yields victims that the plan does not need, unless a predicate asked for more. A plan without victims is a breach
    if the node has room now, because it is meant for room that is about to become free."""
    if not case.victims:
        room_now = all(case.plan.node.open[t] >= asked for t, asked in case.demand.items())
        if room_now and case.plan.node.has_devices(case.ask.shape.devices, case.ask):
            yield Violation(Law.MINIMAL, "nobody has to go, and the node has room now")
        return
    if case.plan.extended:
        return
    victims = case.victims
    if case.ask.shape.devices is not None:
        victims = tuple(victim for victim in victims if not _is_needed_for_devices(case, victim))
    needs, _ = whole_gangs.merge_gangs(_list_needs(case), case.victims)
    _, keys = whole_gangs.merge_gangs([], victims)
    yield from overkill.check(needs, keys)


def _check_mildest(case: _Case) -> Iterator[Violation]:
    """Yields a breach if the plain walk over the node ends with milder victims.

    Not judged: victims on other nodes, what a predicate or devices asked for, and victims in the order of their prices,
    which depend on the time.
    """
    plan, view = case.plan, case.view
    odd = plan.extended or case.ask.shape.devices is not None or view.victim_order != BY_IMPORTANCE
    if not case.victims or odd or not _lacks_room(case):
        return
    order = victim_order(find_fence(case))
    parcels = order_of_parcels(case.victims, order)
    here = list_milder(plan.node, case.victims, max(parcels.values()), order, plan.spared)
    if here:
        whole = whole_gangs.leave_minimum(case.victims)
        tasks = {task.key: task for task in (*here, *case.victims) if task not in whole}
        needs = _list_needs(_Case(view, replace(plan, victims=tuple(tasks.values()))))
        orders = {key: order(task) for key, task in tasks.items()}
        yield from plain_walk.check(needs, orders, admission_of(view, case.ask, tasks), parcels)


_PLACED: Final = AskPlace.PLACED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every task on a node is
looked at."""
BY_IMPORTANCE: Final = "default"
"""The order of victims by priority and age, the only one that does not depend on the time."""

VictimOrder = Callable[[Allocation], plain_walk.Order]


def victim_order(fence: Queue) -> VictimOrder:
    """Returns what gives the sort key of a victim (preemption.md B.5): its class, with gangs that leave as a whole
    behind single tasks, its priority as adjusted at *fence*, idle placeholders before others, the newest first."""

    adjusted: dict[tuple[Queue, int], int] = {}

    def order(victim: Allocation) -> plain_walk.Order:
        spec, application = victim.spec, victim.application
        place = application.queue, spec.priority
        priority = adjusted.get(place)
        if priority is None:
            priority = adjusted[place] = _priority_at(*place, fence)
        return (
            spec.originator, not spec.allow_preempt_self, False, priority, not spec.placeholder, -victim.created_ns,
            application.preempted_count, spec.key,
        )  # fmt: skip

    return order


def order_of_parcels(victims: Sequence[Allocation], order: VictimOrder) -> dict[str, plain_walk.Order]:
    """Returns the sort keys of *victims* as they leave, by name; a gang that leaves as a whole has the worst of its
    members."""
    whole = whole_gangs.leave_minimum(victims)
    found = {victim.key: order(victim) for victim in victims if victim not in whole}
    for application in dict.fromkeys(whole.values()):
        members = [order(victim) for victim in victims if whole.get(victim) is application]
        worst = [max(member[at] for member in members) for at in range(len(members[0]))]
        found[f"gang {application.application_id}"] = (*worst[:2], True, *worst[3:])
    return found


def list_milder(
    node: Node,
    victims: Sequence[Allocation],
    worst: plain_walk.Order,
    order: VictimOrder,
    spared: Spared = NOBODY_SPARED,
) -> list[Allocation]:
    """Returns the tasks on *node* that are milder than *worst*, without *victims* and those that are *spared*."""
    level, leaving = 2 * worst[0] + worst[1], set(victims)
    return [
        task
        for task in node.allocations.values()
        if task.standing & 7 <= level
        and task.place is _PLACED
        and task not in leaving
        and order(task) < worst
        and node.node_id not in spared.nodes
        and task.queue.path not in spared.queues
        and task.application.application_id not in spared.applications
    ]


def admission_of(
    view: PartitionView, ask: Allocation, tasks: Mapping[str, Allocation], besides: Sequence[Allocation] = ()
) -> Callable[[Sequence[str]], bool]:
    """Returns what tells whether laws 2 to 7 let some of *tasks*, by key, go for *ask* together, each single one with
    *besides*, who leave anyway."""
    alone: dict[tuple[Queue, Application, Shape, int], bool] = {}

    def may_go(keys: Sequence[str]) -> bool:
        *before, last = [tasks[key] for key in keys]
        kind = last.queue, last.application, last.shape, last.priority
        if kind not in alone:
            case = Case(view, ask, (last,))
            rules = (check_eligible, check_law_2, check_law_3, check_law_5, check_law_6, check_law_7)
            alone[kind] = not any(True for rule in rules for _ in rule(case))
        together = (*besides, *before, last)
        if not alone[kind] or not whole_gangs.keep_minimum(together):
            return False
        return len(together) == 1 or not any(check_law_2(Case(view, ask, together)))

    return may_go


def _list_needs(case: _Case) -> list[overkill.Need]:
    """Returns the amounts that have to be freed on the node and in each queue, with the contribution of each victim."""
    node = case.plan.node
    found = list_queue_needs(case)
    for t, asked in case.demand.items():
        here = {v.key: v.shape.amounts.get(t, 0) for v in case.victims if v.node is node}
        mine = may_be_taken_for(case, t, case.victims)
        found.append(overkill.Need(f"{case.names[t]} on {node.node_id}", asked - case.available[t], here, mine))
    return found


def list_queue_needs(case: Case) -> list[overkill.Need]:
    """Returns the amounts that have to be freed in queues and guarantees, with the contribution of each victim."""
    found: list[overkill.Need] = []
    entitling = case.entitling_queues()
    for t, asked in case.demand.items():
        for queue in case.ask_path:
            before = expected_usage(queue, t)
            needed = 0
            if t in queue.max and queue.parent is not None:
                needed = before + asked - max(queue.max[t], before)
            if entitling.get(t) is queue and not _is_under(case, queue, t):
                needed = max(needed, before + asked - max(queue.guaranteed[t], before))
            if needed > 0:
                below = {v.key: v.shape.amounts.get(t, 0) for v in case.victims if queue in path_of(v.queue)}
                mine = may_be_taken_for(case, t, case.victims)
                found.append(overkill.Need(f"{case.names[t]} in {queue.path}", needed, below, mine))
    return found


def may_be_taken_for(case: Case, t: int, victims: Collection[Allocation]) -> frozenset[str]:
    """Returns the keys of those of *victims* that may be taken for type *t*: where no guarantee on the ask's path
    covers it, only those from a queue with a guarantee of that type; what others free of it counts as well."""
    owed = t in case.entitling_queues()
    return frozenset(victim.key for victim in victims if owed or _declares_share(case, victim, t))


def _declares_share(case: Case, victim: Allocation, t: int) -> bool:
    """Tells whether a queue of *victim*, below the lowest queue that it shares with the ask, has a guarantee of type
    *t*, which law 2 protects."""
    common = case.common_queue(victim)
    return any(t in queue.guaranteed for queue in path_of(victim.queue) if queue.depth > common.depth)


def _is_under(case: Case, queue: Queue, t: int) -> bool:
    """Tells whether the guarantee of *queue* entitles the ask to type *t* without a swap."""
    held, guaranteed = expected_usage(queue, t), queue.guaranteed[t]
    return held < guaranteed if case.mode is GuaranteeMode.REACH else held + case.demand[t] <= guaranteed


def _node_usable(case: _Case) -> Iterator[Violation]:
    """Yields a breach unless the node is schedulable and the claims there do not exceed what will be free."""
    node = case.plan.node
    if not node.schedulable:
        yield Violation(Law.NODE_USABLE, f"{node.node_id} is not schedulable")
    if node.node_id in (case.ask.refused or ()):
        yield Violation(Law.NODE_USABLE, f"the shim has refused {case.ask.key} on {node.node_id}")
    for t in case.demand:
        claimed = _spoken_for(case, t, by_age=False)
        if claimed > 0 and claimed > case.will_be_free[t]:
            yield Violation(Law.NODE_USABLE, f"{node.node_id} is claimed for {case.names[t]}={claimed} already")
