"""Who else looks at what the engine decides, and at how long that takes: histories, metrics, event streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from core.domain.effects import Effect


class EffectObserver(Protocol):
    """Sees the effects of each command and each slice, in order. Called between slices: must be quick, may not wait."""

    def observe(self, effects: Sequence[Effect]) -> None:
        """*effects* are shared: look, do not change."""


class EngineTimer(Protocol):
    """Hears how long the engine took. Must be quick, may not wait."""

    def command_took(self, seconds: float) -> None:
        """One command was applied."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """One slice was run, and observers have seen its *effects*. *more*: the cycle goes on with the next slice."""


class NoTimer:
    """Nobody wants to know."""

    def command_took(self, seconds: float) -> None:
        """Does nothing."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Does nothing."""
