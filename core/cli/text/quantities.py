"""Amounts as people read them, and bars that show how much of something is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

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


def format_quantities(amounts: Mapping[str, int]) -> str:
    """Returns amounts as ``vcore=1.5 memory=4Gi``; ``-`` for none."""
    return " ".join(f"{name}={format_quantity(name, amounts[name])}" for name in types_in_order([amounts])) or "-"


def types_in_order(several: Iterable[Mapping[str, int]]) -> list[str]:
    """Returns the types that occur, the well-known ones first."""
    found = {name for amounts in several for name in amounts}
    return [name for name in _FIRST if name in found] + sorted(found.difference(_FIRST))


class Strokes(NamedTuple):
    """The characters that bars are drawn with."""

    full: str
    empty: str
    mark: str
    branch: str
    last: str
    pass_by: str
    left_out: str
    """Stands for the middle of a name that is too long."""


UNICODE: Final = Strokes("█", "░", "│", "├─ ", "└─ ", "│  ", "…")
ASCII: Final = Strokes("#", ".", "|", "|- ", "`- ", "|  ", "~")


def strokes_for(encoding: str | None) -> Strokes:
    """Returns the strokes that a terminal with *encoding* can show."""
    try:
        "".join(UNICODE).encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE


def draw_bar(used: int, whole: int, width: int, strokes: Strokes, mark: int | None = None) -> str:
    """Returns *used* of *whole* in *width* columns; anything above 0 shows. *mark*: an amount to point at."""
    cells = [strokes.empty] * width
    if used > 0:
        filled = width if whole <= 0 else max(1, min(width, used * width // whole))
        cells[:filled] = [strokes.full] * filled
    if mark is not None and mark > 0 and whole > 0:
        cells[min(width - 1, mark * width // whole)] = strokes.mark
    return "".join(cells)


def format_percent(used: int, whole: int) -> str:
    """Returns *used* of *whole* in whole percent; ``-`` if *whole* is 0."""
    return f"{used * 100 // whole}%" if whole > 0 else "-"


def format_time(at_ns: int) -> str:
    """Returns a moment in UTC, to the second: ``2026-11-22T14:30:00Z``."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_age(ns: int) -> str:
    """Returns a duration in its largest two units: ``3d4h``, ``5m10s``."""
    seconds = max(0, ns) // 10**9
    for unit, size, below, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // smaller}{below}"
    return f"{seconds}s"


def _scale_amount(amount: int, base: int, units: tuple[str, ...]) -> str:
    size = 0
    value = float(amount)
    while abs(value) >= base and size < len(units) - 1:
        value /= base
        size += 1
    return f"{_trim_zeros(value)}{units[size]}"


def _trim_zeros(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) < 100 else f"{value:.0f}"
