"""How single values are written (rest.md 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from core.domain.resources import Resources, clamp, used_percent

_SECOND_NS: Final = 10**9
_MINUTE_NS: Final = 60 * _SECOND_NS
_HOUR_NS: Final = 60 * _MINUTE_NS


def present(document: dict[str, Any]) -> dict[str, Any]:
    """*document* without what is 0, false, empty or unset."""
    return {key: value for key, value in document.items() if value}


def amounts(resources: Mapping[str, int] | None) -> dict[str, int]:
    """A resource map in 64 bits: the books are exact, the sum of two quantities may be none. Not to be changed."""
    if resources is None:
        return {}
    return resources.listed() if isinstance(resources, Resources) else Resources(resources).listed()


def clamped(amount: int) -> int:
    """*amount* in 64 bits."""
    return clamp(amount)


def percents(used: Resources, capacity: Resources | None) -> dict[str, int]:
    """A percent map: *used* of *capacity*, in whole percent cut off, for types that both have."""
    if capacity is None:
        return {}
    found = used_percent(used, capacity)
    return {name: found[name] for name in sorted(found)} if len(found) > 1 else found


def texts(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A string map by key."""
    return dict(sorted(pairs))


def duration(ns: int) -> str:
    """A duration as Go writes it: ``0s``, ``1.5s``, ``500ms``, ``1m0s``, ``1h30m0s``."""
    if ns < 0:
        return f"-{duration(-ns)}"
    if not ns:
        return "0s"
    if ns < _SECOND_NS:
        for unit, size in (("ms", 10**6), ("µs", 10**3)):
            if ns >= size:
                return f"{_decimal(ns, size)}{unit}"
        return f"{ns}ns"
    hours, rest = divmod(ns, _HOUR_NS)
    minutes, rest = divmod(rest, _MINUTE_NS)
    seconds = f"{_decimal(rest, _SECOND_NS)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def rfc3339(ns: int) -> str:
    """A time as RFC 3339 text in UTC, with as many digits of the second as it has."""
    seconds, rest = divmod(ns, _SECOND_NS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")
