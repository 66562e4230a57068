"""The laws for a gang that preempts as a unit (preemption.md B.11).

The gang counts as one ask of the size of all its members, including those that find room; on the nodes each member
counts by itself. This module follows the text of the rules, and does not depend on how a plan is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from kornel.core.domain.resources import NOTHING
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.domain.topology import Wish
from kornel.core.laws import freed_devices, overkill, plain_walk, whole_gangs
from kornel.core.laws.limits import check_limits
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.model.gang_units import unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.guarantee.laws import (
    BY_IMPORTANCE,
    Case,
    admission_of,
    check_eligible,
    check_gangs,
    check_law_2,
    check_law_3,
    check_law_4,
    check_law_5,
    check_law_6,
    check_law_7,
    check_maxima,
    find_fence,
    list_milder,
    list_queue_needs,
    may_be_taken_for,
    victim_order,
)
from kornel.core.preemption.plan import GangPlan


def check(view: PartitionView, plan: GangPlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing."""
    case = _GangCase(view, plan)
    return tuple(
        violation
        for rule in (
            _check_whole, check_eligible, check_law_2, check_law_3, check_law_4, check_law_5, check_law_6, check_law_7,
            check_gangs, _check_places, _check_devices, _check_domains, check_maxima, _check_minimal,
            _check_mildest,
        )
        for violation in rule(case)
    ) + tuple(check_limits([place.ask for place in plan.places], view.types.names))  # fmt: skip


class _GangCase(Case):
    """A plan for a unit, judged as one ask with the size of all members and the priority of the least important one."""

    def __init__(self, view: PartitionView, plan: GangPlan) -> None:
        super().__init__(view, _as_one_ask(plan), plan.victims)
        self.mode = GuaranteeMode.STRICT
        self.plan = plan
        self.stuck = view.given_up
        self.on_node: dict[Node, dict[int, int]] = {}
        """By node, the amounts by type of the members that are to run there."""
        for place in plan.places:
            wanted = self.on_node.setdefault(place.node, {})
            for t, amount in place.ask.shape.pairs:
                wanted[t] = wanted.get(t, 0) + amount

    def find_room(self, node: Node, t: int) -> int:
        """Returns the amount of type *t* that the gang finds on *node* without its own victims: free amounts and those
        of earlier victims, without the amounts that others have claimed there."""
        room = node.free[t]
        for allocation in node.allocations.values():
            if allocation.preempted and allocation not in self.stuck:
                room += allocation.shape.amounts.get(t, 0)
        return room - min(self.spoken_for(node, t), max(0, room))

    def spoken_for(self, node: Node, t: int, *, by_age: bool = True) -> int:
        """Returns the amount of type *t* that asks other than these members have reserved on *node*."""
        mine = set(self.plan.members)
        others = [r for r in node.reservations.values() if r.ask not in mine and r.ask.held_on is not node]
        return sum(r.ask.shape.amounts.get(t, 0) for r in others if by_age or not r.comes_last)

    def freed_on(self, node: Node, t: int) -> dict[str, int]:
        """Returns the amount of type *t* that each victim on *node* frees, by key."""
        return {v.key: v.shape.amounts.get(t, 0) for v in self.victims if v.node is node}


def _as_one_ask(plan: GangPlan) -> Allocation:
    """Returns an ask that represents all members of *plan*; it belongs to no partition."""
    total: dict[int, int] = {}
    for ask in plan.members:
        for t, amount in ask.shape.pairs:
            total[t] = total.get(t, 0) + amount
    first = plan.places[0].ask
    spec = first.spec._replace(priority=min(ask.priority for ask in plan.members))
    return Allocation(spec, plan.application, Shape(NOTHING, tuple(sorted(total.items()))), 0, 0)


