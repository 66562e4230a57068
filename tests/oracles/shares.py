"""The shares of resources in a total, and their comparison, as the rules define them (scheduling.md 2.5)."""

from __future__ import annotations

from collections.abc import Mapping


def shares_of(resources: Mapping[str, int], total: Mapping[str, int]) -> list[float]:
    """Returns the share of each type in *total*, ascending; the last is the dominant share.

    The share of 0 is 0; a type whose total is absent or 0 contributes its raw amount.
    """
    result: list[float] = []
    for name, amount in resources.items():
        base = total.get(name, 0)
        result.append(float(amount) if amount == 0 or base == 0 else amount / base)
    return sorted(result)


def compare_shares(left: list[float], right: list[float]) -> int:
    """Returns -1, 0 or 1 for two ascending share lists, compared from the largest share downwards."""
    for mine, other in zip(reversed(left), reversed(right), strict=False):
        if mine != other:
            return 1 if mine > other else -1
    longer, sign = (left, 1) if len(left) > len(right) else (right, -1)
    for rest in reversed(longer[: abs(len(left) - len(right))]):
        if rest:
            return sign if rest > 0 else -sign
    return 0
