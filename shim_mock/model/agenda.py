"""The time of a model, and what it has to do later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Agenda(Protocol):
    """A clock that starts at 0, with calls that are still to come. Simulated seconds may pass faster than the core's
    own, which are called real here."""

    @property
    def real_s(self) -> float:
        """The core's seconds since the start."""

    @property
    def now_s(self) -> float:
        """The simulated seconds since the start."""

    @property
    def wall_ns(self) -> int:
        """The core's time as Unix time, in nanoseconds."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call *callback* in *delay_s* simulated seconds; at once, but not from here, if that is not positive."""

    def call_at(self, at_s: float, callback: Callable[[], None]) -> None:
        """Call *callback* at the simulated time *at_s*."""
