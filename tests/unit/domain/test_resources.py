"""Resource arithmetic against the worked examples of scheduling.md 22, by their numbers."""

from __future__ import annotations

import pytest

from kornel.core.domain.resources import NOTHING, Resources, used_percent
from tests.oracles.shares import compare_shares, shares_of


def r(**amounts: int) -> Resources:
    return Resources(amounts)


def test_example_13_equal_shares() -> None:
    """Shares are compared by size, whatever their types."""
    total = r(m=1000, v=100)
    left, right = shares_of(r(m=500, v=10), total), shares_of(r(m=100, v=50), total)
    assert left == right == [0.1, 0.5]
    assert compare_shares(left, right) == 0


def test_example_14_one_more_share_is_larger() -> None:
    """A remaining positive share makes its side the larger one."""
    total = r(m=1000, v=100)
    left, right = shares_of(r(m=500), total), shares_of(r(m=500, v=1), total)
    assert (left, right) == ([0.5], [0.01, 0.5])
    assert compare_shares(left, right) == -1
    assert compare_shares(right, left) == 1


def test_remaining_shares_decide_by_sign() -> None:
    """A remaining zero decides nothing, a negative one makes its side the smaller."""
    assert compare_shares([0.0, 0.5], [0.5]) == 0
    assert compare_shares([-0.1, 0.5], [0.5]) == -1
    assert compare_shares([], []) == 0


def test_shares_without_a_total_are_raw() -> None:
    """A type whose total is absent or 0 contributes its amount, 0 stays 0."""
    assert shares_of(r(a=7, b=0, c=3), r(c=0)) == [0.0, 3.0, 7.0]


@pytest.mark.parametrize(("used", "capacity", "expected"), [(33, 100, 33), (150, 100, 150), (5, 0, 100), (0, 0, 0)])
def test_example_43_used_percent(used: int, capacity: int, expected: int) -> None:
    """Whole percent, above 100 when over-allocated, 100 when something is used of nothing."""
    assert used_percent(r(a=used), r(a=capacity)) == {"a": expected}


def test_used_percent_names_common_types_only() -> None:
    """A type that the capacity or the use does not name is left out."""
    assert used_percent(r(a=1, x=1), r(a=4, y=1)) == {"a": 25}


def test_above_zero() -> None:
    """At least one amount above 0 and none below."""
    assert r(a=1, b=0).is_something()
    assert not r(a=0).is_something()
    assert not r(a=1, b=-1).is_something()


def test_resources_are_values() -> None:
    """Equal amounts are equal and hash alike; a type with 0 is not an absent one."""
    assert r(a=1, b=2) == r(b=2, a=1)
    assert hash(r(a=1, b=2)) == hash(r(b=2, a=1))
    assert r(a=0) != NOTHING
    assert r(a=0, b=1).without_zeros() == r(b=1)
    assert repr(r(b=2, a=1)) == "Resources(a=1, b=2)"
