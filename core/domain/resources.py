"""Amounts of resources by type name, and the arithmetic that the rules define for them.

Quantities are integers in base units: ``vcore`` in thousandths of a core, ``memory`` in bytes, everything else a
plain count. Results saturate at the ends of a signed 64-bit integer. ``None`` (no resource at all), an absent type, and
a type with amount 0 are three different things; every function says which of them it expects.

Rules: scheduling.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

MAX_TYPES: Final = 1024
"""The most resource types that the nodes, the configuration and the running work of one partition may name."""


def clamp_int64(value: int) -> int:
    """Returns *value*, cut to the range of a signed 64-bit integer."""
    if value > INT64_MAX:
        return INT64_MAX
    if value < INT64_MIN:
        return INT64_MIN
    return value


class Resources(Mapping[str, int]):
    """Immutable amounts by resource type. An absent type counts as 0 unless a function says otherwise.

    They are compared as mappings, so ``{"a": 0}`` differs from ``{}``; :func:`equals_amounts` compares them by the
    rules. They are hashable, so that equal demands can share a record.
    """

    __slots__ = ("_amounts", "_hash", "_listed", "_sign")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts: dict[str, int] = dict(amounts) if amounts else {}
        self._hash: int | None = None
        self._sign: int | None = None
        """The sign, computed on demand: -1 if an amount is negative, 0 if all are 0 or there is none, otherwise 1."""
        self._listed: dict[str, int] | None = None

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._amounts.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[Resources], tuple[dict[str, int]]]:
        return Resources, (self._amounts,)  # The hash differs between processes.

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Resources):
            return self._amounts == other._amounts
        return NotImplemented

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={amount}" for name, amount in sorted(self._amounts.items()))
        return f"Resources({inner})"

    def as_dict(self) -> dict[str, int]:
        """Returns a copy, which the caller may change, as cheaply as possible."""
        return self._amounts.copy()

    def listed(self) -> dict[str, int]:
        """Returns the amounts by name, each cut to 64 bits. The result is made once and must not be changed."""
        listed = self._listed
        if listed is None:
            amounts = self._amounts
            listed = self._listed = {name: clamp_int64(amounts[name]) for name in sorted(amounts)}
        return listed

    def is_zero(self) -> bool:
        """Tells whether every amount is 0, or there is none."""
        return (self._check_amount() if self._sign is None else self._sign) == 0

    def is_something(self) -> bool:
        """Tells whether some amount is above 0 and none below."""
        return (self._check_amount() if self._sign is None else self._sign) > 0

    def has_negative(self) -> bool:
        """Tells whether any amount is below 0."""
        return (self._check_amount() if self._sign is None else self._sign) < 0

    def _check_amount(self) -> int:
        amounts = self._amounts.values()
        self._sign = -1 if min(amounts, default=0) < 0 else int(any(amounts))
        return self._sign

    def without_zeros(self) -> Resources:
        """Returns the same amounts without types of 0 (*prune* in the rules)."""
        return Resources({name: amount for name, amount in self._amounts.items() if amount})


NOTHING: Final = Resources()

amounts_of: Final[Callable[[Resources], dict[str, int]]] = attrgetter("_amounts")
"""Returns the amounts themselves, which must not be changed, for serializers that read millions of them and copy them
anyway."""


def _or_empty(resources: Resources | None) -> Resources:
    return NOTHING if resources is None else resources


def add(left: Resources | None, right: Resources | None) -> Resources:
    """Returns the sum by type; an absent type counts as 0."""
    total = dict(_or_empty(left))
    for name, amount in _or_empty(right).items():
        total[name] = clamp_int64(total.get(name, 0) + amount)
    return Resources(total)


def subtract_amounts(left: Resources | None, right: Resources | None) -> Resources:
    """Returns the difference by type, which may be negative; an absent type counts as 0."""
    total = dict(_or_empty(left))
    for name, amount in _or_empty(right).items():
        total[name] = clamp_int64(total.get(name, 0) - amount)
    return Resources(total)


def multiply_amounts(resources: Resources | None, factor: int) -> Resources:
    """Returns every amount times *factor*; no amounts for ``None`` or factor 0."""
    if resources is None or factor == 0:
        return NOTHING
    return Resources({name: clamp_int64(amount * factor) for name, amount in resources.items()})


def scale_amounts(resources: Resources | None, ratio: float) -> Resources:
    """Returns every amount times *ratio*, rounded toward zero."""
    if resources is None or ratio == 0:
        return NOTHING
    return Resources({name: clamp_int64(int(amount * ratio)) for name, amount in resources.items()})


def component_min(left: Resources | None, right: Resources | None) -> Resources | None:
    """Returns the smaller amount of each type; a type that only one side has keeps its amount."""
    if left is None or right is None:
        return right if left is None else left
    least = dict(right)
    for name, amount in left.items():
        least[name] = min(amount, least[name]) if name in least else amount
    return Resources(least)


def component_max(left: Resources | None, right: Resources | None) -> Resources:
    """Returns the larger amount of each type, where an absent one counts as 0; empty if either side is ``None``."""
    if left is None or right is None:
        return NOTHING
    return Resources({name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}})


def fits_within(limit: Resources | None, small: Resources | None) -> bool:
    """Tells whether *small* fits into *limit*, in which an absent or negative type counts as 0. It is used for nodes
    and the root."""
    bound = _or_empty(limit)
    return all(amount <= max(0, bound.get(name, 0)) for name, amount in _or_empty(small).items())


def fits_undefined_unlimited(limit: Resources | None, small: Resources | None) -> bool:
    """Tells whether *small* fits into *limit*, in which an absent type is unlimited and a negative one counts as 0. It
    is used for headroom of queues and users, and for configurations."""
    if limit is None:
        return True
    return all(amount <= max(0, limit[name]) for name, amount in _or_empty(small).items() if name in limit)


def fits_actual(limit: Resources | None, small: Resources | None) -> bool:
    """Tells whether *small* fits into *limit*, in which an absent type is unlimited and a negative one is used as it
    is. It is used for preemption."""
    if limit is None:
        return True
    return all(amount <= limit[name] for name, amount in _or_empty(small).items() if name in limit)


def equals_amounts(left: Resources | None, right: Resources | None) -> bool:
    """Tells whether all types are equal, where an absent one counts as 0. ``None`` equals only ``None``."""
    if left is None or right is None:
        return left is right
    return all(left.get(name, 0) == right.get(name, 0) for name in {**left, **right})


def equals_or_empty(left: Resources | None, right: Resources | None) -> bool:
    """Tells whether all types are equal as in :func:`equals_amounts`, but with ``None`` the same as no amounts."""
    return equals_amounts(_or_empty(left), _or_empty(right))


def strictly_greater(left: Resources | None, right: Resources | None) -> bool:
    """Tells whether no type is smaller on the left and at least one is larger; an absent one counts as 0."""
    big, small = _or_empty(left), _or_empty(right)
    differences = [big.get(name, 0) - small.get(name, 0) for name in {**big, **small}]
    return all(d >= 0 for d in differences) and any(differences)


def strictly_greater_than_zero(resources: Resources | None) -> bool:
    """Tells whether at least one amount is above 0 and none is below; false for ``None``."""
    return strictly_greater(resources, NOTHING)


def greater_or_equal_only_existing(left: Resources | None, right: Resources | None) -> bool:
    """Tells whether, among the types of *left*, none is smaller than on the right (scheduling.md 2.4)."""
    big, small = _or_empty(left), _or_empty(right)
    if not big:
        return False
    if not small:
        return all(amount > 0 for amount in big.values())
    return all(amount >= small[name] for name, amount in big.items() if name in small)


def match_any(left: Resources | None, right: Resources | None) -> bool:
    """Tells whether both have at least one type in common, whatever the amounts."""
    other = _or_empty(right)
    return any(name in other for name in _or_empty(left))


def shares_of(resources: Resources | None, total: Resources | None) -> list[float]:
    """Returns the share of each type in *total*, ascending; the last is the dominant share.

    The share of 0 is 0; a type whose total is absent or 0 contributes its raw amount (scheduling.md 2.5).
    """
    whole = _or_empty(total)
    result: list[float] = []
    for name, amount in _or_empty(resources).items():
        base = whole.get(name, 0)
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


def used_percent(used: Resources, capacity: Resources) -> dict[str, int]:
    """Returns the part of *capacity* that is used in whole percent, for types that both have; it may exceed 100
    (scheduling.md 2.5)."""
    result: dict[str, int] = {}
    held = used.as_dict()
    if not held:
        return result
    for name, whole in capacity.as_dict().items():
        amount = held.get(name)
        if amount is None:
            continue
        if amount <= 0:
            result[name] = 0
        elif whole <= 0:
            result[name] = 100
        else:
            result[name] = min(amount * 100 // whole, 2**31 - 1)
    return result