def _check_whole(case: _GangCase) -> Iterator[Violation]:
    """Yields task groups for whose minimum the places of the plan, together with those that the gang has already, are
    too few.

    Placeholders that are gone count no more (scheduling.md 10.7), so no more places are needed than placeholders wait.
    """
    plan = case.plan
    application = plan.application
    unit_id = unit_of(plan.members[0])
    members = [ask for ask in application.asks.values() if unit_id.includes_ask(ask)]
    keys = [ask.key for ask in plan.members]
    if len(set(keys)) < len(keys):
        yield Violation(Law.UNIT_WHOLE, "a member has two places")
    if any(not unit_id.includes_ask(ask) or not ask.pending for ask in plan.members):
        yield Violation(Law.UNIT_WHOLE, f"somebody else than a waiting member of {application.application_id}")
    chosen = set(plan.members)
    holding = [ask for ask in members if ask in chosen or (plan.mends and ask.reservation is not None)]
    for name, waiting in Counter(ask.spec.task_group for ask in members).items():
        there = sum(ask.spec.task_group == name for ask in holding)
        least = min(waiting, whole_gangs.count_together(application, name))
        if there < least:
            yield Violation(Law.UNIT_WHOLE, f"places for {there} of {least} members of {name}")


def _check_places(case: _GangCase) -> Iterator[Violation]:
    """Yields nodes that do not accept the members that are to run there, or will not have room for all of them."""
    for place in case.plan.places:
        ask, node = place.ask, place.node
        if ask.spec.required_node not in ("", node.node_id):
            yield Violation(Law.NODE_USABLE, f"{ask.key} must not run on {node.node_id}")
        if node.node_id in (ask.refused or ()):
            yield Violation(Law.NODE_USABLE, f"the shim has refused {ask.key} on {node.node_id}")
    for node, wanted in case.on_node.items():
        if not node.schedulable:
            yield Violation(Law.NODE_USABLE, f"{node.node_id} is not schedulable")
        for t, amount in wanted.items():
            claimed = case.spoken_for(node, t, by_age=False)
            leaving = [a for a in node.allocations.values() if a.preempted and a not in case.stuck]
            if claimed > 0 and claimed > node.free[t] + sum(a.shape.amounts.get(t, 0) for a in leaving):
                yield Violation(Law.NODE_USABLE, f"{node.node_id} is claimed for {case.names[t]}={claimed} already")
            there = case.find_room(node, t) + sum(case.freed_on(node, t).values())
            if there < amount:
                yield Violation(Law.SUFFICIENT, f"{node.node_id} would have {case.names[t]}={there} for {amount}")


def _check_devices(case: _GangCase) -> Iterator[Violation]:
    """Yields devices that the plan gives to members and that will not be left for all of them."""
    for node, members in _devices_by_node(case).items():
        named = {place.ask: place.devices for place in case.plan.places if place.ask in members}
        for fault in freed_devices.list_faults(node, named, case.victims, case.stuck):
            yield Violation(Law.SUFFICIENT, fault)


def _devices_by_node(case: _GangCase) -> dict[Node, list[Allocation]]:
    """Returns the members that want devices, by the node on which they are to run."""
    found: dict[Node, list[Allocation]] = {}
    for place in case.plan.places:
        if place.ask.shape.devices is not None:
            found.setdefault(place.node, []).append(place.ask)
    return found


def _needed_for_devices(case: _GangCase) -> set[str]:
    """Returns the keys of victims without which the members would not find devices, each victim together with its gang
    if that leaves as a whole. Victims on nodes with too many ways to share devices are given the benefit of the
    doubt."""
    needed: set[str] = set()
    whole = whole_gangs.leave_whole(case.victims)
    for node, members in _devices_by_node(case).items():
        # Whoever leaves other nodes leaves no device here, except as a member of a gang that is here too.
        here = {v for v in case.victims if v.node is node}
        gangs = [whole[v] for v in here if v in whole]
        for victim in case.victims:
            gang = whole.get(victim)
            if victim not in here and not any(gang is other for other in gangs):
                continue
            rest = [v for v in case.victims if v is not victim and (gang is None or whole.get(v) is not gang)]
            if not freed_devices.could_share(node, members, rest, case.stuck):
                needed.add(victim.key)
    return needed


