"""Amounts and numbers as people read them: in the units of ``queues.yaml``, not in base units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

MOST_NAMED: Final = 3
"""The most names that :func:`name_some` returns."""

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_FIRST: Final = ("vcore", "memory")
"""The types that come before all others."""


def format_quantity(name: str, amount: int) -> str:
    """Returns *amount* of type *name*: ``1.5`` or ``500m`` cores, ``4Gi`` of memory, other counts as ``12k``."""
    if name == "vcore":
        return f"{amount}m" if 0 < abs(amount) < 1000 else _trim_zeros(amount / 1000)
    if name == "memory" or name.startswith("hugepages-"):
        return _scale_amount(amount, 1024, _BINARY)
    return _scale_amount(amount, 1000, _DECIMAL)


def write_quantity(name: str, amount: int) -> str:
    """Returns *amount* of type *name* to the last unit, as ``queues.yaml`` writes it: ``13333m`` cores, ``6827Mi``."""
    if name == "vcore":
        return f"{amount}m" if amount % 1000 else f"{amount // 1000}"
    if name == "memory" and amount:
        size = max(size for size in range(len(_BINARY)) if amount % 1024**size == 0)
        return f"{amount // 1024**size}{_BINARY[size]}"
    return str(amount)


def format_quantities(amounts: Mapping[str, int]) -> str:
    """Returns amounts as ``vcore=1.5 memory=4Gi``; ``-`` for none."""
    return " ".join(f"{name}={format_quantity(name, amounts[name])}" for name in types_in_order([amounts])) or "-"


def format_count(number: int, thing: str, things: str = "") -> str:
    """Returns *number* of *thing* in words: ``1 ask``, ``2 asks``. *things*: a plural that is not regular."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {things or thing + 's'}"


def format_time(at_ns: int) -> str:
    """Returns a moment in UTC, to the second: ``2026-11-22T14:30:00Z``."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_some(names: Sequence[str]) -> str:
    """Returns the first of *names*, and how many more there are: ``n1, n2, n3 and 5 more``."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def types_in_order(several: Iterable[Mapping[str, int]]) -> list[str]:
    """Returns the types that occur, the well-known ones first."""
    found = {name for amounts in several for name in amounts}
    return [name for name in _FIRST if name in found] + sorted(found.difference(_FIRST))


def _scale_amount(amount: int, base: int, units: tuple[str, ...]) -> str:
    size = 0
    value = float(amount)
    while abs(value) >= base and size < len(units) - 1:
        value /= base
        size += 1
    return f"{_trim_zeros(value)}{units[size]}"


def _trim_zeros(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) < 100 else f"{value:.0f}"
