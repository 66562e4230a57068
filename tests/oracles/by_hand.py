"""What may leave when a person says so, from the words of the rule, by trying every set of tasks.

Of named tasks: whoever must run on his node, has not run for long enough, or is a member of a gang that would be left
with too few, stays, and so does whoever a guarantee above him needs. Each of these reasons can be waived. Of an amount
of a queue nobody goes who could stay without less of the amount being free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations


@dataclass(frozen=True)
class Task:
    """A task that runs in leaf *leaf* below a parent. *gang*: the name of its gang; empty: it is in none. Gangs go as a
    whole."""

    name: str
    leaf: str
    size: int
    priority: int = 0
    gang: str = ""
    bound: bool = False
    young: bool = False


@dataclass(frozen=True)
class World:
    """Tasks, and the guarantees of leaves and of their parent, which is called ``p``; 0: none."""

    tasks: tuple[Task, ...]
    guarantees: dict[str, int]

    def held(self, place: str) -> int:
        """What *place* holds."""
        return sum(task.size for task in self.tasks if place in ("p", task.leaf))

    def objections(self, gone: Sequence[Task]) -> set[str]:
        """The laws that *gone* break if they leave together."""
        found = set()
        if any(task.bound for task in gone):
            found.add("required-node")
        if any(task.young for task in gone):
            found.add("run-time")
        if any(other.gang and other.gang == task.gang and other not in gone for task in gone for other in self.tasks):
            found.add("gang")
        for place, least in self.guarantees.items():
            lost = sum(task.size for task in gone if place in ("p", task.leaf))
            if lost and self.held(place) - lost < least:
                found.add("guarantee")
        return found

    def lawful(self, among: Sequence[Task], waived: frozenset[str]) -> Iterator[tuple[Task, ...]]:
        """Every set of *among* that may leave."""
        for gone in chain.from_iterable(combinations(among, size) for size in range(len(among) + 1)):
            if not self.objections(gone) - waived:
                yield gone


def complaints(
    world: World, named: Sequence[Task], gone: Sequence[Task], waived: frozenset[str], amount: int = 0
) -> list[str]:
    """What is wrong with *gone* leaving of *named*; *amount*: what a queue is to give up; 0: all that is named goes."""
    found = [f"{task.name} was not named" for task in gone if task not in named]
    found += [f"{law} is broken" for law in sorted(world.objections(gone) - waived)]
    freed = sum(task.size for task in gone)
    if not amount:
        more = [more for more in world.lawful(named, waived) if set(more) > set(gone)]
        return found + [f"more might go: {[task.name for task in each]}" for each in more[:1]]
    if "need" not in waived:
        # A gang that goes as a whole is one victim.
        whole = {task.gang for task in gone if task.gang} if "gang" not in waived else set()
        units = [[task] for task in gone if task.gang not in whole]
        units += [[task for task in gone if task.gang == gang] for gang in whole]
        for unit in units:
            if freed - sum(task.size for task in unit) >= amount:
                found.append(f"{unit[0].name} is not needed")
    if freed < amount and any(sum(task.size for task in each) >= amount for each in world.lawful(named, waived)):
        found.append("the amount could be freed")
    return found
