"""What a shim knows about its cluster: all of it comes from what it sent and what it heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kornel.shim_client import Ask

Amounts = Mapping[str, int]
WHOLE = 1_000
"""Parts of a device."""


@dataclass
class Task:
    """An ask, and the allocation that it becomes."""

    ask: Ask
    node: str = ""
    """Where it runs. Empty: it waits."""
    victim_of: str = ""
    """The application for which it was asked to leave. Empty: it stays."""
    ending: bool = False
    """Tells whether its end was asked for in another way than by preemption, or its place is being taken."""
    devices: tuple[str, ...] = ()
    avoided: set[str] = field(default_factory=set)
    """Nodes on which it could not be started a moment ago."""

    @property
    def key(self) -> str:
        return self.ask.key

    @property
    def size(self) -> Amounts:
        return self.ask.resources

    @property
    def stays(self) -> bool:
        """Tells whether it runs and nobody asked it to end."""
        return bool(self.node) and not self.victim_of and not self.ending

    @property
    def parts(self) -> int:
        """The parts that it holds of each of its devices."""
        wish = self.ask.devices
        return 0 if wish is None else WHOLE if wish.count else round(wish.fraction * WHOLE)


@dataclass
class Application:
    """An application with what is left of its tasks. *stated* is the minimum that its placeholders name."""

    name: str
    queue: str
    gang: Amounts = field(default_factory=dict)
    """The sum of its placeholders. Empty: it is no gang."""
    hard: bool = False
    stated: int | None = None
    survives: bool = False
    tasks: dict[str, Task] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """How many placeholders there ever were, by task group."""
    lost: dict[str, int] = field(default_factory=dict)
    """How many placeholders ended without a real task in their place, by task group."""
    state: str = ""
    disturbed: bool = False
    """Tells whether something else than a decision of the core took members away from it while others ran."""

    @property
    def is_unit(self) -> bool:
        """Tells whether its minimum is placed by one decision."""
        return bool(self.gang) and (self.hard or (self.stated or 0) > 1)

    @property
    def is_bound(self) -> bool:
        """Tells whether its minimum may be taken as a whole only."""
        return bool(self.gang) and not self.survives and (self.hard or self.stated is not None)

    def minimum_of(self, group: str) -> int:
        if self.stated is not None:
            return self.stated
        return self.asked.get(group, 0) - self.lost.get(group, 0) if self.hard else 1

    def running(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.node]

    def staying(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.stays]

    def waiting(self) -> list[Task]:
        return [task for task in self.tasks.values() if not task.node]

    def waits_for_placeholder(self, task: Task) -> bool:
        """Tells whether a real task has to wait for the place of a placeholder of its group."""
        group = task.ask.task_group
        left = sum(each.ask.placeholder and each.ask.task_group == group for each in self.tasks.values())
        return not task.ask.placeholder and bool(group) and left > 0

    def is_complete(self) -> bool:
        """Tells whether all placeholders of the gang wait, and none of its task groups runs."""
        if any(task.node and task.ask.task_group for task in self.tasks.values()):
            return False
        asked = add_up(task.size for task in self.waiting() if task.ask.placeholder)
        return all(asked.get(kind, 0) >= amount for kind, amount in self.gang.items())

    def list_unit(self) -> list[Task]:
        """Returns the members of the minimum, which have to be placed together."""
        found: list[Task] = []
        for group in self.asked:
            members = [task for task in self.waiting() if task.ask.placeholder and task.ask.task_group == group]
            found += members[: self.minimum_of(group)]
        return found


@dataclass
class Node:
    name: str
    capacity: Amounts
    domains: tuple[str, ...] = ()
    """Its zone and its rack, or whatever the topology names, outermost first."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The link group of each device."""
    is_open: bool = True


@dataclass
class Queue:
    guaranteed: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    fence: bool = False
    disabled: bool = False
    """Tells whether nothing in the queue may be a victim."""


@dataclass
class Books:
    """All of it. *levels* are those of the topology, outermost first."""

    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Tasks and nodes on which the shim's predicate lets them not run."""

    def find(self, key: str) -> Task | None:
        for application in self.applications.values():
            if key in application.tasks:
                return application.tasks[key]
        return None

    def tasks(self) -> Iterator[Task]:
        for application in self.applications.values():
            yield from application.tasks.values()

    def on_node(self, name: str) -> list[Task]:
        return [task for task in self.tasks() if task.node == name]

    def free(self, name: str) -> dict[str, int]:
        used = add_up(task.size for task in self.on_node(name))
        return {kind: amount - used.get(kind, 0) for kind, amount in self.nodes[name].capacity.items()}

    def free_devices(self, name: str, without: Iterable[Task] = ()) -> dict[str, int]:
        """Returns the free parts of each device, once *without* have left."""
        free = dict.fromkeys(self.nodes[name].devices, WHOLE)
        gone = {task.key for task in without}
        for task in self.on_node(name):
            for device in task.devices:
                if task.key not in gone and device in free:
                    free[device] -= task.parts
        return free

    def used(self, queue: str) -> dict[str, int]:
        """Returns what runs in *queue* and below, victims included."""
        return add_up(task.size for task in self.below(queue) if task.node)

    def below(self, queue: str) -> Iterator[Task]:
        for application in self.applications.values():
            if is_within(application.queue, queue):
                yield from application.tasks.values()

    def domain(self, node: str, level: str) -> tuple[str, ...] | None:
        """Returns the domain of *node* on *level*. ``None``: it has none."""
        if level not in self.levels:
            return None
        path = self.nodes[node].domains[: self.levels.index(level) + 1]
        return path if len(path) == self.levels.index(level) + 1 and all(path) else None


def is_within(queue: str, other: str) -> bool:
    return queue == other or queue.startswith(f"{other}.")


def path_of(queue: str) -> list[str]:
    """Returns *queue* and those above it, below root."""
    names = queue.split(".")
    return [".".join(names[:length]) for length in range(len(names), 1, -1)]


def add_up(sizes: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for size in sizes:
        for kind, amount in size.items():
            total[kind] = total.get(kind, 0) + amount
    return total
