"""Amounts of resources by type name.

Quantities are integers in base units: ``vcore`` in thousandths of a core, ``memory`` in bytes, everything else a
plain count. ``None`` (no resource at all), an absent type, and a type with amount 0 are three different things; every
function says which of them it expects.

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

    def clamp_amounts(self) -> dict[str, int]:
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