def _check_domains(case: _GangCase) -> Iterator[Violation]:
    """Yields task groups that require a domain and would run in more domains than their slices need."""
    places = {place.ask: place.node for place in case.plan.places}
    groups = {(ask.spec.task_group, ask.spec.topology) for ask in places}
    for name, request in groups:
        if request is None or request.wish != Wish.REQUIRED:
            continue
        nodes = [node for ask, node in places.items() if (ask.spec.task_group, ask.spec.topology) == (name, request)]
        application = case.plan.application
        for other in (*application.allocations.values(), *application.asks.values()):
            where = other.node or (other.reservation.node if other.reservation is not None else None)
            # Real asks need not repeat what their placeholders say.
            says = not other.spec.placeholder or other.spec.topology == request
            if where is not None and other not in places and other.spec.task_group == name and says:
                nodes.append(where)
        standing: dict[tuple[str, ...] | None, int] = {}
        for node in nodes:
            path = next((domain.path for domain in node.domains if domain.level.name == request.level), None)
            standing[path] = standing.get(path, 0) + 1
        size = request.slice_size or len(nodes)
        slices = sum(-(-count // size) for count in standing.values())
        if None in standing:
            yield Violation(Law.NODE_USABLE, f"{name} needs a {request.level}, and a node stands in none")
        elif slices > -(-len(nodes) // size):
            yield Violation(
                Law.NODE_USABLE, f"{name} would stand in {len(standing)} domains of the level {request.level}"
            )


def _check_minimal(case: _GangCase) -> Iterator[Violation]:
    """Yields victims without which all members would still have their places."""
    everywhere = [need for node in case.on_node for need in _list_node_needs(case, node, case.victims)]
    needs, keys = whole_gangs.merge_gangs([*everywhere, *list_queue_needs(case)], case.victims)
    needed = _needed_for_devices(case)
    if needed:
        _, spare = whole_gangs.merge_gangs([], [victim for victim in case.victims if victim.key not in needed])
        keys = [key for key in keys if key in spare]
    yield from overkill.check(needs, keys)


def _check_mildest(case: _GangCase) -> Iterator[Violation]:
    """Yields nodes on which the plain walk for the members there ends with milder victims.

    Not judged: victims that leave for a queue or a guarantee, for devices or with their gangs, and those in the order
    of their prices.
    """
    odd = case.view.victim_order != BY_IMPORTANCE or bool(_devices_by_node(case) or list_queue_needs(case))
    if odd or whole_gangs.leave_minimum(case.victims):
        return
    order = victim_order(find_fence(case))
    for node in case.on_node:
        victims = {victim.key: order(victim) for victim in case.victims if victim.node is node}
        milder = list_milder(node, case.victims, max(victims.values()), order) if victims else []
        if milder:
            tasks = {task.key: task for task in (*milder, *case.victims) if task.node is node}
            others = [victim for victim in case.victims if victim.node is not node]
            needs = _list_node_needs(case, node, tasks.values())
            orders = {key: order(task) for key, task in tasks.items()}
            yield from plain_walk.check(needs, orders, admission_of(case.view, case.ask, tasks, others), victims)


def _list_node_needs(case: _GangCase, node: Node, victims: Collection[Allocation]) -> list[overkill.Need]:
    """Returns the amounts that have to be freed on *node* for the members there, with what each of *victims* frees."""
    found: list[overkill.Need] = []
    for t in case.demand:
        lack = case.on_node[node].get(t, 0) - case.find_room(node, t)
        freed = {victim.key: victim.shape.amounts.get(t, 0) for victim in victims if victim.node is node}
        found.append(
            overkill.Need(f"{case.names[t]} on {node.node_id}", lack, freed, may_be_taken_for(case, t, victims))
        )
    return found
