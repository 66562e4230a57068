"""Resource quantities (config.md 5, numbers of its table) and durations (config.md 6.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kornel.shared.quantities import DelayTooLong, parse_delay, parse_duration, parse_quantity

INVALID, SUFFIX, OVERFLOW = "invalid quantity", "invalid suffix", "overflow"
S = 10**9

QUANTITIES: list[tuple[int, str, int | str, int | str]] = [
    (1, "0", 0, 0),
    (2, "1", 1, 1000),
    (3, "10", 10, 10000),
    (4, "00010", 10, 10000),
    (5, "500m", SUFFIX, 500),
    (6, "1500m", SUFFIX, 1500),
    (7, "0m", SUFFIX, 0),
    (8, "10k", 10000, 10000000),
    (9, "10K", SUFFIX, SUFFIX),
    (10, " 25  k ", 25000, 25000000),
    (11, "10\tM", 10000000, 10000000000),
    (12, "10M", 10000000, 10000000000),
    (13, "10Mi", 10485760, 10485760000),
    (14, "10G", 10000000000, 10000000000000),
    (15, "10Gi", 10737418240, 10737418240000),
    (16, "1Ti", 1099511627776, 1099511627776000),
    (17, "1P", 10**15, 10**18),
    (18, "1Pi", 1125899906842624, 1125899906842624000),
    (19, "1000P", 10**18, OVERFLOW),
    (20, "7E", 7 * 10**18, OVERFLOW),
    (21, "9E", 9 * 10**18, OVERFLOW),
    (22, "10E", OVERFLOW, OVERFLOW),
    (23, "7Ei", 8070450532247928832, OVERFLOW),
    (24, "8Ei", OVERFLOW, OVERFLOW),
    (25, "9223372036854775807", 9223372036854775807, OVERFLOW),
    (26, "9223372036854775808", OVERFLOW, OVERFLOW),
    (27, "9223372036854775", 9223372036854775, 9223372036854775000),
    (28, "9223372036854776", 9223372036854776, OVERFLOW),
    (29, "9223372036854775807m", SUFFIX, 9223372036854775807),
    (30, "9007199254740993", 9007199254740993, 9007199254740993000),
    *[(31, text, INVALID, INVALID) for text in ("", "  ", "\t")],
    *[(32, text, INVALID, INVALID) for text in ("-1", "+5")],
    *[(33, text, INVALID, INVALID) for text in ("1.5", "0.5")],
    *[(34, text, INVALID, INVALID) for text in ("1e3", "0x10", "1_000", "1,000")],
    *[(35, text, INVALID, INVALID) for text in ("5X", "10B", "10MB", "10KiB", "10n", "10u")],
    *[(36, text, SUFFIX, SUFFIX) for text in ("2ki", "2mi")],
    *[(37, text, INVALID, INVALID) for text in ("Gi", "m")],
    *[(38, text, INVALID, INVALID) for text in ("50%", "text", "ten")],
    *[(39, text, INVALID, INVALID) for text in ("10\u00a0G", "\u0661\u0660", "\uff11", "1²")],
    (40, "1:30", INVALID, INVALID),
]


@pytest.mark.parametrize(("number", "text", "plain", "cpu"), QUANTITIES, ids=repr)
def test_quantity_table(number: int, text: str, plain: int | str, cpu: int | str) -> None:
    """Each row of the table gives its number in base units, or its class of error."""
    for resource, expected in (("memory", plain), ("gpu", plain), ("vcore", cpu)):
        if isinstance(expected, int):
            assert parse_quantity(resource, text) == expected, number
        else:
            with pytest.raises(ValueError, match=f"^{expected}"):
                parse_quantity(resource, text)


def test_endless_digits_are_an_overflow() -> None:
    """A number of any length is refused as too large, and leading zeros cost nothing."""
    with pytest.raises(ValueError, match=r"^overflow"):
        parse_quantity("memory", "9" * 100_000)
    assert parse_quantity("memory", "0" * 100_000 + "7") == 7


@given(st.integers(0, 2**63 - 1))
def test_every_number_that_fits_is_exact(amount: int) -> None:
    """No number is rounded on its way in."""
    assert parse_quantity("memory", str(amount)) == amount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30 * S),
        ("1h30m", 5400 * S),
        ("1.5h", 5400 * S),
        (".5s", S // 2),
        ("5.s", 5 * S),
        ("+5s", 5 * S),
        ("-5s", -5 * S),
        ("0s", 0),
        ("0", 0),
        ("+0", 0),
        ("1ns", 1),
        ("1us", 10**3),
        ("1µs", 10**3),
        ("1μs", 10**3),
        ("1ms", 10**6),
        ("1m", 60 * S),
        ("0.1ns", 0),
        ("2562047h47m16.854775807s", 2**63 - 1),
    ],
)
def test_duration(text: str, expected: int) -> None:
    """A duration is a sign and groups of number and unit, in nanoseconds."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "7200",
        "15",
        "1d",
        "5 s",
        " 5s",
        "5s ",
        "1H",
        "",
        "s",
        ".s",
        "-",
        "+",
        "--5s",
        "1.2.3s",
        "1e3s",
        "5s3",
        "٣s",
        "2562047h47m16.854775808s",
        "9" * 1000 + "s",
    ],
)
def test_no_duration(text: str) -> None:
    """What lacks a unit, has blanks or is longer than 292 years is refused."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("7200", 7200), ("2h", 7200), ("5", 5), ("5s", 5), ("0", 0), ("007", 7)])
def test_delay_takes_bare_seconds_and_durations(text: str, seconds: int) -> None:
    """A quota delay is whole seconds or a duration (preemption.md D.2)."""
    assert parse_delay(text) == seconds * S


def test_delay_has_a_largest_number_of_seconds() -> None:
    """Bare seconds above 2^31-1 are refused, not read as off."""
    assert parse_delay("2147483647") == 2147483647 * S
    for text in ("2147483648", "9" * 10_000):
        with pytest.raises(DelayTooLong):
            parse_delay(text)


@pytest.mark.parametrize("text", ["1.5", "abc", "", "5 "])
def test_no_delay(text: str) -> None:
    """Anything else is no delay."""
    with pytest.raises(ValueError, match="duration"):
        parse_delay(text)
