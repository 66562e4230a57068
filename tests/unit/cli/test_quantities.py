"""Amounts, bars and times as people read them."""

from __future__ import annotations

import pytest

from kornel.cli.text import quantities as text
from kornel.cli.text import times


@pytest.mark.parametrize(
    ("name", "amount", "expected"),
    [
        ("vcore", 0, "0"), ("vcore", 500, "500m"), ("vcore", 1500, "1.5"), ("vcore", -2000, "-2"),
        ("vcore", 120_000, "120"), ("memory", 1023, "1023"), ("memory", 2**30, "1Gi"), ("memory", 1536, "1.5Ki"),
        ("hugepages-2Mi", 2**21, "2Mi"), ("ephemeral-storage", 5 * 10**9, "5G"), ("gpu", 3, "3"),
    ],
)  # fmt: skip
def test_quantity(name: str, amount: int, expected: str) -> None:
    assert text.format_quantity(name, amount) == expected


@pytest.mark.parametrize(
    ("used", "whole", "mark", "expected"),
    [
        (0, 10, None, "....."), (1, 10, None, "#...."), (5, 10, None, "##..."), (30, 10, None, "#####"),
        (5, 0, None, "#####"), (2, 10, 8, "#...|"), (0, 10, 99, "....|"), (0, 0, 3, "....."), (-3, 10, None, "....."),
    ],
)  # fmt: skip
def test_bar(used: int, whole: int, mark: int | None, expected: str) -> None:
    assert text.draw_bar(used, whole, 5, text.ASCII, mark) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-1, "0s"), (59, "59s"), (310, "5m10s"), (3660, "1h1m"), (90_000, "1d1h")]
)
def test_age(seconds: int, expected: str) -> None:
    assert times.format_age(seconds * 10**9) == expected


@pytest.mark.parametrize(
    ("distance_s", "expected"),
    [(12, "in 12 s"), (-12, "12 s ago"), (0.4, "now"), (310, "in 5 min 10 s"), (-100_000, "1 d 3 h ago")],
)
def test_moments_stand_beside_their_distance(distance_s: float, expected: str) -> None:
    now_ns = 1_800_000_000 * 10**9
    found = times.format_moment(now_ns + int(distance_s * 10**9), now_ns)
    assert found.endswith(f"Z ({expected})")


@pytest.mark.parametrize(
    ("encoding", "strokes"), [("utf-8", text.UNICODE), ("ascii", text.ASCII), (None, text.ASCII), ("odd", text.ASCII)]
)
def test_strokes_that_a_terminal_can_show(encoding: str | None, strokes: text.Strokes) -> None:
    assert text.strokes_for(encoding) == strokes


def test_well_known_types_come_first() -> None:
    assert text.types_in_order([{"gpu": 1, "memory": 2}, {"vcore": 1}]) == ["vcore", "memory", "gpu"]
