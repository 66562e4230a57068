"""Keeps the pace of preemption: what each kind took within the last interval of its cycle, and which asks wait until it
may take more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kornel.core.model.allocations import AskGroup, Reservation
from kornel.core.model.shapes import Pairs


class Taken(NamedTuple):
    """One decision: its time, what it serves by type index, and the number of its victims."""

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
        """Adds *taken* or, with *sign* -1, subtracts it."""
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
        """Add *taken*, the latest decision."""
        self.taken.append(taken)
        self.totals.add(taken)

    def drop_until(self, until_ns: int) -> None:
        """Drop the decisions made at *until_ns* or before."""
        while self.taken and self.taken[0].at_ns <= until_ns:
            self.totals.add(self.taken.popleft(), -1)

    def copy_since(self, until_ns: int) -> Window:
        """Returns a copy without the decisions up to *until_ns*, for forecasts."""
        later = Window()
        for taken in self.taken:
            if taken.at_ns > until_ns:
                later.add(taken)
        return later

    def shrinking_sums(self) -> Iterator[tuple[int, Totals]]:
        """Drops one decision after the other, the oldest first, from a copy of the totals; yields the time of each and
        the sums that are left."""
        left = Totals()
        left.amounts.update(self.totals.amounts)
        left.victims = self.totals.victims
        for taken in self.taken:
            left.add(taken, -1)
            yield taken.at_ns, left


class PaceOfKind:
    """The decisions of one kind of preemption within the last interval, and what waits until it may take more."""

    __slots__ = ("held_ns", "resume", "waiting", "window")

    def __init__(self) -> None:
        self.window: Final = Window()
        self.waiting: dict[AskGroup | Reservation, None] = {}
        """The groups with due asks, and the reservations, that the limit of the kind holds back."""
        self.resume: Callable[[Any, int], None] | None = None
        """The function that offers them again, called with the state of the partition and the time; ``None``: the kind
        has never held anything back."""
        self.held_ns: int | None = None
        """The time when the limit last held something back; ``None``: never."""


class Pace:
    """The pace of each kind. One belongs to one partition."""

    def __init__(self) -> None:
        self._by_kind: dict[str, PaceOfKind] = {}
        self.wakes_ns: int | None = None
        """The time when what is held back is offered again; ``None``: nothing is held back."""
        self.woke_ns = 0

    def of_kind(self, name: str) -> PaceOfKind:
        """Returns the pace of the kind called *name*, and begins to keep it if necessary."""
        found = self._by_kind.get(name)
        if found is None:
            found = self._by_kind[name] = PaceOfKind()
        return found

    def copy_window(self, name: str, until_ns: int) -> Window:
        """Returns a copy of what the kind called *name* took after *until_ns*, for forecasts."""
        found = self._by_kind.get(name)
        return found.window.copy_since(until_ns) if found is not None else Window()

    def in_order(self) -> list[tuple[str, PaceOfKind]]:
        """Returns the kinds whose pace is kept, sorted by name, so that their order does not depend on which came
        first."""
        return sorted(self._by_kind.items())
