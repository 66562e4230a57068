"""Keys that are read and checked but that the engine does not act upon yet.

Whoever makes one of them work deletes its row, and the warning is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from core.config.fields import Field

NOT_ENFORCED: Final[Mapping[str, str]] = {
    "usergroupresolver": "user and group look-ups",
    "monitor": "the periodic proportional preemption",
}


class Pending:
    """Counts where such keys are used, to say it once per key and not once per queue."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Field, int]] = {}

    def note(self, key: str, field: Field) -> None:
        """*key* is used at *field* in a way that asks for something to be enforced."""
        if key in NOT_ENFORCED:
            first, count = self._seen.get(key, (field, 0))
            self._seen[key] = (first, count + 1)

    def report(self) -> None:
        """One warning for each key noted, at its first place."""
        for key, (first, count) in self._seen.items():
            more = f", here and in {count - 1} more places" if count > 1 else ""
            first.warning(f"accepted but not enforced yet: {NOT_ENFORCED[key]}{more}")
