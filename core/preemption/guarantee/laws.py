"""Checks plans of preemption between queues against the seven laws (preemption.md A, A.1, B.2, B.3, B.11), and plans
within a leaf against those of M.

Every plan is checked before it is applied, so :func:`check` only looks at the plan and the queues around it. A gang
that preempts as a unit counts in :mod:`.queue_laws` as one ask of the size of all its members, including those that
find room; on the nodes each member counts by itself. An ask that preempts alone is the same with one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.preemption_kinds import WITHIN
from kornel.core.domain.resources import NOTHING
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.domain.topology import Wish
from kornel.core.laws import eligible, freed_devices, limits, overkill, plain_walk, whole_gangs
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation, stand_together
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.guarantee.queue_laws import (
    Case,
    check_eligible,
    check_law_2,
    check_law_3,
    check_law_4,
    check_law_5,
    check_law_6,
    check_law_7,
    check_maxima,
    check_run_times,
    check_within,
    find_fence,
    list_queue_needs,
    may_be_taken_for,
    priority_at,
)
from kornel.core.preemption.plan import NOBODY_SPARED, GangPlan, PreemptionPlan, Spared


def check(view: PartitionView, plan: PreemptionPlan | GangPlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing.

    The cost is the number of victims times the depth of the tree, plus the number of allocations on the nodes.
    """
    case = _Case(view, plan)
    return tuple(
        violation
        for rule in (
            _check_whole, *_rules_for(inside=case.inside), check_run_times, _check_gangs, _on_node, _check_places,
            _check_devices, _check_domains, check_maxima, _check_minimal, _check_mildest,
        )
        for violation in rule(case)
    ) + tuple(limits.check_limits([p.ask for p in case.places], view.types.names, case.inside_victims))  # fmt: skip


def _rules_for(*, inside: bool) -> tuple[Callable[[Case], Iterator[Violation]], ...]:
    """Returns the laws about queues and victims: those *inside* a leaf, or those between queues."""
    if inside:
        return check_eligible, check_law_2, check_law_3, check_within
    return check_eligible, check_law_2, check_law_3, check_law_4, check_law_5, check_law_6, check_law_7


class _Case(Case):
    """A plan, with the amounts on its nodes. One for a unit is judged as one ask with the size of all members and the
    priority of the least important one."""

    def __init__(self, view: PartitionView, plan: PreemptionPlan | GangPlan) -> None:
        self.gang: Final = plan if isinstance(plan, GangPlan) else None
        """The plan if it is for a unit."""
        ask = plan.ask if isinstance(plan, PreemptionPlan) else _as_one_ask(plan)
        super().__init__(view, ask, plan.victims, inside=plan.kind == WITHIN.name)
        self.places: Final = (plan,) if isinstance(plan, PreemptionPlan) else plan.places
        if self.gang is not None:
            self.mode = GuaranteeMode.STRICT
            self.takers = [(place.ask, place.victims) for place in self.places]
        self.stuck: Final = view.given_up
        self.on_node: Final[dict[Node, dict[int, int]]] = {}
        """By node, the amounts by type of the members that are to run there."""
        for place in self.places:
            wanted = self.on_node.setdefault(place.node, {})
            for t, amount in place.ask.shape.pairs:
                wanted[t] = wanted.get(t, 0) + amount
        self._members: Final = {place.ask for place in self.places}
        least = min(self._members, key=lambda member: (member.spec.priority, member.key))
        members = [ask] if self.gang is None else self.gang.members
        wants_devices = any(member.shape.devices is not None for member in members)
        pairs = None if self.gang is None else ask.shape.pairs
        self._lent: Final = {} if wants_devices else view.find_lent(least, pairs)
        self.will_be_free: Final = {node: self._find_free(node) for node in self.on_node}
        """By node and type, the free amount once earlier victims have left, apart from stuck ones."""
        self.room: Final = {node: self._find_room(node) for node in self.on_node}
        """By node and type, what the members can use without further victims: what will be free and is not claimed by
        others."""

    def _find_free(self, node: Node) -> dict[int, int]:
        found = {t: node.free[t] for t in self.demand}
        for allocation in node.allocations.values():
            if allocation.preempted and allocation not in self.stuck:
                for t, amount in allocation.shape.pairs:
                    if t in found:
                        found[t] += amount
        return found

    def _find_room(self, node: Node) -> dict[int, int]:
        return {t: left - min(self.spoken_for(node, t), max(0, left)) for t, left in self.will_be_free[node].items()}

    def spoken_for(self, node: Node, t: int, *, by_age: bool = True) -> int:
        """Returns how much of type *t* others have claimed on *node*, by a required node, by preemption or by age.

        Without *by_age*, only claims that come before a new one count. An ask that is held there while the shim is
        asked counts as running.
        """
        if node.claims is None:
            return 0
        others = [r for r in node.reservations.values() if r.ask not in self._members and r.ask.held_on is not node]
        return sum(
            r.ask.shape.amounts.get(t, 0)
            for r in others
            if not r.comes_last or (by_age and r not in self._lent.get(node, ()))
        )

    def lenders_on(self, node: Node) -> list[Allocation]:
        """Returns those who save room on *node* that the members may use."""
        return [claim.ask for claim in self._lent.get(node, ())]

    def lacks_room(self, node: Node) -> bool:
        """Tells whether the members that are to run on *node* lack room there."""
        room = self.room[node]
        return any(room[t] < amount for t, amount in self.on_node[node].items())


