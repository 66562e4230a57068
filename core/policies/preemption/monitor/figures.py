"""One picture of the queues for a whole round: what they are owed, use and want, taken before anything is decided.

Usage is net of victims on their way out. Demand is what room anywhere could satisfy: not the asks that have preempted
already, that must run on one node, that wait for a placeholder of their own, or that a limit of their user keeps back.
Rule: preemption.md E.3 (G, Mx, U, P), E.8, H.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final, Protocol

from core.domain.priorities import PRIORITY_MIN
from core.domain.settings import PreemptionPolicyKind
from core.model.allocations import Allocation, Reservation
from core.model.queues import Queue
from core.model.shapes import Pairs, Shape
from core.policies.view import PartitionView

Amounts = dict[int, int]
"""Amounts by type index."""

_APPLICATIONS_A_PIECE: Final = 200


class MonitorView(PartitionView, Protocol):
    """What the periodic policy looks at besides the queues and nodes."""

    @property
    def reservations(self) -> Mapping[str, Reservation]: ...

    @property
    def refused(self) -> Mapping[Shape, Mapping[frozenset[str], Mapping[Allocation, None]]]:
        """Asks that the shim refuses on every node with room for now."""
        ...


class QueueFigures:
    """One queue as the round sees it."""

    __slots__ = (
        "ceilings", "children", "demand", "disabled", "fenced", "guaranteed", "leaf", "parent", "priorities",
        "priority", "queue", "reserved", "used",
    )  # fmt: skip

    def __init__(self, queue: Queue, parent: QueueFigures | None) -> None:
        properties = queue.properties
        self.queue: Final = queue
        self.parent: Final = parent
        self.leaf: Final = queue.leaf
        self.guaranteed: Final = queue.guaranteed
        self.ceilings: Final[Amounts] = {} if parent is None else dict(parent.ceilings)
        """Its own max and those above it, whichever is less; the cluster left out."""
        if parent is not None:
            for t, most in queue.max.items():
                self.ceilings[t] = min(most, self.ceilings.get(t, most))
        self.used: Final = [used - leaving for used, leaving in zip(queue.used, queue.preempting, strict=True)]
        self.demand: Final[Amounts] = {}
        self.reserved: Final[Amounts] = {}
        """The part of ``demand`` for which a node is kept free."""
        self.priorities: Final[Amounts] = {}
        """As a leaf: the highest priority among the asks that want each type."""
        self.disabled: Final = properties.preemption_policy is PreemptionPolicyKind.DISABLED
        self.fenced: Final = properties.preemption_policy is PreemptionPolicyKind.FENCE
        self.priority: Final = properties.priority_offset if queue.priority == PRIORITY_MIN else queue.priority
        """What it shows its parent; with nothing pending, as if its tasks had priority 0."""
        self.children: Final[list[QueueFigures]] = []

    def lineage(self) -> list[QueueFigures]:
        """This queue and its ancestors, root last."""
        path = [self]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        return path


class Picture:
    """All queues of a partition at one moment, parents before their children."""

    __slots__ = ("cluster", "of", "queues", "root")

    def __init__(self, root: Queue) -> None:
        self.cluster: Final[Amounts] = dict(root.max)
        self.root: Final = QueueFigures(root, None)
        self.queues: Final[list[QueueFigures]] = [self.root]
        for figures in self.queues:
            for name in sorted(figures.queue.children):
                child = QueueFigures(figures.queue.children[name], figures)
                figures.children.append(child)
                self.queues.append(child)
        self.of: Final = {figures.queue: figures for figures in self.queues}

    def leaves(self) -> list[QueueFigures]:
        """The leaves by path."""
        return sorted((figures for figures in self.queues if figures.leaf), key=lambda figures: figures.queue.path)


def picture(view: MonitorView) -> Generator[int, None, Picture]:
    """The queues of *view* as they are; usage is of the moment of the first step."""
    found = Picture(view.root)
    yield len(found.queues)
    for figures in found.queues:
        if figures.leaf and figures.queue.waiting:
            yield from _count_demand(figures)
    for reservation in list(view.reservations.values()):
        ask = reservation.ask
        if reservation.by_age and waits_for_room(ask):
            _want(found, ask.queue, ask.shape.pairs, 1, ask.priority, reserved=True)
    for rooms in list(view.refused.values()):
        for ask in [ask for room in rooms.values() for ask in room if ask.reservation is None]:
            if waits_for_room(ask):
                _want(found, ask.queue, ask.shape.pairs, 1, ask.priority)
    for figures in reversed(found.queues):
        above = figures.parent
        if above is not None:
            for t, amount in figures.demand.items():
                above.demand[t] = above.demand.get(t, 0) + amount
            for t, amount in figures.reserved.items():
                above.reserved[t] = above.reserved.get(t, 0) + amount
    yield len(found.queues)
    return found


def waits_for_room(ask: Allocation) -> bool:
    """Whether room anywhere would do for *ask*: it has not preempted, and need not run on one node."""
    return not ask.triggered and not ask.spec.required_node


def _count_demand(figures: QueueFigures) -> Generator[int, None, None]:
    looked_at = 0
    for application in list(figures.queue.applications.values()):
        for group in application.groups.values():
            looked_at += 1
            if group.size and not group.kept_back and not group.required_node:
                _add(figures, group.shape.pairs, group.size, group.head().priority)
        looked_at += 1
        if looked_at >= _APPLICATIONS_A_PIECE:
            yield looked_at
            looked_at = 0
    yield looked_at


def _want(found: Picture, leaf: Queue, pairs: Pairs, count: int, priority: int, *, reserved: bool = False) -> None:
    figures = found.of.get(leaf)
    if figures is not None:
        _add(figures, pairs, count, priority, reserved=reserved)


def _add(figures: QueueFigures, pairs: Pairs, count: int, priority: int, *, reserved: bool = False) -> None:
    for t, amount in pairs:
        figures.demand[t] = figures.demand.get(t, 0) + amount * count
        if reserved:
            figures.reserved[t] = figures.reserved.get(t, 0) + amount
        figures.priorities[t] = max(priority, figures.priorities.get(t, PRIORITY_MIN))
