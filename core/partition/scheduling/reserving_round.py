"""Where the giving out of reservations by age stands: a record that :mod:`.reserving` keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from core.model.allocations import AskGroup
from core.model.nodes import Node
from core.model.shapes import Shape


class ReservingRound:
    """Where the giving out of reservations by age stands."""

    __slots__ = ("candidates", "due_ns", "left", "not_before_ns")

    def __init__(self) -> None:
        self.due_ns: int | None = None
        """When the next round begins; ``None``: nothing calls for one."""
        self.not_before_ns = 0
        """Rounds keep a distance that grows with what one costs."""
        self.left: deque[AskGroup] = deque()
        """Groups that the round under way has still to look at, in scheduling order."""
        self.candidates: dict[Shape, Iterator[Node]] = {}
        """By shape, the nodes that the round under way has not given out yet, the best first."""

    def call(self, at_ns: int = 0) -> None:
        """Have a round at *at_ns*, or as soon as rounds may follow each other, unless one comes sooner."""
        at_ns = max(at_ns, self.not_before_ns)
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns
