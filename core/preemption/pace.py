"""The pace of preemption: what each kind took within the last interval of its cycle, and who waits until it may take
more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

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
        """Add *taken*, the youngest decision."""
        self.taken.append(taken)
        self.totals.add(taken)

    def drop_until(self, until_ns: int) -> None:
        """Drop the decisions made at *until_ns* or before."""
        while self.taken and self.taken[0].at_ns <= until_ns:
            self.totals.add(self.taken.popleft(), -1)

    def copy_since(self, until_ns: int) -> Window:
        """Returns the window as it will be once the decisions up to *until_ns* are dropped: for questions."""
        later = Window()
        for taken in self.taken:
            if taken.at_ns > until_ns:
                later.add(taken)
        return later

    def shrinking_sums(self) -> Iterator[tuple[int, Totals]]:
        """Yields the sums that are left once each of the decisions, the oldest first, is dropped; with when it was
        made."""
        left = Totals()
        left.amounts.update(self.totals.amounts)
        left.victims = self.totals.victims
        for taken in self.taken:
            left.add(taken, -1)
            yield taken.at_ns, left


class PaceOfKind:
    """The decisions of one kind of preemption within the last interval, and who waits until it may take more."""

    __slots__ = ("held_ns", "resume", "waiting", "window")

    def __init__(self) -> None:
        self.window: Final = Window()
        self.waiting: dict[AskGroup | Reservation, None] = {}
        """Groups with asks that are due, or reservations of asks, which the limit of the kind holds back."""
        self.resume: Callable[[Any, int], None] | None = None
        """The function that offers them again, called with the partition's state and the time; ``None``: the kind never
        held anybody back."""
        self.held_ns: int | None = None
        """The time when the limit last held somebody back."""


class Pace:
    """The pace of each kind. One belongs to one partition."""

    def __init__(self) -> None:
        self._by_kind: dict[str, PaceOfKind] = {}
        self.wakes_ns: int | None = None
        """The time when those held back are looked at next; ``None``: nobody is."""
        self.woke_ns = 0

    def of_kind(self, name: str) -> PaceOfKind:
        """Returns the pace of the kind called *name*, which is kept from now on."""
        found = self._by_kind.get(name)
        if found is None:
            found = self._by_kind[name] = PaceOfKind()
        return found

    def copy_window(self, name: str, until_ns: int) -> Window:
        """Returns what the kind called *name* took after *until_ns*, for a question: nothing is kept of that."""
        found = self._by_kind.get(name)
        return found.window.copy_since(until_ns) if found is not None else Window()

    def in_order(self) -> list[tuple[str, PaceOfKind]]:
        """Returns the kinds that asked for their pace so far, by name: whoever asked first must not matter."""
        return sorted(self._by_kind.items())
