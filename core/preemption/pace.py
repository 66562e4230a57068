"""What preemption took within the last interval of its cycle, and who waits until it may take more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kornel.core.model.allocations import AskGroup, Reservation
from kornel.core.model.shapes import Pairs


class Taken(NamedTuple):
    """One decision: when it was made, what it serves by type index, and how many it asked to leave."""

    at_ns: int
    served: Pairs
    victims: int


class Totals:
    """The sums over the decisions of one window."""

    __slots__ = ("amounts", "victims")

    def __init__(self) -> None:
        self.amounts: dict[int, int] = {}
        self.victims = 0

    def add(self, taken: Taken, sign: int = 1) -> None:
        """Count *taken*, or with *sign* -1 count it no more."""
        for t, amount in taken.served:
            self.amounts[t] = self.amounts.get(t, 0) + sign * amount
        self.victims += sign * taken.victims


class Window:
    """The decisions of one kind of preemption, the oldest first, with running totals."""

    __slots__ = ("taken", "totals")

    def __init__(self) -> None:
        self.taken: deque[Taken] = deque()
        self.totals = Totals()

    def add(self, taken: Taken) -> None:
        self.taken.append(taken)
        self.totals.add(taken)

    def forget(self, until_ns: int) -> None:
        """Drop the decisions made at *until_ns* or before."""
        while self.taken and self.taken[0].at_ns <= until_ns:
            self.totals.add(self.taken.popleft(), -1)

    def without(self, until_ns: int) -> Window:
        """The window as it will be once the decisions up to *until_ns* are forgotten: for questions."""
        later = Window()
        for taken in self.taken:
            if taken.at_ns > until_ns:
                later.add(taken)
        return later

    def shrinking(self) -> Iterator[tuple[int, Totals]]:
        """The sums that are left once each of the decisions, the oldest first, is forgotten; with when it was made."""
        left = Totals()
        left.amounts.update(self.totals.amounts)
        left.victims = self.totals.victims
        for taken in self.taken:
            left.add(taken, -1)
            yield taken.at_ns, left


class Pace:
    """The windows by kind, and those held back. One belongs to one partition."""

    def __init__(self) -> None:
        self.guarantee = Window()
        self.required_node = Window()
        self.quota = Window()
        self.waiting: dict[AskGroup, None] = {}
        """Groups with asks that are due but held back by the limit."""
        self.waiting_reservations: dict[Reservation, None] = {}
        """Reservations of asks that must run on a node and are held back by theirs."""
        self.wakes_ns: int | None = None
        """When those held back are looked at next; ``None``: nobody is."""
        self.woke_ns = 0
        self.held_ns: dict[str, int] = {}
        """By kind, when somebody was last held back."""
