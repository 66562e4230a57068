"""Holds the record of reservations by age: how old an ask must be, how many there are, and the round under way."""

from __future__ import annotations

from collections import deque

from kornel.core.model.allocations import AskGroup
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.partition.defaults import RESERVATION_DELAY_NS, RESERVATION_PERCENT
from kornel.core.partition.scheduling.missing_shares import MissingShares


class ReservingRecord:
    """Keeps the settings and the state of reservations by age, which :mod:`.reserving` makes."""

    __slots__ = ("candidates", "delay_ns", "due_ns", "kept", "left", "not_before_ns", "percent", "shares")

    def __init__(self) -> None:
        self.delay_ns: int | None = RESERVATION_DELAY_NS
        """The age at which an ask without room may reserve a node; ``None``: never."""
        self.percent = RESERVATION_PERCENT
        """The percentage of nodes that may be kept free at the same time for asks that have waited; one node always
        may."""
        self.kept = 0
        """The number of nodes that are kept free by age now."""
        self.due_ns: int | None = None
        """The time at which the next round begins; ``None``: none is needed."""
        self.not_before_ns = 0
        """The earliest time for the next round. The pause between rounds grows with their cost."""
        self.left: deque[AskGroup] = deque()
        """The groups that the round under way has yet to look at, in scheduling order."""
        self.candidates: dict[Shape, deque[Node]] = {}
        """The nodes that the round under way has not tried yet, by shape, the best first."""
        self.shares = MissingShares()
        """The missing shares of nodes for the shapes of the latest rounds."""

    def call_round(self, at_ns: int = 0) -> None:
        """Schedules a round for *at_ns*, or for the end of the pause between rounds if that is later, unless one is due
        sooner."""
        at_ns = max(at_ns, self.not_before_ns)
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns
