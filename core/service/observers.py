"""Interfaces of those who observe the engine's decisions and its times: histories, metrics, event streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kornel.core.domain.effects import Effect


class EffectObserver(Protocol):
    """Sees the effects of each command and each slice, in order. Called between slices: must be quick, may not wait."""

    def observe(self, effects: Sequence[Effect]) -> None:
        """Observe *effects*, which are shared and must not be changed."""


class CallingObserver:
    """An ``EffectObserver`` that gives what it sees to a function."""

    def __init__(self, observe: Callable[[Sequence[Effect]], None]) -> None:
        self.observe = observe


class EngineTimer(Protocol):
    """Hears how long the engine took. Must be quick, may not wait."""

    def command_took(self, seconds: float) -> None:
        """Count a command that was applied."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Count a slice whose *effects* observers have seen. *more*: the cycle goes on with the next slice."""


class NoTimer:
    """A timer that counts nothing."""

    def command_took(self, seconds: float) -> None:
        """Does nothing."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Does nothing."""
