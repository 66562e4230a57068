"""The laws of the periodic policy: checks by the rules whether victims that are due may be taken.

As in :mod:`kornel.core.laws`, the planner is not consulted. The checks are about the state after the victims of a place
have left: the ask then fits there, and would not if one of them stayed. Rules: preemption.md A, A.0 (row E), A.1 no. 3,
17 and 20, E.8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import PreemptionPolicyKind, PriorityPolicy
from kornel.core.laws import eligible, freed_devices, overkill, plain_walk, whole_gangs
from kornel.core.laws.limits import find_excess
from kornel.core.laws.verdict import Law, Violation, net_of
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape, Vector, book_amounts
from kornel.core.model.users import Account
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.monitor.plan import Choice, DuePlace, MonitorPlan, Place

_FENCE: Final = PreemptionPolicyKind.FENCE
_HIDES: Final = PriorityPolicy.FENCE
"""Kept as constants, because reading a member from its class costs as much as a call, and ten thousand victims are
checked at once."""


def check(view: PartitionView, plan: MonitorPlan) -> tuple[Violation, ...]:
    """Returns every law that *plan*, not yet applied to *view*, would break. Changes nothing."""
    names = view.types.names
    victims = [due.allocation for place in plan.places for due in place.victims]
    found = [*eligible.check_victims(victims), *_check_notified(plan), *_over_guarantee(victims)]
    found += [*whole_gangs.check(victims), *whole_gangs.check_takers(place.ask for place in plan.places)]
    after = _After(view)
    for place in plan.places:
        gone = [due.allocation for due in place.victims]
        if len(gone) < len(victims):
            found += whole_gangs.check(gone)  # Each place may be denied by itself.
        if not _is_waiting(place.ask):
            found.append(Violation(Law.ENTITLED, f"{place.ask.key} does not wait, or may not preempt"))
        if gone and not plan.balance and not _is_entitled(place.ask, gone, after):
            why = f"{place.ask.key}: {place.ask.queue.path} is owed nothing that it asks for"
            found.append(Violation(Law.ENTITLED, why))
        found += eligible.check_run_times(view.now_ns, gone, place.ask)
        for victim in gone:
            broken = _find_trespass(place.ask, victim)
            if broken is not None:
                found.append(broken)
        found += after.judge_place(place, gone, names)
    return tuple(found)


class MildestPlaces:
    """Checks places as a round chooses them: nobody leaves where milder ones would do (A, law 8).

    A place is held against the plain walk over its node. Not judged: victims on other nodes, asks with devices, and
    asks whose guarantee is spent for some type.
    """

    def __init__(self, view: PartitionView) -> None:
        self._view: Final = view
        self._after: Final = _After(view)
        self._counted = 0

    def judge_place(
        self, before: Sequence[Place], place: Place, order: Sequence[Allocation], choice: Choice
    ) -> Iterator[Violation]:
        """Yields a breach if milder ones than the victims of *place* would do after the places *before*. *order*: the
        tasks looked at, the mildest first."""
        ask, node, victims, names = place.ask, place.node, place.victims, self._view.types.names
        whole = whole_gangs.leave_minimum(victims)
        if ask.shape.devices is not None or any(v.node is not node and v not in whole for v in victims):
            return
        if any(eligible.list_young(self._view.now_ns, victims, ask.queue)):
            return  # They go last of all.
        after = self._after
        for other in before[self._counted :]:
            after.judge_place(other, other.victims, names)
        self._counted = len(before)
        if any(after.is_spent(ask, t) for t, _ in ask.shape.pairs):
            return
        tasks = {
            task.key: task
            for task in node.allocations.values()
            if task not in whole and not after.is_gone(task) and not any(eligible.check_victims([task]))
        }
        for bound in whole_gangs.list_minimum_members(list(tasks.values())):
            tasks.pop(bound.key, None)
        at = {task.key: number for number, task in enumerate(order)}

        def order_of(task: Allocation, *, gang: bool = False) -> plain_walk.Order:
            return (task.spec.originator, not task.spec.allow_preempt_self, gang, at.get(task.key, len(at)), task.key)

        going = {victim.key: order_of(victim) for victim in victims if victim not in whole}
        for gang in dict.fromkeys(whole.values()):
            members = [order_of(member, gang=True) for member in victims if whole.get(member) is gang]
            going[f"gang {gang.application_id}"] = max(members)
        refused = False

        def may_go(keys: Sequence[str]) -> bool:
            nonlocal refused
            leaving = [tasks[key] for key in keys]
            refused = refused or not choice.allows_loss(leaving)
            young = any(eligible.list_young(self._view.now_ns, leaving[-1:], ask.queue))
            return not young and _find_trespass(ask, leaving[-1]) is None and after.may_leave(ask, leaving, names)

        needs = list(after.list_needs(ask, node, list(tasks.values()), names, choice.gives_amount))
        broken = list(plain_walk.check(needs, {key: order_of(tasks[key]) for key in tasks}, may_go, going))
        # What the pace or a derived guarantee refuses once is not tried in another way.
        yield from () if refused else broken


class RoundLimit:
    """Checks A.1 no. 17: no round selects more than its part of the cluster, or one place for each type if that is
    more."""

    def __init__(self, names: list[str], limits: Mapping[int, int]) -> None:
        self._names = names
        self._limits = limits
        self._selected: dict[int, int] = {}
        self.broken: list[Violation] = []

    def count_place(self, place: Place) -> None:
        """Count *place*, which is selected after those counted so far."""
        selected, victims = self._selected, place.victims
        if not victims:
            return
        freed: Iterable[tuple[int, int]] = victims[0].shape.pairs
        if len(victims) > 1:
            sums: dict[int, int] = {}
            for victim in victims:
                for t, amount in victim.shape.pairs:
                    sums[t] = sums.get(t, 0) + amount
            freed = sums.items()
        beyond = None
        for t, amount in freed:
            selected[t] = total = selected.get(t, 0) + amount
            if beyond is None and total > self._limits.get(t, 0):
                beyond = t
        if beyond is not None:
            amounts = dict(freed)
            if not any(t in amounts and selected[t] == amounts[t] for t, _ in place.ask.shape.pairs):
                have = f"{self._names[beyond]}={selected[beyond] - amounts[beyond]} of {self._limits.get(beyond, 0)}"
                self.broken.append(Violation(Law.ROUND_LIMIT, f"{place.ask.key} on top of {have}"))


def _check_notified(plan: MonitorPlan) -> Iterator[Violation]:
    """Yields breaches of A.1 no. 17: victims not notified long enough ago, or not selected in every round since."""
    for place in plan.places:
        for due in place.victims:
            age_ns = plan.now_ns - due.notified_ns
            if age_ns < plan.max_wait_ns:
                detail = f"{due.allocation.key} was notified {age_ns} ns ago, due after {plan.max_wait_ns}"
                yield Violation(Law.NOTIFIED, detail)
            rounds = plan.round - due.first_round + 1
            if due.times != rounds:
                detail = f"{due.allocation.key} was selected in {due.times} of {rounds} rounds since its notice"
                yield Violation(Law.NOTIFIED, detail)


def _over_guarantee(victims: Iterable[Allocation]) -> Iterator[Violation]:
    """Yields breaches of law 5: the victim's leaf holds no more than its guarantee of anything that the victim uses."""
    over: dict[tuple[Queue, Shape], bool] = {}
    for victim in victims:
        leaf, shape = victim.application.queue, victim.shape
        is_over = over.get((leaf, shape))
        if is_over is None:
            is_over = any(net_of(leaf, t) > leaf.guaranteed.get(t, 0) for t, _ in shape.pairs)
            over[leaf, shape] = is_over
        if not is_over:
            yield Violation(Law.OVER_GUARANTEE, f"{victim.key}: {leaf.path} is not over its guarantee")


