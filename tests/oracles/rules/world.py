"""What there is to preempt in: queues, nodes and tasks as plain records, and the books of who runs where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

Amounts = Mapping[str, int]
"""By resource type. A type that is missing is not wanted, not given, not guaranteed and not limited."""


@dataclass(frozen=True)
class Queue:
    """One queue as it is configured. ``preemption`` empty: it says nothing of its own."""

    path: str
    guaranteed: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    lowered: Amounts | None = None
    """The max that takes its place during the run; ``None``: it stays."""
    preemption: str = ""
    offset: int = 0
    priority_fence: bool = False
    enforced: bool = False
    """A lowered max is enforced after a delay."""


@dataclass(frozen=True)
class Node:
    """One node. A drained one takes nobody in."""

    name: str
    capacity: Amounts
    drained: bool = False


@dataclass(frozen=True)
class Task:
    """A task before and after it is placed. ``required_node`` empty: it runs anywhere."""

    key: str
    application: str
    queue: str
    amounts: Amounts
    priority: int = 0
    opted_out: bool = False
    originator: bool = False
    required_node: str = ""
    may_preempt: bool = True
    created: int = 0
    """In seconds; a run begins at second 1000, and whoever is created later comes then."""

    def reluctance(self) -> int:
        """How late it goes: ordinary tasks, then opted-out ones, then originators, those that opted out last."""
        return 2 * self.originator + self.opted_out


@dataclass(frozen=True)
class World:
    """A cluster at the start of a run, and how the run goes."""

    queues: tuple[Queue, ...]
    nodes: tuple[Node, ...]
    running: tuple[tuple[Task, str], ...]
    asks: tuple[Task, ...]
    strict: bool = False
    recreate: bool = False
    """Owners ask again for every victim as soon as it has left."""
    leave_after: int = 0
    """Seconds from being told to leave to having left."""
    monitor: bool = False
    gentle: bool = False
    """The monitor keeps its default pace: a tenth of the cluster in a round, a fifth of that in a turn, a dead zone."""
    off: bool = False
    """Guarantee-driven preemption is not among the policies."""
    limit: float = 1.0
    """For what part of the cluster asks may preempt within a second, per type."""
    withdrawn: tuple[tuple[int, str], ...] = ()
    """At which second of the run whoever asks for a task, waiting or running, takes it back."""
    turned: tuple[tuple[int, str], ...] = ()
    """At which second of the run an open node is drained, or a drained one opened."""
    churn: int = 0
    """For so many seconds a task ends by itself in each, and its owner asks for another one like it."""

    def types(self) -> tuple[str, ...]:
        """All resource types of the nodes, in order."""
        return tuple(sorted({t for node in self.nodes for t in node.capacity}))


@cache
def ancestors(path: str) -> tuple[str, ...]:
    """The queue at *path* and all above it, root last."""
    parts = path.split(".")
    return tuple(".".join(parts[:length]) for length in range(len(parts), 0, -1))


def is_inside(path: str, queue: str) -> bool:
    """Whether *path* is *queue* or below it."""
    return path == queue or path.startswith(queue + ".")


@cache
def lowest_common(one: str, other: str) -> str:
    """The lowest queue that both are inside of."""
    return next(path for path in ancestors(one) if is_inside(other, path))


@cache
def below(path: str, queue: str) -> tuple[str, ...]:
    """The queues from *path* up to, but without, *queue*, which it is inside of."""
    found = ancestors(path)
    return found[: found.index(queue)]


@dataclass
class Books:
    """Who runs where, who was told to leave, who waits, and for whom amounts are held, as seen from outside."""

    queues: dict[str, Queue]
    nodes: dict[str, Node]
    strict: bool = False
    running: dict[str, tuple[Task, str]] = field(default_factory=dict)
    """By key, victims that have not left yet included."""
    leaving: dict[str, str] = field(default_factory=dict)
    """Victims that were told to leave and have not, with the ask that they leave for, if they leave for one."""
    asks: dict[str, Task] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    """Asks that have preempted and are not placed, with a number that grows with the time of it."""
    holds: dict[str, str] = field(default_factory=dict)
    """Asks for which an amount is held, with the node."""

    def seen(self, claims: Mapping[str, int], holds: Mapping[str, str]) -> Books:
        """These books with other claims and holds."""
        return replace(self, claims=dict(claims), holds=dict(holds))

    def copied(self) -> Books:
        """These books as they are now, which nothing changes any more."""
        return replace(
            self,
            queues=dict(self.queues),
            nodes=dict(self.nodes),
            running=dict(self.running),
            leaving=dict(self.leaving),
            asks=dict(self.asks),
            claims=dict(self.claims),
            holds=dict(self.holds),
        )

    def inside(self, queue: str) -> Iterator[tuple[Task, str]]:
        """All running tasks of *queue* and below, with their nodes."""
        for task, node in self.running.values():
            if is_inside(task.queue, queue):
                yield task, node

    def used(self, queue: str, t: str) -> int:
        return sum(task.amounts.get(t, 0) for task, _ in self.inside(queue))

    def net(self, queue: str, t: str) -> int:
        """What *queue* uses once everybody who was told to leave has left."""
        return sum(task.amounts.get(t, 0) for task, _ in self.inside(queue) if task.key not in self.leaving)

    def claimed(self, queue: str, t: str, *, but: str = "") -> int:
        """What asks of *queue*, other than *but*, have preempted for and have not got yet."""
        return sum(
            self.asks[key].amounts.get(t, 0)
            for key in self.claims
            if key != but and key in self.asks and is_inside(self.asks[key].queue, queue)
        )

    def free(self, node: str, t: str) -> int:
        """What nobody uses on *node*."""
        on = sum(task.amounts.get(t, 0) for task, where in self.running.values() if where == node)
        return self.nodes[node].capacity.get(t, 0) - on

    def parting(self, node: str, t: str) -> int:
        """What those who were told to leave still use on *node*."""
        return sum(self.running[key][0].amounts.get(t, 0) for key in self.leaving if self.running[key][1] == node)

    def rank(self, key: str) -> tuple[int, int]:
        """The claim that comes first is served first: required node, then preempting asks by time, then by age.

        Who must run there and is made room for by nobody comes after those who preempt: its node's tasks would be
        shielded for as long as it waits. Two readings: those held by age come in the order of their ages or of their
        holds. They compare as equal here.
        """
        if self.asks[key].required_node:
            return (0, 0) if key in self.claims else (1, 1 << 62)
        return (1, self.claims[key]) if key in self.claims else (2, 0)

    def held(self, node: str, t: str, ask: str, *, only_before: bool = False) -> int:
        """What is held on *node* for others than *ask*; *only_before*: for those whose claims come before its own.

        Before whoever has no claim come all, unless it can run on that node only.
        """
        ranked = ask in self.holds or (ask in self.asks and bool(self.asks[ask].required_node))
        return sum(
            self.asks[key].amounts.get(t, 0)
            for key, where in self.holds.items()
            if where == node
            and key != ask
            and key in self.asks
            and not (only_before and ranked and self.rank(key) >= self.rank(ask))
        )

    def open(self, node: str, t: str, ask: str, *, only_before: bool = False) -> int:
        """What *ask* may use on *node* at once: free, and not needed by those for whom something is held there."""
        free, held = self.free(node, t), self.held(node, t, ask, only_before=only_before)
        return min(free, free + self.parting(node, t) - held)

    def coming(self, node: str, t: str, ask: str) -> int:
        """What *ask* will have on *node* once everybody who was told to leave has left."""
        return self.free(node, t) + self.parting(node, t) - self.held(node, t, ask)
