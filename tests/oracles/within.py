"""What may leave for an ask of a higher priority in the same queue, by trying every set of tasks.

From the words of the rule: tasks of the same queue and of other applications, lower in priority by the gap or more,
only for what is lacking on a node, below a full max of the path, or below a limit of its user, for which only that
user's tasks in the queue make room; those that opted out only where the others do not
do. No queue on the path ends below its guarantee, nor lower if it is below, the ask counted in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations


@dataclass(frozen=True)
class Task:
    """A task that runs; *here*: in the queue of the ask, otherwise in its sibling."""

    name: str
    application: str
    size: int
    priority: int
    node: str
    here: bool = True
    opted_out: bool = False
    user: str = "eve"


@dataclass(frozen=True)
class World:
    """A queue below a parent, with what runs on nodes, and one ask. Guarantees of 0: none; a max of ``None``: none.

    *shares*: (guarantee, max) of the queue and of its parent.
    """

    nodes: dict[str, int]
    tasks: tuple[Task, ...]
    shares: tuple[tuple[int, int | None], tuple[int, int | None]]
    size: int
    priority: int
    gap: int
    application: str = "hot"
    limit: tuple[int, int] | None = None
    """What user ann of the ask may hold, in the queue (level 0) or below its parent (1)."""

    def held(self, level: int) -> int:
        """What the queue (level 0) or its parent (1) holds."""
        return sum(task.size for task in self.tasks if task.here or level)

    def free(self, node: str) -> int:
        """What is idle on *node*."""
        return self.nodes[node] - sum(task.size for task in self.tasks if task.node == node)

    def lacks(self, node: str, gone: Sequence[Task]) -> bool:
        """Whether the ask lacks something on *node* or below a max once *gone* have left."""
        freed = sum(task.size for task in gone)
        on_node = sum(task.size for task in gone if task.node == node)
        full = any(
            most is not None and self.held(level) - freed + self.size > max(most, self.held(level))
            for level, (_, most) in enumerate(self.shares)
        )
        if self.limit is not None:
            level, most = self.limit
            left = [task for task in self.tasks if task.user == "ann" and (task.here or level) and task not in gone]
            full = full or sum(task.size for task in left) + self.size > most
        return full or self.free(node) + on_node < self.size

    def may_go(self, gone: Sequence[Task]) -> bool:
        """Whether the laws let *gone* leave together."""
        freed = sum(task.size for task in gone)
        return all(
            task.here and task.application != self.application and self.priority - task.priority >= self.gap
            for task in gone
        ) and all(
            self.held(level) - freed + self.size >= min(guarantee, self.held(level))
            for level, (guarantee, _) in enumerate(self.shares)
        )

    def plans(self) -> set[tuple[str, frozenset[str]]]:
        """Every lawful plan that takes nobody without need, as (node, names)."""
        found = [
            (node, gone)
            for node in self.nodes
            for gone in subsets(self.tasks)
            if gone
            and self.may_go(gone)
            and not self.lacks(node, gone)
            and all(self.lacks(node, [task for task in gone if task is not one]) for one in gone)
        ]
        if any(not any(task.opted_out for task in gone) for _, gone in found):
            found = [(node, gone) for node, gone in found if not any(task.opted_out for task in gone)]
        return {(node, frozenset(task.name for task in gone)) for node, gone in found}


def subsets(tasks: Sequence[Task]) -> Iterator[tuple[Task, ...]]:
    """Every set of *tasks*."""
    return chain.from_iterable(combinations(tasks, size) for size in range(len(tasks) + 1))
