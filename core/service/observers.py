"""Who else looks at what the engine decides: histories, metrics, event streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from core.domain.effects import Effect


class EffectObserver(Protocol):
    """Sees the effects of each command and each slice, in order. Called between slices: must be quick, may not wait."""

    def observe(self, effects: Sequence[Effect]) -> None:
        """*effects* are shared: look, do not change."""
