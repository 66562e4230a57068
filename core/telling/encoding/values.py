"""Defines the kinds of values in documents, and writes single values in JSON (rest.md 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.resources import Resources, clamp_int64, used_percent
from kornel.core.domain.secrets import without_secrets
from kornel.core.telling.encoding.documents import Kind

_SECOND_NS: Final = 10**9
_MINUTE_NS: Final = 60 * _SECOND_NS
_HOUR_NS: Final = 60 * _MINUTE_NS


def write_amounts(resources: Mapping[str, int] | None) -> dict[str, int]:
    """Returns a resource map cut to 64 bits, which must not be changed.

    The books are exact, so a sum of two quantities may be larger than a quantity can be.
    """
    if resources is None:
        return {}
    return resources.clamp_amounts() if isinstance(resources, Resources) else Resources(resources).clamp_amounts()


def percents_of(used: Resources, capacity: Resources | None) -> dict[str, int]:
    """Returns a percent map: *used* of *capacity*, in whole percent cut off, for types that both have."""
    if capacity is None:
        return {}
    found = used_percent(used, capacity)
    return {name: found[name] for name in sorted(found)} if len(found) > 1 else found


def drained_by(drain: OperatorDrain | None) -> str:
    """Returns who drains a node; empty: no operator does."""
    return drain.by if drain is not None else ""


def drained_at_ns(drain: OperatorDrain | None) -> int:
    """Returns since when an operator drains a node; 0: none does."""
    return drain.at_ns if drain is not None else 0


def write_texts(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns a string map by key."""
    return dict(sorted(pairs))


def write_duration(ns: int) -> str:
    """Returns a duration as Go writes it: ``0s``, ``1.5s``, ``500ms``, ``1m0s``, ``1h30m0s``."""
    if ns < 0:
        return f"-{write_duration(-ns)}"
    if not ns:
        return "0s"
    if ns < _SECOND_NS:
        for unit, size in (("ms", 10**6), ("µs", 10**3)):
            if ns >= size:
                return f"{_write_decimal(ns, size)}{unit}"
        return f"{ns}ns"
    hours, rest = divmod(ns, _HOUR_NS)
    minutes, rest = divmod(rest, _MINUTE_NS)
    seconds = f"{_write_decimal(rest, _SECOND_NS)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def write_time(ns: int) -> str:
    """Returns a time as RFC 3339 text in UTC, with as many digits of the second as it has."""
    seconds, rest = divmod(ns, _SECOND_NS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def write_second(ns: int) -> str:
    """Returns the second of a time as RFC 3339 text in UTC: ``2026-11-22T14:30:00Z``."""
    return write_time(ns // _SECOND_NS * _SECOND_NS)


def _write_decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")


def _sort_map(items: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(items.items()))


def _hide_secrets(items: Mapping[str, str]) -> dict[str, str]:
    return without_secrets(_sort_map(items))


def one_of(*words: str) -> Kind:
    """Returns the kind of texts that are one of *words*."""
    return Kind({"enum": [str(word) for word in words]})


def write_with(kind: Kind, write: Any) -> Kind:
    """Returns the same *kind* with values that *write* writes."""
    return Kind(kind.schema, write)


TEXT: Final = Kind({"type": "string"})
FLAG: Final = Kind({"type": "boolean"})
TRUTH: Final = write_with(FLAG, bool)
"""The kind of truth values that tell whether a number is not 0 or a list is not empty."""
COUNT: Final = Kind({"type": "integer", "minimum": 0})
WHOLE: Final = Kind({"type": "integer"})
AMOUNT: Final = write_with(WHOLE, clamp_int64)
INT32: Final = Kind({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1})
PRIORITY: Final = Kind({"type": "string", "pattern": "^-?[0-9]+$"}, str)
TIME_NS: Final = Kind({"type": "integer", "description": "Nanoseconds since the Unix epoch."})
DATE_TIME: Final = Kind({"type": "string", "format": "date-time"}, write_time)
TEXTS: Final = Kind({"type": "array", "items": TEXT.schema}, list)
TEXT_MAP: Final = Kind({"type": "object", "additionalProperties": TEXT.schema}, _sort_map)
TAGS: Final = write_with(TEXT_MAP, write_texts)
SETTINGS: Final = write_with(TEXT_MAP, _hide_secrets)
AMOUNTS: Final = Kind(
    {
        "type": "object",
        "additionalProperties": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        "description": "Amounts by resource type: memory in bytes, vcore in thousandths, others counted.",
    },
    Resources.clamp_amounts,
)
PERCENTS: Final = Kind(
    {
        "type": "object",
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "description": "Whole percent by resource type, cut off.",
    }
)
WEIGHTS: Final = Kind({"type": "object", "additionalProperties": {"type": "number"}}, _sort_map)
DURATION: Final = Kind({"type": "string", "pattern": r"^-?([0-9.]+(h|m|s|ms|µs|ns))+$"}, write_duration)
ANYTHING: Final = Kind({"type": "object"})