def _as_one_ask(plan: GangPlan) -> Allocation:
    """Returns an ask that represents all members of *plan*; it belongs to no partition."""
    total: dict[int, int] = {}
    for ask in plan.members:
        for t, amount in ask.shape.pairs:
            total[t] = total.get(t, 0) + amount
    first = plan.places[0].ask
    spec = first.spec._replace(priority=min(ask.priority for ask in plan.members))
    return Allocation(spec, plan.application, Shape(NOTHING, tuple(sorted(total.items()))), 0, 0)


def _check_whole(case: _Case) -> Iterator[Violation]:
    """Yields task groups for whose minimum the places of the plan, together with those that the gang has already, are
    too few.

    Placeholders that are gone count no more (scheduling.md 10.7), so no more places are needed than placeholders wait.
    """
    plan = case.gang
    if plan is None:
        return
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


def _check_gangs(case: Case) -> Iterator[Violation]:
    """Yields gangs that would be left with fewer members than they need."""
    return whole_gangs.check(case.victims)


def _on_node(case: _Case) -> Iterator[Violation]:
    """Yields victims of an ask that preempts alone on other nodes although its node lacks room. Of a gang that leaves
    as a whole, one member has to be on the node."""
    node = case.places[0].node
    if case.gang is None and case.lacks_room(node):
        whole = whole_gangs.leave_whole(case.victims)
        there = {whole[victim] for victim in case.victims if victim in whole and victim.node is node}
        for victim in case.victims:
            if victim.node is not node and whole.get(victim) not in there:
                where = "nowhere" if victim.node is None else victim.node.node_id
                yield Violation(Law.ON_NODE, f"{victim.key} runs on {where}, {node.node_id} lacks room")


def _check_places(case: _Case) -> Iterator[Violation]:
    """Yields nodes that do not accept the members that are to run there, that are claimed for more than will be free,
    or that will not have room for all of them beside the claims of others."""
    for place in case.places:
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
            if claimed > 0 and claimed > case.will_be_free[node][t]:
                yield Violation(Law.NODE_USABLE, f"{node.node_id} is claimed for {case.names[t]}={claimed} already")
            there = case.room[node][t] + sum(v.shape.amounts.get(t, 0) for v in case.victims if v.node is node)
            if there < amount:
                yield Violation(Law.SUFFICIENT, f"{node.node_id} would have {case.names[t]}={there} for {amount}")


def _check_devices(case: _Case) -> Iterator[Violation]:
    """Yields devices that are not free for all members once all victims are gone: those that a plan for a unit names
    for each, or enough of them for an ask that preempts alone."""
    for node, members in _devices_by_node(case).items():
        if case.gang is None:
            if not freed_devices.leaves_enough(node, case.ask, case.victims, case.stuck, case.lenders_on(node)):
                yield Violation(Law.SUFFICIENT, f"{node.node_id} would not have the devices that the ask wants")
            return
        named = {place.ask: place.devices for place in case.places if place.ask in members}
        for fault in freed_devices.list_faults(node, named, case.victims, case.stuck, case.lenders_on(node)):
            yield Violation(Law.SUFFICIENT, fault)


def _devices_by_node(case: _Case) -> dict[Node, list[Allocation]]:
    """Returns the members that want devices, by the node on which they are to run."""
    found: dict[Node, list[Allocation]] = {}
    for place in case.places:
        if place.ask.shape.devices is not None:
            found.setdefault(place.node, []).append(place.ask)
    return found


