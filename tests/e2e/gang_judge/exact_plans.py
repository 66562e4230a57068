"""An exact search for victims of a gang that preempts as a unit, written from the rules (preemption.md A, B.10, B.11).

It tries all sets of victims, the smaller ones first, and for each of them all ways to place the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from tests.e2e.gang_judge.exact_places import Room, find_places, list_places
from tests.e2e.gang_judge.shim_books import Amounts, Application, Books, Task, add_up, is_within, path_of

PLAIN, OPTED_OUT = 0, 1
NOTHING: Final[Mapping[str, Amounts]] = {}


@dataclass(frozen=True)
class Plan:
    """A lawful set of victims. *gangs*: applications that leave as a whole."""

    victims: tuple[Task, ...]
    gangs: frozenset[str]
    opted_out: bool


@dataclass(frozen=True)
class Need:
    """Something that has to leave a node or a queue."""

    place: str
    kind: str
    amount: int
    on_node: bool


@dataclass
class Entitlement:
    """What a unit may preempt for. *refusal*: why not at all."""

    fence: str = "root"
    needs: tuple[Need, ...] = ()
    types: frozenset[str] = frozenset()
    """Types with a guarantee on the path of the asking queue."""
    inherited: bool = False
    refusal: str = ""


def rooms_of(books: Books, held: Mapping[str, Iterable[Task]], victims: Sequence[Task] = ()) -> dict[str, Room]:
    """Returns what open nodes have beside what is *held* there for others, once *victims* have left."""
    rooms = {}
    for name, node in books.nodes.items():
        if node.is_open:
            here = [task for task in victims if task.node == name]
            amounts = books.free(name)
            reserved = add_up(task.size for task in held.get(name, ()))
            amounts = {kind: max(0, amount - reserved.get(kind, 0)) for kind, amount in amounts.items()}
            freed = add_up(task.size for task in here)
            amounts = {kind: amount + freed.get(kind, 0) for kind, amount in amounts.items()}
            rooms[name] = Room(amounts, books.free_devices(name, here), node.devices)
    return rooms


def within_maxima(books: Books, queue: str, size: Amounts, saved: Mapping[str, Amounts] = NOTHING) -> bool:
    """Tells whether every max on the path of *queue* admits *size* beside what others have *saved* in each queue, which
    counts as used (scheduling.md 6)."""
    for path in path_of(queue):
        used, maximum = add_up([books.used(path), saved.get(path, {})]), books.queues[path].maximum
        if any(
            amount and used.get(kind, 0) + amount > maximum[kind] for kind, amount in size.items() if kind in maximum
        ):
            return False
    return True


def find_entitlement(books: Books, application: Application, members: Sequence[Task]) -> Entitlement:
    """Returns what law 4, the fences and the maxima say about a unit (preemption.md A, B.2, B.6, B.11)."""
    total = add_up(task.size for task in members)
    path = path_of(application.queue)
    guarded: dict[str, str] = {}
    for kind in total:
        for queue in path:
            if books.queues[queue].guaranteed.get(kind, 0) > 0:
                guarded[kind] = queue
                break
    if not guarded:
        return Entitlement(refusal="NO_GUARANTEE")
    needs: list[Need] = []
    leaf = application.queue
    own = [kind for kind, queue in guarded.items() if queue == leaf]
    for kind, queue in guarded.items():
        guarantee, held = books.queues[queue].guaranteed[kind], books.used(queue).get(kind, 0)
        if total[kind] > guarantee:
            return Entitlement(refusal="ASK_EXCEEDS_GUARANTEE")
        if held + total[kind] <= guarantee:
            continue
        if queue == leaf or (not own and held > guarantee):
            return Entitlement(refusal="NOT_UNDER_GUARANTEE")
        amount = held + total[kind] - guarantee
        needs.append(Need(queue, kind, min(amount, total[kind]) if own else amount, on_node=False))
    fence = "root"
    for queue in path:
        if books.queues[queue].fence or _exceeds_max(books, queue, total):
            fence = queue
            break
    if fence == leaf:
        return Entitlement(refusal="FENCED_AT_LEAF")
    for queue in path_of(fence) if fence != "root" else []:
        used, maximum = books.used(queue), books.queues[queue].maximum
        for kind, amount in total.items():
            if kind in maximum and (over := used.get(kind, 0) + amount - maximum[kind]) > 0:
                needs.append(Need(queue, kind, min(amount, over), on_node=False))
    return Entitlement(fence, tuple(needs), frozenset(guarded))


def _exceeds_max(books: Books, queue: str, total: Amounts) -> bool:
    used = books.used(queue)
    for kind, amount in total.items():
        bounds = [
            max(books.queues[above].maximum[kind], books.used(above).get(kind, 0))
            for above in path_of(queue)
            if kind in books.queues[above].maximum
        ]
        if bounds and used.get(kind, 0) + amount > min(bounds):
            return True
    return False


def common_queue(one: str, other: str) -> str:
    """Returns the lowest queue that both are in."""
    for queue in path_of(one):
        if is_within(other, queue):
            return queue
    return "root"


def below_common(victim: str, asking: str) -> list[str]:
    """Returns the queues on the path of *victim* that *asking* is not in."""
    return [queue for queue in path_of(victim) if not is_within(asking, queue)]


def list_candidates(
    books: Books, application: Application, members: Sequence[Task], entitlement: Entitlement
) -> list[Task]:
    """Returns all tasks that may leave for the unit, before law 2 and gangs are looked at."""
    total = add_up(task.size for task in members)
    least = min(task.ask.priority for task in members)
    found = []
    for other in books.applications.values():
        if other.name == application.name or other.queue == application.queue or books.queues[other.queue].disabled:
            continue
        if entitlement.fence != "root" and not is_within(other.queue, entitlement.fence):
            continue
        below = below_common(other.queue, application.queue)
        common = common_queue(application.queue, other.queue)
        # Nobody inherits a guarantee against queues that have none of their own.
        inherits = not any(
            books.queues[queue].guaranteed.get(kind, 0) > 0
            for queue in path_of(application.queue)
            if queue != common and not is_within(common, queue)
            for kind in total
        )
        for task in other.staying():
            if task.ask.priority > least or not (task.size.keys() & total.keys()):
                continue
            if inherits and not any(
                books.queues[queue].guaranteed.get(kind, 0) > 0 and task.size.get(kind, 0) > 0
                for queue in below
                for kind in total
            ):
                continue
            found.append(task)
    return found


def keeps_guarantees(books: Books, asking: str, total: Amounts, victims: Sequence[Task]) -> bool:
    """Tells whether no queue ends below its guarantee (law 2)."""
    lost: dict[str, list[Task]] = {}
    for task in victims:
        for queue in path_of(books.applications[task.ask.application_id].queue):
            lost.setdefault(queue, []).append(task)
    for queue, here in lost.items():
        gone, used = add_up(task.size for task in here), net_of(books, queue)
        for kind, guarantee in books.queues[queue].guaranteed.items():
            left = used.get(kind, 0) - gone.get(kind, 0)
            if is_within(asking, queue):
                if left + total.get(kind, 0) < min(guarantee, used.get(kind, 0)):
                    return False
            elif gone.get(kind, 0) > 0 and left < guarantee:
                return False
    return True


def net_of(books: Books, queue: str) -> dict[str, int]:
    return add_up(task.size for task in books.below(queue) if task.node and not task.victim_of)


def is_plan(
    books: Books,
    application: Application,
    members: Sequence[Task],
    entitlement: Entitlement,
    victims: Sequence[Task],
    held: Mapping[str, Iterable[Task]],
) -> bool:
    """Tells whether *victims* are lawful, enough, and all needed, for some way to place all *members*."""
    total = add_up(task.size for task in members)
    if not keeps_guarantees(books, application.queue, total, victims):
        return False
    for need in entitlement.needs:
        if _freed(books, need, victims) < need.amount:
            return False
    before, after = rooms_of(books, held), rooms_of(books, held, victims)
    if find_places(books, members, after) is None:
        return False
    size_of = {task.key: task.size for task in members}
    wants_devices = any(task.ask.devices is not None for task in members)
    for places in list_places(books, members, after):
        needs = list(entitlement.needs)
        for name in set(places.values()):
            asked = add_up(size_of[key] for key, node in places.items() if node == name)
            needs += [
                Need(name, kind, lacking, on_node=True)
                for kind, amount in asked.items()
                if (lacking := amount - before[name].amounts.get(kind, 0)) > 0
            ]
        if all(
            _is_needed(books, application, entitlement, needs, victims, unit)
            or (
                wants_devices
                and any(task.devices for task in unit)
                and _may_serve(books, application, entitlement, unit)
            )
            for unit in list_parcels(books, victims)
        ):
            return True
    return False


def list_parcels(books: Books, victims: Sequence[Task]) -> Iterator[list[Task]]:
    """Yields victims one by one, and those who leave as a whole gang together."""
    by_application: dict[str, list[Task]] = {}
    for task in victims:
        by_application.setdefault(task.ask.application_id, []).append(task)
    for name, here in by_application.items():
        application = books.applications[name]
        if application.is_bound and len(here) == len(application.staying()) and breaks_minimum(application, here):
            yield here
        else:
            yield from ([task] for task in here)


def breaks_minimum(application: Application, victims: Sequence[Task]) -> bool:
    """Tells whether a task group would be left with fewer members than its minimum."""
    for group in application.asked:
        gone = sum(task.ask.task_group == group for task in victims)
        here = sum(task.ask.task_group == group for task in application.staying())
        if gone and here - gone < application.minimum_of(group):
            return True
    return False


def _freed(books: Books, need: Need, victims: Iterable[Task]) -> int:
    return sum(
        task.size.get(need.kind, 0)
        for task in victims
        if (
            task.node == need.place
            if need.on_node
            else is_within(books.applications[task.ask.application_id].queue, need.place)
        )
    )


def _may_serve(books: Books, application: Application, entitlement: Entitlement, unit: Sequence[Task]) -> bool:
    """Tells whether *unit* has a type that a guarantee of the asking queue, or of its own, covers."""
    queue = books.applications[unit[0].ask.application_id].queue
    declared = {kind for each in below_common(queue, application.queue) for kind in books.queues[each].guaranteed}
    return any(kind in entitlement.types or kind in declared for task in unit for kind in task.size)


def _is_needed(
    books: Books,
    application: Application,
    entitlement: Entitlement,
    needs: Sequence[Need],
    victims: Sequence[Task],
    unit: Sequence[Task],
) -> bool:
    """Tells whether some need that *unit* may serve is not met without it (law 8)."""
    gone = {task.key for task in unit}
    rest = [task for task in victims if task.key not in gone]
    queue = books.applications[unit[0].ask.application_id].queue
    for need in needs:
        may_serve = need.kind in entitlement.types or any(
            books.queues[each].guaranteed.get(need.kind, 0) > 0 for each in below_common(queue, application.queue)
        )
        if may_serve and _freed(books, need, unit) > 0 and _freed(books, need, rest) < need.amount:
            return True
    return False


def find_plan(
    books: Books,
    application: Application,
    members: Sequence[Task],
    held: Mapping[str, Iterable[Task]],
    *,
    opted_out: bool,
    gangs: bool,
    most: int = 12,
) -> Plan | None:
    """Returns a lawful plan with the fewest victims. *opted_out*, *gangs*: such victims may be among them."""
    entitlement = find_entitlement(books, application, members)
    if entitlement.refusal:
        return None
    candidates = list_candidates(books, application, members, entitlement)
    if not opted_out:
        candidates = [task for task in candidates if task.ask.allow_preempt_self]
    keys = {task.key for task in candidates}
    wholes = [
        other.staying()
        for other in books.applications.values()
        if gangs and other.is_bound and other.staying() and {task.key for task in other.staying()} <= keys
    ]
    for count in range(min(most, len(candidates)) + 1):
        for victims, leaving in _sets(books, candidates, wholes, count):
            if is_plan(books, application, members, entitlement, victims, held):
                return Plan(tuple(victims), leaving, any(not task.ask.allow_preempt_self for task in victims))
    return None


def _sets(
    books: Books, candidates: Sequence[Task], wholes: Sequence[Sequence[Task]], count: int
) -> Iterator[tuple[list[Task], frozenset[str]]]:
    for number in range(len(wholes) + 1):
        for leaving in combinations(wholes, number):
            together = [task for gang in leaving for task in gang]
            names = frozenset(gang[0].ask.application_id for gang in leaving)
            others = [task for task in candidates if task.ask.application_id not in names]
            if count < len(together):
                continue
            for singles in combinations(others, count - len(together)):
                touched = {task.ask.application_id for task in singles}
                if not any(
                    books.applications[name].is_bound
                    and breaks_minimum(
                        books.applications[name], [task for task in singles if task.ask.application_id == name]
                    )
                    for name in touched
                ):
                    yield [*together, *singles], names
