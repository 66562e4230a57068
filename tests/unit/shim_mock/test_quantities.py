"""Amounts and durations as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kornel.shim_mock import quantities


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("250ms", 0.25), ("1h30m", 5400), (".5s", 0.5), ("1.5h", 5400), ("5us", 5e-6)]
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    """A duration is a sum of numbers with units."""
    assert quantities.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("parser", "text", "reason"),
    [
        (quantities.parse_duration, "-5s", "negative"),
        (quantities.parse_duration, "5", "invalid duration"),
        (quantities.parse_duration, "5 s", "invalid duration"),
        (quantities.parse_duration, "1d", "invalid duration"),
        (quantities.parse_duration, "", "invalid duration"),
        (quantities.parse_duration, "99999h", "too long"),
        (quantities.parse_rate, "10", "not a rate"),
        (quantities.parse_rate, "0/s", "is not above 0/s"),
        (quantities.parse_rate, "2000000/s", "at most 1000000/s"),
        (quantities.parse_flag, "yes", "neither"),
        (quantities.parse_flag, "True", "neither"),
    ],
)
def test_other_bad_texts_are_refused(parser: Callable[[str], object], text: str, reason: str) -> None:
    """Durations, rates and flags have one spelling; everything else is refused with the reason."""
    with pytest.raises(ValueError, match=reason):
        parser(text)


@pytest.mark.parametrize("text", ["1.5", "x", "", "+1", "11", "-1", "9" * 5000, "-" + "9" * 5000])
def test_whole_numbers_have_bounds(text: str) -> None:
    """A text that is not a whole number between the bounds is refused."""
    with pytest.raises(ValueError, match=r"not a whole number|outside"):
        quantities.parse_integer(text, 0, 10)


@pytest.mark.parametrize("text", ["1e-3", "nan", "inf", "-0.1", "1.1", ".5", "9" * 400])
def test_decimals_have_bounds(text: str) -> None:
    """Only plain decimals between the bounds count as a probability."""
    with pytest.raises(ValueError, match=r"not a plain decimal|outside"):
        quantities.parse_decimal(text, 0, 1)
