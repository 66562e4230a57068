"""Amounts and durations as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kornel.shim_mock import quantities


@pytest.mark.parametrize(
    ("text", "resource_type", "amount"),
    [
        ("0", "memory", 0),
        ("00010", "memory", 10),
        ("2", "vcore", 2000),
        ("500m", "vcore", 500),
        (" 25  k ", "memory", 25000),
        ("32Gi", "memory", 32 * 2**30),
        ("9007199254740993", "vcore", 9007199254740993000),
        ("9223372036854775807", "memory", 2**63 - 1),
        ("9223372036854775807m", "vcore", 2**63 - 1),
    ],
)
def test_quantities_are_whole_base_units(text: str, resource_type: str, amount: int) -> None:
    """A quantity counts base units without rounding: thousandths for vcore, as written for everything else."""
    assert quantities.parse_quantity(text, resource_type) == amount


@pytest.mark.parametrize(
    ("text", "resource_type", "reason"),
    [
        ("-1", "memory", "negative"),
        ("-5Gi", "memory", "negative"),
        ("+5", "memory", "not a quantity"),
        ("1.5", "vcore", "not a quantity"),
        ("1e3", "memory", "suffix"),
        ("1_000", "memory", "not a quantity"),
        ("", "memory", "not a quantity"),
        ("Gi", "memory", "not a quantity"),
        ("ten", "memory", "not a quantity"),
        ("٣", "memory", "not a quantity"),
        ("10K", "memory", "suffix"),
        ("500m", "memory", "suffix"),
        ("9223372036854775808", "memory", "too large"),
        ("8Ei", "memory", "too large"),
        ("9223372036854776", "vcore", "too large"),
        ("9" * 5000, "memory", "too large"),
    ],
)
def test_bad_quantities_are_refused(text: str, resource_type: str, reason: str) -> None:
    """Signs, fractions, unknown suffixes and what does not fit 64 bits are refused with the reason."""
    with pytest.raises(ValueError, match=reason):
        quantities.parse_quantity(text, resource_type)


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
        (quantities.parse_duration, "5", "not a duration"),
        (quantities.parse_duration, "5 s", "not a duration"),
        (quantities.parse_duration, "1d", "not a duration"),
        (quantities.parse_duration, "", "not a duration"),
        (quantities.parse_duration, "999999999h", "too long"),
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
