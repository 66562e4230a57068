"""An exact search for places of several tasks at once, which tries all ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kornel.shim_client import Devices
from tests.e2e.gang_judge.shim_books import WHOLE, Books, Task


@dataclass
class Room:
    """What a node has for tasks that look for places. *devices*: the free parts of each; *links*: their groups."""

    amounts: dict[str, int]
    devices: dict[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


def slices_of(books: Books, members: Sequence[Task]) -> dict[str, tuple[str, str]]:
    """Returns, for each member that requires a domain, a name of its slice, and the level."""
    found: dict[str, tuple[str, str]] = {}
    counted: dict[str, int] = {}
    for task in members:
        wish = task.ask.topology
        if wish is not None and wish.required:
            group = task.ask.task_group
            number = counted.get(group, 0)
            counted[group] = number + 1
            found[task.key] = (f"{group}/{number // wish.slice_size if wish.slice_size else 0}", wish.required)
    return found


def list_places(books: Books, members: Sequence[Task], rooms: Mapping[str, Room]) -> Iterator[dict[str, str]]:
    """Yields each way to give all *members* a node, by key. Members that nothing distinguishes are not exchanged."""
    slices = slices_of(books, members)
    names = sorted(rooms)
    left = {name: dict(room.amounts) for name, room in rooms.items()}
    places: dict[str, str] = {}
    where: dict[str, tuple[str, ...]] = {}

    def is_equal(one: Task, other: Task) -> bool:
        return (
            dict(one.size) == dict(other.size)
            and one.ask.devices == other.ask.devices
            and slices.get(one.key) == slices.get(other.key)
            and one.ask.task_group == other.ask.task_group
            and all(may_run(books, one, name) == may_run(books, other, name) for name in names)
        )

    def place(at: int) -> Iterator[dict[str, str]]:
        if at == len(members):
            yield dict(places)
            return
        task = members[at]
        first = 0
        if at and is_equal(members[at - 1], task):
            first = names.index(places[members[at - 1].key])
        for name in names[first:]:
            room = left[name]
            if not may_run(books, task, name):
                continue
            if any(room.get(kind, 0) < amount for kind, amount in task.size.items() if amount):
                continue
            part, level = slices.get(task.key, ("", ""))
            entered = False
            if part:
                domain = books.domain(name, level)
                if domain is None or where.get(part, domain) != domain:
                    continue
                entered = part not in where
                where[part] = domain
            here = [other for other in members[:at] if places[other.key] == name] + [task]
            wishes = [other.ask.devices for other in here if other.ask.devices is not None]
            if fit_devices(wishes, rooms[name]):
                for kind, amount in task.size.items():
                    room[kind] = room.get(kind, 0) - amount
                places[task.key] = name
                yield from place(at + 1)
                del places[task.key]
                for kind, amount in task.size.items():
                    room[kind] += amount
            if entered:
                del where[part]

    yield from place(0)


def find_places(books: Books, members: Sequence[Task], rooms: Mapping[str, Room]) -> dict[str, str] | None:
    return next(list_places(books, members, rooms), None)


def count_places(books: Books, members: Sequence[Task], rooms: Mapping[str, Room]) -> int:
    """Returns how many of *members*, which are all equal, find places at most."""
    for count in range(len(members), 0, -1):
        if find_places(books, members[:count], rooms) is not None:
            return count
    return 0


def may_run(books: Books, task: Task, node: str) -> bool:
    """Tells whether nothing but room keeps *task* off *node*."""
    return books.nodes[node].is_open and (task.key, node) not in books.refused and node not in task.avoided


def fit_devices(wishes: Sequence[Devices], room: Room) -> bool:
    """Tells whether all *wishes* find their devices on one node."""
    if not wishes:
        return True
    first, rest = wishes[0], wishes[1:]
    return any(
        fit_devices(rest, Room(room.amounts, left, room.links)) for left in _take(first, dict(room.devices), room.links)
    )


def _take(wish: Devices, free: dict[str, int], links: Mapping[str, str]) -> Iterator[dict[str, int]]:
    if not wish.count:
        parts = round(wish.fraction * WHOLE)
        for device, left in free.items():
            if left >= parts:
                yield {**free, device: left - parts}
        return
    whole = [device for device, left in free.items() if left >= WHOLE]
    for chosen in choose(whole, wish.count):
        groups = {links.get(device) or f"alone {device}" for device in chosen}
        if not wish.linked or len(groups) == 1:
            yield {**free, **dict.fromkeys(chosen, 0)}


def choose(items: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yields all ways to choose *count* of *items*."""
    if count == 0:
        yield ()
        return
    for at in range(len(items) - count + 1):
        for rest in choose(items[at + 1 :], count - 1):
            yield (items[at], *rest)
