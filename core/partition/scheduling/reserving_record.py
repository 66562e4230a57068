"""The memory of reservations by age: how old an ask must be, how many there are, and the round under way."""

from __future__ import annotations

from collections import deque

from kornel.core.model.allocations import AskGroup
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.partition.defaults import RESERVATION_DELAY_NS, RESERVATION_PERCENT


class ReservingRecord:
    """Keeps the settings and the standing of reservations by age; :mod:`.reserving` gives them out."""

    __slots__ = ("candidates", "delay_ns", "due_ns", "kept", "left", "not_before_ns", "percent")

    def __init__(self) -> None:
        self.delay_ns: int | None = RESERVATION_DELAY_NS
        """Age from which an ask without room may have a node kept free; ``None``: never."""
        self.percent = RESERVATION_PERCENT
        """The most nodes of a hundred that may be kept free at once because asks have waited; one always may."""
        self.kept = 0
        """Nodes that are."""
        self.due_ns: int | None = None
        """The time at which the next round begins; ``None``: nothing calls for one."""
        self.not_before_ns = 0
        """Rounds keep a distance that grows with what one costs."""
        self.left: deque[AskGroup] = deque()
        """Groups that the round under way has still to look at, in scheduling order."""
        self.candidates: dict[Shape, deque[Node]] = {}
        """By shape, the nodes that the round under way has not given out yet, the best first."""

    def call_round(self, at_ns: int = 0) -> None:
        """Have a round at *at_ns*, or as soon as rounds may follow each other, unless one comes sooner."""
        at_ns = max(at_ns, self.not_before_ns)
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns
