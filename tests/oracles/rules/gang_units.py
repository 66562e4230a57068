"""Gangs that ask and lose as units: what is wrong with a plan, and whether there is one at all.

A unit asks for all of its members at once. Everything that holds for one ask of the sum of them, in the queue of the
gang, holds for the unit (preemption.md B.11); only the nodes are counted one by one. Running gangs give up what they
hold beyond their minimum, member by member, or all of it (B.10).

The search is exact: it tries every set of victims, and for each all ways to spread the members over the nodes. It is
meant for clusters of a few nodes and a dozen tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from tests.oracles.rules import guarantee
from tests.oracles.rules.arithmetic import Need, Victims, admits, breaks_guarantee, covers
from tests.oracles.rules.unit_devices import UnitDevices
from tests.oracles.rules.world import Amounts, Books, Task, below, lowest_common

Spread = Mapping[str, str]
"""The node of each member, by its key."""


@dataclass(frozen=True)
class Together:
    """Members that say that they require one domain: all of them, or each slice of ``size`` of them.

    ``domains``: the domain of each node that stands in one.
    """

    members: frozenset[str]
    domains: Mapping[str, str]
    size: int = 0

    def stand_right(self, spread: Spread) -> bool:
        """Tells whether the members, where *spread* puts them, fall into slices each of which is in one domain."""
        left: list[str] = []
        for key in self.members:
            if spread[key] not in self.domains:
                return False
            left.append(self.domains[spread[key]])
        size = self.size or len(left)
        last = len(left) % size
        # Full slices are cut off domain by domain; of what is then left there is one slice at most, the smaller one.
        rest = {domain: left.count(domain) % size for domain in left if left.count(domain) % size}
        return not rest if not last else list(rest.values()) == [last]


@dataclass(frozen=True)
class Unit:
    """The members of a gang that are placed together or not at all."""

    application: str
    queue: str
    members: tuple[Task, ...]
    together: tuple[Together, ...] = ()
    devices: UnitDevices | None = None
    """The devices that members want; ``None``: nobody wants any."""

    def finds_devices(self, spread: Spread, victims: Victims) -> bool:
        """Tells whether all members have devices where *spread* puts them, once *victims* have left."""
        return self.devices is None or self.devices.suffice(spread, {task.key for task, _ in victims})

    def wish_of(self, member: Task) -> object:
        """Returns what *member* wants of devices."""
        return None if self.devices is None else self.devices.wishes.get(member.key)

    def stands_right(self, spread: Spread) -> bool:
        """Tells whether every group that requires a domain has it."""
        return all(group.stand_right(spread) for group in self.together)

    def as_one(self) -> Task:
        """One ask of the sum of all members, as important as the least important of them."""
        amounts: dict[str, int] = {}
        for member in self.members:
            for t, amount in member.amounts.items():
                amounts[t] = amounts.get(t, 0) + amount
        return Task(
            self.application,
            self.application,
            self.queue,
            amounts,
            priority=min(member.priority for member in self.members),
            may_preempt=all(member.may_preempt for member in self.members),
            required_node=next((m.required_node for m in self.members if m.required_node), ""),
        )


@dataclass(frozen=True)
class RunningGang:
    """One task group that runs. Below ``minimum`` members it is of no use."""

    application: str
    members: frozenset[str]
    minimum: int


class Price(NamedTuple):
    """What makes one plan worse than another: originators first, then tasks that opted out, then the number."""

    originator: bool
    opted_out: bool
    count: int


class Parcel(NamedTuple):
    """Victims that go together: one task, or a whole gang."""

    victims: tuple[tuple[Task, str], ...]


def price_of(victims: Victims) -> Price:
    """Returns what *victims* cost."""
    return Price(any(task.originator for task, _ in victims), any(task.opted_out for task, _ in victims), len(victims))


def shared_needs(books: Books, unit: Unit) -> list[Need] | None:
    """Returns what has to be freed wherever the members run; ``None``: law 4 lets the unit not preempt.

    A unit must fit its guarantee as a whole, also where single asks may carry their queue beyond it.
    """
    one = unit.as_one()
    entitled = guarantee.entitlement(replace(books, strict=True), one)
    if entitled.refused or not one.may_preempt or one.required_node:
        return None
    return [*guarantee.quota_needs(books, one), *entitled.needs]


def node_needs(books: Books, unit: Unit, spread: Spread) -> list[Need]:
    """Returns what each node lacks for the members that *spread* puts there."""
    needs = []
    for node in sorted(set(spread.values())):
        wanted: dict[str, int] = {}
        for member in unit.members:
            if spread[member.key] == node:
                for t, amount in member.amounts.items():
                    wanted[t] = wanted.get(t, 0) + amount
        for t, amount in wanted.items():
            lacking = amount - max(0, books.coming(node, t, unit.application))
            if lacking > 0:
                needs.append(Need(t, lacking, node=node))
    return needs


def candidates(books: Books, unit: Unit) -> list[tuple[Task, str]]:
    """Returns all tasks that may go for *unit*, each judged alone and whatever gang it belongs to."""
    one = unit.as_one()
    entitled = guarantee.entitlement(replace(books, strict=True), one)
    return guarantee.candidates(books, one, entitled)


def gang_of(gangs: Sequence[RunningGang], task: Task) -> RunningGang | None:
    """Returns the gang to which *task* belongs."""
    return next((gang for gang in gangs if task.key in gang.members), None)


def mates(books: Books, gangs: Sequence[RunningGang], application: str) -> set[str]:
    """Returns all members of the gangs of *application* that run and were not told to leave."""
    keys = {key for gang in gangs if gang.application == application for key in gang.members}
    return {key for key in keys if key in books.running and key not in books.leaving}


def torn_gang(books: Books, gangs: Sequence[RunningGang], victims: Victims) -> str:
    """Returns the application whose gang loses a part of its minimum; empty: none does (invariant 19)."""
    going = {task.key for task, _ in victims}
    for gang in gangs:
        standing = {key for key in gang.members if key in books.running and key not in books.leaving}
        lost = standing & going
        if not lost or len(standing - going) >= gang.minimum:
            continue
        if not mates(books, gangs, gang.application) <= going:
            return gang.application
    return ""


def goes_below_minimum(books: Books, gangs: Sequence[RunningGang], victims: Victims) -> bool:
    """Tells whether some gang loses more than its surplus."""
    going = {task.key for task, _ in victims}
    for gang in gangs:
        standing = {key for key in gang.members if key in books.running and key not in books.leaving}
        if standing & going and len(standing - going) < gang.minimum:
            return True
    return False


def parcels(books: Books, unit: Unit, gangs: Sequence[RunningGang], *, whole: bool) -> list[Parcel]:
    """Returns what may go together. *whole*: members of gangs go only all at once; else only beyond the minimum."""
    pool = candidates(books, unit)
    able = {task.key for task, _ in pool}
    found: list[Parcel] = []
    seen: set[str] = set()
    for task, node in pool:
        gang = gang_of(gangs, task)
        if gang is None:
            found.append(Parcel(((task, node),)))
            continue
        standing = [key for key in gang.members if key in books.running and key not in books.leaving]
        if len(standing) > gang.minimum:
            found.append(Parcel(((task, node),)))
        if whole and gang.application not in seen:
            seen.add(gang.application)
            together = mates(books, gangs, gang.application)
            if together <= able:
                found.append(Parcel(tuple(books.running[key] for key in sorted(together))))
    return found


def spreads(books: Books, unit: Unit, victims: Victims) -> Iterator[Spread]:
    """Yields all ways to put the members on nodes that have room for them once *victims* have left.

    Members of one size that say the same about domains are alike: their nodes come in one order only.
    """
    freed: dict[tuple[str, str], int] = {}
    for task, node in victims:
        for t, amount in task.amounts.items():
            freed[node, t] = freed.get((node, t), 0) + amount
    types = {t for member in unit.members for t in member.amounts}
    room = {
        node: {t: max(0, books.coming(node, t, unit.application)) + freed.get((node, t), 0) for t in types}
        for node in sorted(books.nodes)
        if not books.nodes[node].drained
    }
    said = {m.key: (str(unit.wish_of(m)), *(m.key in group.members for group in unit.together)) for m in unit.members}
    members = sorted(
        unit.members, key=lambda m: (sorted(m.amounts.items(), reverse=True), said[m.key], m.key), reverse=True
    )
    names = list(room)

    def put(at: int, spread: dict[str, str], first: int) -> Iterator[Spread]:
        if at == len(members):
            if unit.stands_right(spread) and unit.finds_devices(spread, victims):
                yield dict(spread)
            return
        member = members[at]
        for number in range(first, len(names)):
            left = room[names[number]]
            if any(left[t] < amount for t, amount in member.amounts.items()):
                continue
            for t, amount in member.amounts.items():
                left[t] -= amount
            spread[member.key] = names[number]
            following = members[at + 1] if at + 1 < len(members) else member
            alike = following.amounts == member.amounts and said[following.key] == said[member.key]
            yield from put(at + 1, spread, number if alike else 0)
            del spread[member.key]
            for t, amount in member.amounts.items():
                left[t] += amount

    yield from put(0, {}, 0)


def needless(unit: Unit, spread: Spread, chosen: Sequence[Parcel], needs: Sequence[Need]) -> list[str]:
    """Returns the keys of the parcels without which all *needs* would still be met, and all members have devices where
    *spread* puts them."""
    spare = []
    for parcel in chosen:
        rest = [one for other in chosen if other is not parcel for one in other.victims]
        if covers(rest, needs) and unit.finds_devices(spread, rest):
            spare += [task.key for task, _ in parcel.victims]
    return spare


def goes_unguaranteed(
    books: Books, unit: Unit, spread: Spread, chosen: Sequence[Parcel], needs: Sequence[Need]
) -> bool:
    """Tells whether some parcel goes only for types that nobody guarantees the unit, and may not. Whoever is needed for
    devices is needed, but has to have some type that it may go for."""
    one = unit.as_one()
    entitled = guarantee.entitlement(replace(books, strict=True), one)
    promised = [need for need in needs if need.t in (entitled.queues or {})]
    for parcel in chosen:
        rest = [each for other in chosen if other is not parcel for each in other.victims]
        declared = {
            t
            for victim, _ in parcel.victims
            for path in below(victim.queue, lowest_common(victim.queue, one.queue))
            for t in books.queues[path].guaranteed
        }
        has = {t for victim, _ in parcel.victims for t, amount in victim.amounts.items() if amount} & one.amounts.keys()
        if not has & (declared | (entitled.queues or {}).keys()):
            return True
        if not covers(rest, promised) or not unit.finds_devices(spread, rest):
            continue
        goes_for = {need.t for need in needs if not covers(rest, [need])}
        if not goes_for & declared:
            return True
    return False


def as_parcels(books: Books, gangs: Sequence[RunningGang], victims: Victims) -> list[Parcel]:
    """Divides *victims* into tasks that go by themselves and gangs that go as a whole."""
    going = {task.key for task, _ in victims}
    found: list[Parcel] = []
    whole: dict[str, list[tuple[Task, str]]] = {}
    for task, node in victims:
        gang = gang_of(gangs, task)
        if gang is not None:
            standing = {key for key in gang.members if key in books.running and key not in books.leaving}
            if len(standing - going) < gang.minimum:
                whole.setdefault(gang.application, []).append((task, node))
                continue
        found.append(Parcel(((task, node),)))
    return found + [Parcel(tuple(together)) for together in whole.values()]


def complaints(books: Books, unit: Unit, gangs: Sequence[RunningGang], spread: Spread, victims: Victims) -> list[str]:
    """Returns what is wrong with *victims* leaving so that the members may run where *spread* puts them."""
    one = unit.as_one()
    shared = shared_needs(books, unit)
    if shared is None:
        return ["law 4: the gang does not fit what its queue is guaranteed, or may not preempt"]
    entitled = guarantee.entitlement(replace(books, strict=True), one)
    found = []
    for task, _ in victims:
        said = guarantee.objection(books, one, entitled, task)
        if said:
            found.append(f"{said.partition(':')[0] if ':' in said else 'victim'}: {task.key} {said}")
    broken = breaks_guarantee(books, victims, one)
    if broken:
        found.append(f"law 2: {broken} ends below its guarantee")
    torn = torn_gang(books, gangs, victims)
    if torn:
        found.append(f"gang: {torn} loses a part of its minimum")
    if set(spread) != {member.key for member in unit.members}:
        found.append("half: not every member has a place")
    elif not unit.stands_right(spread):
        found.append("domain: members that require one domain stand apart")
    if found:
        return found
    needs = [*node_needs(books, unit, spread), *shared]
    chosen = as_parcels(books, gangs, victims)
    if not covers(victims, needs):
        found.append("too few: victims do not make the room")
    elif not unit.finds_devices(spread, victims):
        found.append("too few: members do not find their devices")
    elif needless(unit, spread, chosen, needs):
        found.append(f"needless: {', '.join(needless(unit, spread, chosen, needs))} could stay")
    elif goes_unguaranteed(books, unit, spread, chosen, needs):
        found.append("unguaranteed type: somebody goes for it alone")
    return found


def could_stay(books: Books, unit: Unit, gangs: Sequence[RunningGang], victims: Victims) -> bool:
    """Tells whether one of *victims*, or a gang that goes as a whole, could stay if the members stood otherwise."""
    chosen = as_parcels(books, gangs, victims)
    for at in range(len(chosen)):
        rest = [*chosen[:at], *chosen[at + 1 :]]
        going = [one for parcel in rest for one in parcel.victims]
        if _lawful_spread(books, unit, gangs, rest, going) is not None:
            return True
    return False


def fits_idle(books: Books, unit: Unit) -> bool:
    """Tells whether all members find room at once without anybody leaving, and every max admits them together."""
    one = unit.as_one()
    return admits(books, one, books.used) and next(spreads(books, unit, ()), None) is not None


def best_plan(books: Books, unit: Unit, gangs: Sequence[RunningGang]) -> tuple[Price, Spread, Victims] | None:
    """Returns the cheapest lawful plan, with its price; ``None``: there is none. No whole gang where one can stay."""
    for whole in (False, True):
        pool = parcels(books, unit, gangs, whole=whole)
        best: tuple[Price, Spread, Victims] | None = None
        for count in range(1, len(pool) + 1):
            for chosen in combinations(pool, count):
                victims = [one for parcel in chosen for one in parcel.victims]
                if len({task.key for task, _ in victims}) < len(victims):
                    continue
                if not whole and goes_below_minimum(books, gangs, victims):
                    continue  # All of a gang is more than its surplus, also where its members are taken one by one.
                price = price_of(victims)
                if best is not None and price >= best[0]:
                    continue
                spread = _lawful_spread(books, unit, gangs, chosen, victims)
                if spread is not None:
                    best = (price, spread, victims)
        if best is not None:
            return best
    return None


def _lawful_spread(
    books: Books, unit: Unit, gangs: Sequence[RunningGang], chosen: Sequence[Parcel], victims: Victims
) -> Spread | None:
    """Returns a way to spread the members for which exactly *chosen* have to go; ``None``: there is none."""
    shared = shared_needs(books, unit)
    if shared is None or not covers(victims, shared):
        return None
    if breaks_guarantee(books, victims, unit.as_one()) or torn_gang(books, gangs, victims):
        return None
    for spread in spreads(books, unit, victims):
        needs = [*node_needs(books, unit, spread), *shared]
        if not needless(unit, spread, chosen, needs) and not goes_unguaranteed(books, unit, spread, chosen, needs):
            return spread
    return None


def amounts_of(members: Sequence[Task]) -> Amounts:
    """Returns the sum of what *members* ask for."""
    total: dict[str, int] = {}
    for member in members:
        for t, amount in member.amounts.items():
            total[t] = total.get(t, 0) + amount
    return total
