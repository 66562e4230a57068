"""Measures for how long what is saved makes no progress (preemption.md B.7, "When it ends")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kornel.core.model.allocations import Reservation


def sum_missing(claims: Iterable[Reservation]) -> float:
    """Returns the sum, over the types and for devices, of the missing part of what *claims* hold together, between 0
    and 1 each."""
    lacked: dict[int | None, float] = {}
    held: dict[int | None, int] = {}
    for claim in claims:
        for t, amount in claim.node.find_missing(claim).items():
            lacked[t] = lacked.get(t, 0) + amount
        for t, amount in claim.pairs:
            held[t] = held.get(t, 0) + amount
        if (wanted := claim.ask.shape.devices) is not None and claim.node.devices is not None:
            held[None] = held.get(None, 0) + 1
            lacked[None] = lacked.get(None, 0) + claim.node.devices.find_missing(claim.ask, wanted.number or 1)
    return sum(amount / held[t] for t, amount in lacked.items())


class ClaimClock:
    """Measures for how long something that is saved has kept others back since less was missing than ever before.

    What is missing is the sum, over the types, of the missing parts of the amount, between 0 and 1 each.
    """

    __slots__ = ("_looked_ns", "_missing", "stalled_ns")

    def __init__(self, missing: float, now_ns: int) -> None:
        self._missing = missing
        self._looked_ns = now_ns
        self.stalled_ns = 0
        """The time for which it has kept others back without progress."""

    def note_missing(self, missing: float, keeps_back: Callable[[], bool], now_ns: int) -> None:
        """Counts the time since the last look, unless less is *missing* than ever before or nobody is kept back."""
        if missing < self._missing:
            self._missing, self.stalled_ns = missing, 0
        elif keeps_back():
            self.stalled_ns += now_ns - self._looked_ns
        self._looked_ns = now_ns

    def has_lost(self, missing: float) -> bool:
        """Tells whether less was missing at some time. If less is *missing* than ever, the time counts anew."""
        if missing < self._missing:
            self._missing, self.stalled_ns = missing, 0
        return missing > self._missing

    def count_anew(self) -> None:
        """Counts the time without progress anew, because others whose turn is before it were served."""
        self.stalled_ns = 0

    def find_end(self, timeout_ns: int) -> int:
        """Returns the earliest time at which ``stalled_ns`` reaches *timeout_ns*."""
        return self._looked_ns + max(0, timeout_ns - self.stalled_ns)