def _is_waiting(ask: Allocation) -> bool:
    """Tells whether *ask* may preempt, waits, and has not preempted yet; only then may victims be taken for it."""
    spec = ask.spec
    pending = ask.node is None and ask.place is not AskPlace.REPLACING and not ask.triggered
    return pending and spec.allow_preempt_other and not spec.required_node


def _is_entitled(ask: Allocation, victims: Sequence[Allocation], after: _After) -> bool:
    """Tells whether law 4 is kept: for some type of the ask, the lowest queue on its path with a guarantee is below the
    guarantee, or its victims free as much as the ask takes.

    A queue without a declaration counts the declarations of its children, so the lowest queue decides.
    """
    leaf = ask.application.queue
    levels = after.limited_above(leaf)
    for t, amount in ask.shape.pairs:
        for level in levels:
            queue = level.queue
            owed = queue.guaranteed.get(t)
            if owed is None:
                continue
            if level.held_amount(t) < owed:
                return True
            freed = sum(victim.shape.amounts.get(t, 0) for victim in victims if queue in victim.queue.lineage())
            if queue is not leaf and freed >= amount:
                return True
            break
    return False


def _find_trespass(ask: Allocation, victim: Allocation) -> Violation | None:
    """Returns a breach of law 3, 6 or 7: the ask has to be at least as important where the queues meet, with no fence
    in between."""
    ours, theirs = ask.application.queue.lineage(), victim.application.queue.lineage()
    if theirs[0] is ours[0]:
        return Violation(Law.OTHER_APPLICATION, f"{victim.key} is in the queue of {ask.key}")
    shown, asked = victim.spec.priority, ask.spec.priority
    for step in theirs:
        if step in ours:
            break
        properties = step.properties
        shown = properties.priority_offset + (0 if properties.priority_policy is _HIDES else shown)
    for step in ours:
        if step in theirs:
            break
        properties = step.properties
        asked = properties.priority_offset + (0 if properties.priority_policy is _HIDES else asked)
        if properties.preemption_policy is _FENCE:
            return Violation(Law.FENCE, f"{victim.key} is outside the fence of {ask.key}")
    if shown > asked:
        return Violation(Law.PRIORITY, f"{victim.key} has priority {shown}, {ask.key} {asked}")
    return None


