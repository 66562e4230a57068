"""Defines the tags and styles by which a shim says how the members of a gang depend on each other
(docs/gang-scheduling.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HARD: Final = "Hard"
"""The one gang style that fails when its placeholders have waited too long; every other text means Soft."""

MINIMUM_TAG: Final = "kornel.gangMinimum"
"""The tag of a placeholder that states how many members of its task group have to run for any of them to be useful.
Case matters."""

SURVIVES_TAG: Final = "kornel.survivesLosses"
"""The tag of an application that says, with the value ``true``, that it goes on when it loses members. Case matters."""

_MOST_DIGITS: Final = 9


def read_minimum(tags: Iterable[tuple[str, str]]) -> int | None:
    """Returns the minimum that *tags* state, at least 1; ``None``: they state none."""
    for name, text in tags:
        if name == MINIMUM_TAG and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
            return max(1, int(text))
    return None


def survives_losses(tags: Iterable[tuple[str, str]]) -> bool:
    """Tells whether *tags* of an application say that it goes on without some of its members."""
    return any(name == SURVIVES_TAG and value == "true" for name, value in tags)
