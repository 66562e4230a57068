"""Amounts as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kornel.shim_local.amounts import (
    BadAmount,
    parse_bytes,
    parse_cores,
    parse_duration,
    parse_indexes,
    write_bytes,
    write_duration,
)


@pytest.mark.parametrize(
    ("text", "amount"), [("2", 2000), ("0.5", 500), ("500m", 500), ("1.25", 1250), ("0.0001", 0), ("0", 0)]
)
def test_cores(text: str, amount: int) -> None:
    assert parse_cores(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("4Gi", 4 * 2**30), ("1.5Gi", 3 * 2**29), ("512Mi", 2**29), ("2G", 2 * 10**9), ("0", 0)],
)
def test_bytes(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("2d", 172_800), ("0", 0), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("1-4", (1, 2, 3, 4)), ("0-9:3", (0, 3, 6, 9)), ("7,1,5-6", (1, 5, 6, 7)), ("3,3", (3,)), ("0", (0,))],
)
def test_indexes(text: str, indexes: tuple[int, ...]) -> None:
    assert parse_indexes(text) == indexes


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_cores, text) for text in ("", "x", "1Gi", "-1", "1.5m", "1,5", "٣")),
        *((parse_bytes, text) for text in ("", "4X", "4 Gi", "-4Gi", "9999999999Ti", "4000", "1.5")),
        *((parse_duration, text) for text in ("", "soon", "1h!", "h", "-5s", "1.5h", "90")),
        *((parse_indexes, text) for text in ("", "a", "5-1", "1-", "1-9:0", "1-9999999", "1--2", "٣")),
    ],
)
def test_nonsense_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(BadAmount):
        parse(text)


def test_a_number_without_its_unit_is_told_what_to_write() -> None:
    """In other schedulers it means megabytes and minutes."""
    with pytest.raises(BadAmount, match="'4000' has no unit; write 4000M, 4000Mi or 4000G"):
        parse_bytes("4000")
    with pytest.raises(BadAmount, match="'90' has no unit; write 90s, 90m or 90h"):
        parse_duration("90")


def test_amounts_are_written_as_they_are_read() -> None:
    assert [write_bytes(each) for each in (4 * 2**30, 3 * 2**29, 1000, 0)] == ["4Gi", "1.5Gi", "1000", "0"]
    assert [write_duration(each) for each in (0, 0.25, 59, 3600, 5400.9, 90_061)] == [
        *("0s", "0.2s", "59s", "1h", "1h30m", "1d1h"),
    ]