def _list_units(victims: Sequence[Allocation], gangs: Mapping[Allocation, Application]) -> list[tuple[Allocation, ...]]:
    """Returns *victims* as they leave: each alone, but the members of each of *gangs* together."""
    alone = [(victim,) for victim in victims if victim not in gangs]
    together = [
        tuple(victim for victim in victims if gangs.get(victim) is application)
        for application in dict.fromkeys(gangs.values())
    ]
    return [*alone, *together]


class _Level:
    """One queue with what the places checked so far take from it and add to it, by type."""

    __slots__ = ("come", "gone", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue: Final = queue
        self.gone: Final[Vector] = [0] * len(queue.used)
        self.come: Final[Vector] = [0] * len(queue.used)

    def held_amount(self, t: int) -> int:
        """Returns what the queue holds of type *t*, including what is claimed for it."""
        queue = self.queue
        return queue.used[t] - queue.preempting[t] + queue.claimed[t] + self.come[t] - self.gone[t]


class _After:
    """The state after the places checked so far are carried out, one after the other."""

    def __init__(self, view: PartitionView) -> None:
        self._given_up = view.given_up
        self._free: dict[Node, Vector] = {}
        self._before: dict[Node, Vector] = {}
        """By node with claims, what was free for preemptors before the first of the places."""
        self._levels: dict[Queue, _Level] = {}
        self._limited: dict[Queue, tuple[_Level, ...]] = {}
        self._of_account: dict[Account, dict[int, int]] = {}
        self._gone: dict[Node, list[Allocation]] = {}
        """The victims of the places checked so far, by node."""
        self._moved: set[Allocation] = set()
        """The asks whose places have been checked; what they had reserved elsewhere counts as free."""

    def limited_above(self, leaf: Queue) -> tuple[_Level, ...]:
        """Returns the queues on the path of *leaf*, without the root, that have a guarantee or a max."""
        found = self._limited.get(leaf)
        if found is None:
            levels = self._levels
            limited: list[_Level] = []
            for queue in leaf.lineage()[:-1]:
                if queue.guaranteed or queue.max:
                    if queue not in levels:
                        levels[queue] = _Level(queue)
                    limited.append(levels[queue])
            found = self._limited[leaf] = tuple(limited)
        return found

    def is_spent(self, ask: Allocation, t: int) -> bool:
        """Tells whether the lowest queue on the path of *ask* with a guarantee of type *t* has it already."""
        for level in self.limited_above(ask.application.queue):
            owed = level.queue.guaranteed.get(t)
            if owed is not None:
                return level.held_amount(t) >= owed
        return False

    def is_gone(self, task: Allocation) -> bool:
        """Tells whether *task* is a victim of one of the places checked so far."""
        return task.node is not None and task in self._gone.get(task.node, ())

    def list_needs(
        self,
        ask: Allocation,
        node: Node,
        tasks: Sequence[Allocation],
        names: list[str],
        gives: Callable[[Allocation, int], bool],
    ) -> Iterator[overkill.Need]:
        """Yields what has to be freed so that *ask* runs on *node*, with what each of *tasks*, which run there, would
        contribute. *gives* tells whether a task may be taken for a type."""
        free = self._open_to(ask, node)
        for t, amount in ask.shape.pairs:
            gains = {task.key: task.shape.amounts.get(t, 0) for task in tasks}
            mine = frozenset(task.key for task in tasks if gives(task, t))
            yield overkill.Need(f"{names[t]} on {node.node_id}", amount - free[t], gains, mine)
            for level in self.limited_above(ask.application.queue):
                held = level.held_amount(t)
                beyond = held + amount - max(level.queue.max.get(t, held + amount), held)
                inside = {task.key: gains[task.key] for task in tasks if level.queue in task.queue.lineage()}
                yield overkill.Need(f"{names[t]} in {level.queue.path}", beyond, inside, mine)

    def may_leave(self, ask: Allocation, tasks: Sequence[Allocation], names: list[str]) -> bool:
        """Tells whether guarantees and the minimum of gangs let *tasks* leave for *ask* together."""
        gone = [
            (level, t, amount)
            for task in tasks
            for level in self.limited_above(task.queue)
            for t, amount in task.shape.pairs
        ]
        for level, t, amount in gone:
            level.gone[t] += amount
        broken: list[Violation] = []
        self._keep_guarantees(ask, tasks, names, broken)
        for level, t, amount in gone:
            level.gone[t] -= amount
        return not broken and whole_gangs.keep_minimum(tasks)

    def judge_place(self, place: DuePlace | Place, victims: Sequence[Allocation], names: list[str]) -> list[Violation]:
        """Go on to the state after *place*. Returns the laws that it breaks."""
        ask, node, pairs = place.ask, place.node, place.ask.shape.pairs
        found: list[Violation] = []
        ours = self.limited_above(ask.application.queue)
        before: dict[tuple[_Level, int], int] = {}
        for level in ours:
            if level.queue.max:
                before.update({(level, t): level.held_amount(t) for t, _ in pairs if t in level.queue.max})
        free, open_to_it = self._room_on(node), self._open_to(ask, node)
        gangs = whole_gangs.leave_whole(victims) if victims else {}
        with_it = {gangs[victim] for victim in gangs if victim.node is node}
        for victim in victims:
            freed, there = victim.shape.pairs, victim.node
            if there is not None:
                self._gone.setdefault(there, []).append(victim)
            if there is node:
                for t, amount in freed:
                    open_to_it[t] += amount
                if open_to_it is not free:
                    book_amounts(free, freed)
            elif there is not None:
                comes_along = victim in gangs and gangs[victim] in with_it
                if not comes_along and any(open_to_it[t] < amount for t, amount in pairs):
                    found.append(Violation(Law.ON_NODE, f"{victim.key} is not on {node.node_id}"))
                book_amounts(self._room_on(there), freed)
            for level in self.limited_above(victim.application.queue):
                gone = level.gone
                for t, amount in freed:
                    gone[t] += amount
        if victims:
            self._keep_guarantees(ask, victims, names, found)
        for level in ours:
            come = level.come
            for t, amount in pairs:
                come[t] += amount
        if not node.schedulable or (ask.refused is not None and node.node_id in ask.refused):
            found.append(Violation(Law.NODE_USABLE, f"{node.node_id} takes no asks, or was refused for {ask.key}"))
        for t, amount in pairs:
            if open_to_it[t] < amount:
                found.append(Violation(Law.SUFFICIENT, f"{ask.key} does not fit {node.node_id} then"))
        if not self._leaves_devices(ask, node):
            found.append(Violation(Law.SUFFICIENT, f"{node.node_id} would not have the devices that {ask.key} wants"))
        if before or ask.application.accounts:
            found += self._beyond_quota(ask, before)
        for unit in _list_units(victims, gangs):
            if not self._is_needed(unit, pairs, node, open_to_it, before) and self._leaves_devices(ask, node, unit):
                name = unit[0].key if len(unit) == 1 else f"gang {unit[0].application.application_id}"
                found.append(Violation(Law.MINIMAL, f"{ask.key} runs on {node.node_id} without {name} leaving"))
        for t, amount in pairs:
            free[t] -= amount
        if ask.reservation is not None:
            self._moved.add(ask)
        return found

    def _leaves_devices(self, ask: Allocation, node: Node, stays: Collection[Allocation] = ()) -> bool:
        """Tells whether *ask* finds its devices on *node* once the victims counted so far have left, except those in
        *stays*."""
        if ask.shape.devices is None:
            return True
        gone = [victim for victim in self._gone.get(node, ()) if victim not in stays]
        return freed_devices.leaves_enough(node, ask, gone, self._given_up)

    def _keep_guarantees(
        self, ask: Allocation, victims: Sequence[Allocation], names: list[str], found: list[Violation]
    ) -> None:
        """Adds breaches of law 2 to *found*: no queue may end below its guarantee, or further below it if the ask adds
        less than the victims free.

        The *victims* are gone already, and the ask is not added yet.
        """
        judged: set[tuple[_Level, int]] = set()
        for victim in victims:
            for level in self.limited_above(victim.application.queue):
                queue = level.queue
                for t, _ in victim.shape.pairs:
                    guaranteed = queue.guaranteed.get(t)
                    if guaranteed is None:
                        continue
                    net = queue.used[t] - queue.preempting[t]
                    left = net - level.gone[t]
                    if left >= guaranteed or (level, t) in judged:
                        continue
                    judged.add((level, t))
                    if queue in ask.queue.lineage():
                        left += queue.claimed[t] + level.come[t] + ask.shape.amounts.get(t, 0)
                        guaranteed = min(guaranteed, net)
                    if left < guaranteed:
                        detail = f"{queue.path} would end at {names[t]}={left}, below {guaranteed}"
                        found.append(Violation(Law.GUARANTEE_KEPT, detail))

    def _beyond_quota(self, ask: Allocation, before: Mapping[tuple[_Level, int], int]) -> Iterator[Violation]:
        """Yields queues on the path that end above their max (or above their former usage, if that was more), and users
        and groups that end above their limits."""
        for (level, t), held in before.items():
            if level.held_amount(t) > max(level.queue.max[t], held):
                yield Violation(Law.SUFFICIENT, f"{ask.key} would exceed the max of {level.queue.path}")
        for account in ask.accounts:
            planned = self._of_account.setdefault(account, {})
            beside = {t: amount + planned.get(t, 0) for t, amount in enumerate(account.claimed)}
            for _ in find_excess(account, ask.shape.amounts, beside):
                yield Violation(Law.SUFFICIENT, f"{ask.key} would exceed the limit of {account}")
            for t, amount in ask.shape.pairs:
                planned[t] = planned.get(t, 0) + amount

    def _is_needed(
        self,
        unit: Sequence[Allocation],
        wanted: Pairs,
        node: Node,
        open_to_it: Vector,
        before: Mapping[tuple[_Level, int], int],
    ) -> bool:
        """Tells whether *wanted* would lack room, on *node* or in a queue, if all of *unit*, which leave together,
        stayed."""
        leaving: dict[int, int] = {}
        leaving_node: dict[int, int] = {}
        for victim in unit:
            for t, amount in victim.shape.pairs:
                leaving[t] = leaving.get(t, 0) + amount
                if victim.node is node:
                    leaving_node[t] = leaving_node.get(t, 0) + amount
        for t, amount in wanted:
            if t in leaving_node and open_to_it[t] - leaving_node[t] < amount:
                return True
        path = unit[0].queue.lineage()
        return any(
            level.queue in path and t in leaving and level.held_amount(t) + leaving[t] > max(level.queue.max[t], held)
            for (level, t), held in before.items()
        )

    def _open_to(self, ask: Allocation, node: Node) -> Vector:
        """Returns the room on *node* that *ask* may use. Room that is held for asks that have waited long stays held if
        there is any; if there is too little, *ask* has to free its whole amount. What the victims of earlier places
        leave over is open, because the claims of preemptors come before those by age. Without claims on the node, all
        the room may be used."""
        now = self._room_on(node)
        if node.claims is None:
            return now
        room = list(self._before[node])
        own = ask.reservation
        for reservation in node.reservations.values():
            if reservation is own and not reservation.by_age:
                for t, amount in reservation.pairs:
                    room[t] += amount
        aged = [0] * len(room)
        for reservation in node.reservations.values():
            if reservation is not own and reservation.by_age and reservation.ask not in self._moved:
                for t, amount in reservation.pairs:
                    aged[t] += amount
        unheld = [have if have < 0 else max(0, have - kept) for have, kept in zip(room, aged, strict=True)]
        return [have + left - had for have, left, had in zip(unheld, now, self._before[node], strict=True)]

    def _room_on(self, node: Node) -> Vector:
        """Returns the amounts that are free on *node* once its victims have left and their preemptors run there."""
        room = self._free.get(node)
        if room is None:
            room = self._free[node] = list(node.free)
            if node.claims is None:
                return room
            for allocation in node.allocations.values():
                if allocation.preempted and allocation not in self._given_up:
                    for t, amount in allocation.shape.pairs:
                        room[t] += amount
            for reservation in node.reservations.values():
                if not reservation.by_age:
                    for t, amount in reservation.pairs:
                        room[t] -= amount
            self._before[node] = list(room)
        return room
