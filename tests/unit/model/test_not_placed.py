"""The reasons of asks that are not placed."""

from __future__ import annotations

from kornel.core.model.not_placed import LONGEST_SHARED, add_failure


def test_a_long_text_is_not_kept_for_others() -> None:
    """Asks that are refused at once share the entry of a short text; a megabyte would outlive its ask."""
    short, long = "x" * LONGEST_SHARED, "x" * (LONGEST_SHARED + 1)
    assert add_failure((), short, 7) is add_failure((), short, 7)
    assert add_failure((), long, 7) == add_failure((), long, 7)
    assert add_failure((), long, 7) is not add_failure((), long, 7)
