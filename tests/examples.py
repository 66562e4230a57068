"""How much of a costly test is tried in every run; ``make long`` tries the whole of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import settings

BRIEF: Final = "brief"
LONG: Final = "long"
PART: Final = 20


def scale_examples(whole: int) -> int:
    """Returns the number of examples for a property: *whole*, or a twentieth of it where time is short."""
    return max(2, whole // PART) if settings.get_current_profile_name() == BRIEF else whole


def mark_rest_long(values: Iterable[object], *, keep: int = 1) -> list[object]:
    """Returns parameters for all *values*, of which all but the first *keep* are tried in long runs only.

    A value for several names is a tuple.
    """
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[pytest.mark.long] * (at >= keep)) for at, row in enumerate(rows)]