def _needed_for_devices(case: _Case) -> set[str]:
    """Returns the keys of victims without which the members would not find devices, each victim together with its gang
    if that leaves as a whole. Victims on nodes with too many ways to share devices are given the benefit of the
    doubt."""
    needed: set[str] = set()
    wanting = _devices_by_node(case)
    whole = whole_gangs.leave_whole(case.victims) if wanting else {}
    for node, members in wanting.items():
        # Whoever leaves other nodes leaves no device here, except as a member of a gang that is here too.
        here, lenders = {v for v in case.victims if v.node is node}, case.lenders_on(node)
        gangs = [whole[v] for v in here if v in whole]
        for victim in case.victims:
            gang = whole.get(victim)
            if victim not in here and not any(gang is other for other in gangs):
                continue
            rest = [v for v in case.victims if v is not victim and (gang is None or whole.get(v) is not gang)]
            if case.gang is None:
                enough: bool | None = freed_devices.leaves_enough(node, case.ask, rest, case.stuck, lenders)
            else:
                enough = freed_devices.could_share(node, members, rest, case.stuck, lenders)
            if not enough:
                needed.add(victim.key)
    return needed


def _check_domains(case: _Case) -> Iterator[Violation]:
    """Yields task groups of a gang that require a domain and would run in more domains than their slices need, or what
    :func:`_check_domain` does for an ask that preempts by itself."""
    if case.gang is None:
        yield from _check_domain(case, case.places[0].node)
        return
    places = {place.ask: place.node for place in case.places}
    groups = {(ask.spec.task_group, ask.spec.topology) for ask in places}
    for name, request in groups:
        if request is None or request.wish != Wish.REQUIRED:
            continue
        nodes = [node for ask, node in places.items() if (ask.spec.task_group, ask.spec.topology) == (name, request)]
        application = case.ask.application
        for other in (*application.allocations.values(), *application.asks.values()):
            where = other.node or (other.reservation.node if other.reservation is not None else None)
            # Real asks need not repeat what their placeholders say.
            says = not other.spec.placeholder or other.spec.topology == request
            if where is not None and other not in places and other.spec.task_group == name and says:
                nodes.append(where)
        counts: dict[tuple[str, ...] | None, int] = {}
        for node in nodes:
            path = next((domain.path for domain in node.domains if domain.level.name == request.level), None)
            counts[path] = counts.get(path, 0) + 1
        size = request.slice_size or len(nodes)
        slices = sum(-(-count // size) for count in counts.values())
        if None in counts:
            yield Violation(Law.NODE_USABLE, f"{name} needs a {request.level}, and a node stands in none")
        elif slices > -(-len(nodes) // size):
            yield Violation(
                Law.NODE_USABLE, f"{name} would stand in {len(counts)} domains of the level {request.level}"
            )


def _check_domain(case: _Case, node: Node) -> Iterator[Violation]:
    """Yields a breach if the group of the ask requires a domain and the node is in none, or in none of those in which
    others of the group run or hold room. They may be in several if some of them do not require one."""
    spec = case.ask.spec
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


def _check_minimal(case: _Case) -> Iterator[Violation]:
    """Yields victims without which all members would still have their places, unless a predicate asked for more. An ask
    without victims breaks the law if its node has room now, because it is meant for room that is about to become
    free."""
    alone = case.places[0]
    if case.gang is None and not case.victims:
        room_now = all(alone.node.open[t] >= asked for t, asked in case.demand.items())
        if room_now and alone.node.has_devices(case.ask.shape.devices, case.ask):
            yield Violation(Law.MINIMAL, "nobody has to go, and the node has room now")
        return
    if case.gang is None and alone.extended:
        return
    everywhere = [need for node in case.on_node for need in _list_node_needs(case, node, case.victims)]
    needs, keys = whole_gangs.merge_gangs([*everywhere, *list_queue_needs(case, case.victims)], case.victims)
    needed = _needed_for_devices(case)
    if needed:
        _, spare = whole_gangs.merge_gangs([], [victim for victim in case.victims if victim.key not in needed])
        keys = [key for key in keys if key in spare]
    yield from overkill.check(needs, keys)


def _check_mildest(case: _Case) -> Iterator[Violation]:
    """Yields nodes on which the plain walk for the members there ends with milder victims.

    Not judged: victims on nodes that have room, what a predicate or devices asked for, victims in the order of their
    prices, which depend on the time, and those of a unit that leave for a queue or a guarantee or with their gangs.
    """
    by_price = case.view.victim_order != _BY_IMPORTANCE
    if not case.victims or by_price or any(place.extended for place in case.places) or _devices_by_node(case):
        return
    if any(eligible.list_young(case.view.now_ns, case.victims, case.ask.queue)):
        return  # They go last of all.
    whole = whole_gangs.leave_minimum(case.victims)
    if case.gang is not None and (whole or list_queue_needs(case, case.victims)):
        return
    order = _victim_order(find_fence(case))
    for node in filter(case.lacks_room, case.on_node):
        here = [victim for victim in case.victims if victim.node is node or victim in whole]
        parcels = _order_of_parcels(here, whole, order)
        spared = case.places[0].spared
        milder = _list_milder(node, case.victims, max(parcels.values()), order, spared) if parcels else []
        if milder:
            tasks = {task.key: task for task in (*milder, *here) if task not in whole}
            others = [victim for victim in case.victims if victim not in here]
            needs = [*_list_node_needs(case, node, tasks.values()), *list_queue_needs(case, tasks.values())]
            orders = {key: order(task) for key, task in tasks.items()}
            yield from plain_walk.check(needs, orders, _admission_of(case, tasks, others), parcels)


def _list_node_needs(case: _Case, node: Node, victims: Collection[Allocation]) -> list[overkill.Need]:
    """Returns the amounts that have to be freed on *node* for the members there, with what each of *victims* frees."""
    found: list[overkill.Need] = []
    for t in case.demand:
        lack = case.on_node[node].get(t, 0) - case.room[node][t]
        freed = {victim.key: victim.shape.amounts.get(t, 0) for victim in victims if victim.node is node}
        found.append(
            overkill.Need(f"{case.names[t]} on {node.node_id}", lack, freed, may_be_taken_for(case, t, victims))
        )
    return found


_PLACED: Final = AskPlace.PLACED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every task on a node is
looked at."""
_BY_IMPORTANCE: Final = "default"
"""The order of victims by priority and age, the only one that does not depend on the time."""

_VictimOrder = Callable[[Allocation], plain_walk.Order]


def _victim_order(fence: Queue) -> _VictimOrder:
    """Returns what gives the sort key of a victim (preemption.md B.5): its class, with gangs that leave as a whole
    behind single tasks, its priority as adjusted at *fence*, idle placeholders before others, the newest first."""

    adjusted: dict[tuple[Queue, int], int] = {}

    def order(victim: Allocation) -> plain_walk.Order:
        spec, application = victim.spec, victim.application
        place = application.queue, spec.priority
        priority = adjusted.get(place)
        if priority is None:
            priority = adjusted[place] = priority_at(*place, fence)
        return (
            spec.originator, not spec.allow_preempt_self, False, priority, not spec.placeholder, -victim.created_ns,
            application.preempted_count, spec.key,
        )  # fmt: skip

    return order


def _order_of_parcels(
    victims: Sequence[Allocation], whole: Mapping[Allocation, Application], order: _VictimOrder
) -> dict[str, plain_walk.Order]:
    """Returns the sort keys of *victims* as they leave, by name; a gang that leaves as a *whole* has the worst of its
    members."""
    found = {victim.key: order(victim) for victim in victims if victim not in whole}
    for application in dict.fromkeys(whole.values()):
        members = [order(victim) for victim in victims if whole.get(victim) is application]
        worst = [max(member[at] for member in members) for at in range(len(members[0]))]
        found[f"gang {application.application_id}"] = (*worst[:2], True, *worst[3:])
    return found


def _list_milder(
    node: Node,
    victims: Sequence[Allocation],
    worst: plain_walk.Order,
    order: _VictimOrder,
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


def _admission_of(
    judged: Case, tasks: Mapping[str, Allocation], besides: Sequence[Allocation] = ()
) -> Callable[[Sequence[str]], bool]:
    """Returns what tells whether the laws let some of *tasks*, by key, go together for the ask that is *judged*, each
    single one with *besides*, who leave anyway."""
    view, ask, inside = judged.view, judged.ask, judged.inside
    # Law 4 is about the ask.
    rules = [rule for rule in _rules_for(inside=inside) if rule is not check_law_4]
    alone: dict[tuple[Queue, Application, Shape, int], bool] = {}

    def may_go(keys: Sequence[str]) -> bool:
        *before, last = [tasks[key] for key in keys]
        alike = last.queue, last.application, last.shape, last.priority
        if alike not in alone:
            case = Case(view, ask, (last,), inside=inside)
            alone[alike] = not any(True for rule in rules for _ in rule(case))
        together = (*besides, *before, last)
        is_young = any(eligible.list_young(view.now_ns, (last,), ask.queue))
        if is_young or not alone[alike] or not whole_gangs.keep_minimum(together):
            return False
        return len(together) == 1 or not any(check_law_2(Case(view, ask, together, inside=inside)))

    return may_go
