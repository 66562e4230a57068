"""Defines the interfaces of observers of the engine's decisions and times: histories, metrics, event streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kornel.core.domain.effects import Effect


class EffectObserver(Protocol):
    """Sees the effects of each command and each slice, in order. It is called between slices, so it has to be quick and
    must not wait."""

    def observe(self, effects: Sequence[Effect]) -> None:
        """Observe *effects*, which are shared and must not be changed."""


class CallingObserver:
    """An ``EffectObserver`` that passes the effects to a function."""

    def __init__(self, observe: Callable[[Sequence[Effect]], None]) -> None:
        self.observe = observe


class EngineTimer(Protocol):
    """Is notified how long the engine took. It has to be quick and must not wait."""

    def command_took(self, seconds: float) -> None:
        """Count a command that was applied."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Counts a slice with *effects* effects, which observers have seen. *more* tells whether the cycle goes on with
        the next slice."""


class NoTimer:
    """A timer that counts nothing."""

    def command_took(self, seconds: float) -> None:
        """Does nothing."""

    def slice_took(self, seconds: float, effects: int, *, more: bool) -> None:
        """Does nothing."""
