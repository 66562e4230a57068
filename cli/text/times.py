"""Writes times and durations for people: times in UTC, with their distance from now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kornel.shared.readable_amounts import format_time

_SECOND_NS: Final = 10**9
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def format_age(ns: int) -> str:
    """Returns a duration in its largest two units, for a cell of a table: ``3d4h``, ``5m10s``."""
    return "".join(f"{count}{unit}" for count, unit in _largest_units(ns))


def format_duration(ns: int) -> str:
    """Returns a duration in its largest two units, for a sentence: ``3 d 4 h``, ``5 min 10 s``."""
    return " ".join(f"{count} {'min' if unit == 'm' else unit}" for count, unit in _largest_units(ns))


def format_moment(at_ns: int, now_ns: int) -> str:
    """Returns a moment with its distance from now: ``2026-11-22T14:30:00Z (in 12 s)``, or ``(12 s ago)``."""
    distance = at_ns - now_ns
    if abs(distance) < _SECOND_NS:
        return f"{format_time(at_ns)} (now)"
    away = f"in {format_duration(distance)}" if distance > 0 else f"{format_duration(-distance)} ago"
    return f"{format_time(at_ns)} ({away})"


def _largest_units(ns: int) -> Iterator[tuple[int, str]]:
    seconds = max(0, ns) // _SECOND_NS
    for at, (unit, size) in enumerate(_UNITS):
        if seconds >= size or size == 1:
            yield seconds // size, unit
            if at + 1 < len(_UNITS):
                smaller, smaller_size = _UNITS[at + 1]
                yield seconds % size // smaller_size, smaller
            return
