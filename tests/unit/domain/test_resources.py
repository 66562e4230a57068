"""Resource arithmetic against the worked examples of scheduling.md 22, by their numbers."""

from __future__ import annotations

import pytest

from kornel.core.domain.resources import (
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    Resources,
    add,
    compare_shares,
    component_max,
    component_min,
    equals_amounts,
    equals_or_empty,
    fits_actual,
    fits_undefined_unlimited,
    fits_within,
    greater_or_equal_only_existing,
    match_any,
    multiply_amounts,
    scale_amounts,
    shares_of,
    strictly_greater,
    strictly_greater_than_zero,
    subtract_amounts,
    used_percent,
)


def r(**amounts: int) -> Resources:
    return Resources(amounts)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (add(r(a=INT64_MAX), r(a=1)), r(a=INT64_MAX)),
        (add(r(a=INT64_MIN), r(a=-1)), r(a=INT64_MIN)),
        (multiply_amounts(r(a=INT64_MAX), 2), r(a=INT64_MAX)),
        (multiply_amounts(r(a=INT64_MIN), -1), r(a=INT64_MAX)),
        (subtract_amounts(r(a=0), r(a=INT64_MIN)), r(a=INT64_MAX)),
        (subtract_amounts(r(a=INT64_MIN), r(a=1)), r(a=INT64_MIN)),
    ],
)
def test_example_5_results_saturate(result: Resources, expected: Resources) -> None:
    """Sums and products stop at the ends of a signed 64-bit integer."""
    assert result == expected


def test_example_6_ratio_cuts_off_toward_zero() -> None:
    """A ratio leaves whole amounts, cut off toward zero on both sides."""
    assert scale_amounts(r(a=10, b=-10), 0.55) == r(a=5, b=-5)


@pytest.mark.parametrize("ratio", [2.0**63, -(2.0**63)])
def test_a_huge_ratio_saturates(ratio: float) -> None:
    """A float at the edge of 64 bits does not overflow."""
    assert scale_amounts(r(a=1), ratio)["a"] in (INT64_MAX, INT64_MIN)


@pytest.mark.parametrize(
    ("small", "in_fit", "in_undefined"),
    [(r(a=10), True, True), (r(a=11), False, False), (r(b=1), False, True), (r(b=0), True, True)],
)
def test_example_7_what_fits(small: Resources, in_fit: bool, in_undefined: bool) -> None:
    """A type the limit lacks counts as 0 for nodes and as unlimited for quotas."""
    assert fits_within(r(a=10), small) is in_fit
    assert fits_undefined_unlimited(r(a=10), small) is in_undefined


def test_example_8_negative_limits() -> None:
    """A negative limit counts as 0 in a fit check and as it is in preemption arithmetic."""
    assert fits_within(r(a=-5), r(a=0))
    assert fits_undefined_unlimited(r(a=-5), r(a=0))
    assert not fits_actual(r(a=-5), r(a=0))


@pytest.mark.parametrize(
    ("limit", "small", "expected"),
    [
        (None, r(a=1), (False, True, True)),
        (None, r(a=0), (True, True, True)),
        (r(a=1), None, (True, True, True)),
        (None, None, (True, True, True)),
        (NOTHING, r(a=1), (False, True, True)),
    ],
)
def test_fit_without_a_resource(
    limit: Resources | None, small: Resources | None, expected: tuple[bool, bool, bool]
) -> None:
    """No limit at all is empty for nodes and unlimited for quotas; nothing fits everywhere (2.3)."""
    assert (fits_within(limit, small), fits_undefined_unlimited(limit, small), fits_actual(limit, small)) == expected


def test_example_9_least_and_greatest() -> None:
    """The lesser keeps a type that one side lacks, the greater counts it 0 and knows no absent side."""
    assert component_min(r(a=5), r(a=3, b=7)) == r(a=3, b=7)
    assert component_max(r(a=5), r(b=7)) == r(a=5, b=7)
    assert component_max(None, r(a=5)) == NOTHING
    assert component_min(None, r(a=5)) == r(a=5)
    assert component_min(None, None) is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (r(a=2, b=1), r(a=1, b=1), True),
        (r(a=1), r(a=1), False),
        (r(a=2), r(b=1), False),
        (r(a=2), NOTHING, True),
    ],
)
def test_example_10_strictly_greater(left: Resources, right: Resources, expected: bool) -> None:
    """No type is smaller and at least one differs."""
    assert strictly_greater(left, right) is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (r(a=10), r(b=100), True),
        (NOTHING, r(a=1), False),
        (r(a=0), NOTHING, False),
        (r(a=1), r(a=1, b=9), True),
        (r(a=1), NOTHING, True),
        (r(a=0), r(a=1), False),
    ],
)
def test_example_11_or_equal_among_existing(left: Resources, right: Resources, expected: bool) -> None:
    """Only the types of the left side are looked at; against nothing all of them must be above 0."""
    assert greater_or_equal_only_existing(left, right) is expected


def test_example_12_equality() -> None:
    """An absent resource equals only an absent one, unless empty counts as the same."""
    assert not equals_amounts(None, NOTHING)
    assert equals_amounts(r(a=0), NOTHING)
    assert equals_amounts(None, None)
    assert equals_or_empty(None, r(a=0))


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
    assert strictly_greater_than_zero(r(a=1, b=0))
    assert not strictly_greater_than_zero(r(a=0))
    assert not strictly_greater_than_zero(r(a=1, b=-1))
    assert not strictly_greater_than_zero(None)


def test_match_any_ignores_amounts() -> None:
    """One common type name is enough."""
    assert match_any(r(a=0), r(a=9))
    assert not match_any(r(a=1), r(b=1))
    assert not match_any(None, r(a=1))


def test_resources_are_values() -> None:
    """Equal amounts are equal and hash alike; a type with 0 is not an absent one."""
    assert r(a=1, b=2) == r(b=2, a=1)
    assert hash(r(a=1, b=2)) == hash(r(b=2, a=1))
    assert r(a=0) != NOTHING
    assert r(a=0, b=1).without_zeros() == r(b=1)
    assert repr(r(b=2, a=1)) == "Resources(a=1, b=2)"
