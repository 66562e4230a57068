"""Whose turn it is among supposed and waiting asks: the order of the cycle, on heaps of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.keyed_heap import KeyedHeap
from kornel.core.model.queues import Queue
from kornel.core.policies.application_order import application_key
from kornel.core.policies.queue_order import queue_key

Kind = tuple[object, str]
"""Demand and required node: what one of a kind finds no room for, none of the others does."""


def kind_of(ask: Allocation) -> Kind:
    return (ask.shape.pairs, ask.spec.required_node)


class Turns:
    """Asks, taken one by one: best child of best child, best application, first ask. Keys follow the books."""

    def __init__(self, asks: Iterable[Allocation]) -> None:
        self._asks: dict[Application, deque[Allocation]] = {}
        self._applications: dict[Queue, KeyedHeap[Application]] = {}
        self._children: dict[Queue, KeyedHeap[Queue]] = {}
        for ask in sorted(asks, key=lambda ask: ask.order):
            waiting = self._asks.get(ask.application)
            if waiting is None:
                waiting = self._asks[ask.application] = deque()
                self._offer(ask.application)
            waiting.append(ask)

    def _offer(self, application: Application) -> None:
        leaf = application.queue
        self._applications.setdefault(leaf, KeyedHeap(application_key)).add(application)
        for queue in leaf.lineage():
            if queue.parent is not None:
                self._children.setdefault(queue.parent, KeyedHeap(queue_key)).add(queue)

    def next(self, root: Queue) -> Allocation | None:
        """The ask whose turn it is; it stays until :meth:`done` or :meth:`skip`."""
        queue = root
        while not queue.leaf:
            children = self._children.get(queue)
            child = children.first() if children is not None else None
            if child is None:
                return None
            queue = child
        application = self._applications[queue].first()
        return self._asks[application][0] if application is not None else None

    def done(self, ask: Allocation) -> None:
        """*ask* was placed, and the books moved."""
        self._asks[ask.application].popleft()
        self._settle(ask.application)

    def skip(self, ask: Allocation) -> list[Allocation]:
        """Nothing can be done for *ask*, nor for the others of its kind in its application: they are returned."""
        waiting = self._asks[ask.application]
        kind = kind_of(ask)
        skipped = [other for other in waiting if kind_of(other) == kind]
        self._asks[ask.application] = deque(other for other in waiting if kind_of(other) != kind)
        self._settle(ask.application)
        return skipped

    def _settle(self, application: Application) -> None:
        leaf = application.queue
        applications = self._applications[leaf]
        if self._asks[application]:
            applications.mark(application)
        else:
            applications.discard(application)
        empty = not applications
        for queue in leaf.lineage():
            if queue.parent is None:
                break
            siblings = self._children[queue.parent]
            if empty:
                siblings.discard(queue)
                empty = not siblings
            else:
                siblings.mark(queue)
