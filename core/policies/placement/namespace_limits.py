"""Reads the limits that an application's tags set for its dynamic queue (protocol.md 4.3, config.md 7.8, B20)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kornel.core.domain.resources import INT64_MAX, INT64_MIN, NOTHING, Resources

QUOTA_TAG: Final = "namespace.resourcequota"
GUARANTEED_TAG: Final = "namespace.resourceguaranteed"
APPLICATIONS_TAG: Final = "namespace.resourcemaxapps"

_UINT64_MAX: Final = 2**64 - 1


class NamespaceLimits(NamedTuple):
    """The limits that tags ask for. ``None``: the limit stays as it is. Empty or 0: tags no longer set the limit."""

    max: Resources | None = None
    guaranteed: Resources | None = None
    max_applications: int | None = None


UNCHANGED: Final = NamespaceLimits()


def namespace_limits(tags: Mapping[str, str]) -> NamespaceLimits:
    """Returns the limits in *tags* (keys in lower case). A tag with an invalid value changes nothing.

    An empty value says that the namespace no longer has the limit.
    """
    if QUOTA_TAG not in tags and GUARANTEED_TAG not in tags and APPLICATIONS_TAG not in tags:
        return UNCHANGED
    return NamespaceLimits(
        _parse_amounts(tags.get(QUOTA_TAG)),
        _parse_amounts(tags.get(GUARANTEED_TAG)),
        _parse_count(tags.get(APPLICATIONS_TAG)),
    )


def _parse_count(text: str | None) -> int | None:
    if text == "":
        return 0
    if text is None or len(text) > 20 or not (text.isascii() and text.isdigit()):
        return None
    count = int(text)
    return count if 0 < count <= _UINT64_MAX else None


def _parse_amounts(text: str | None) -> Resources | None:
    """Returns the amounts of a ``Resource`` message in JSON, if at least one is above 0 and none is negative."""
    if text is None:
        return None
    if not text:
        return NOTHING
    try:
        amounts = Resources(
            {name: _parse_amount(quantity) for name, quantity in _find_field(json.loads(text), "resources").items()}
        )
    except (ValueError, RecursionError):
        return None
    return amounts if amounts.is_something() else None


def _find_field(message: Any, name: str) -> dict[str, Any]:
    value = message.get(name) if isinstance(message, dict) else None
    if not isinstance(value, dict):
        raise ValueError(f"no object {name!r}")
    return value


def _parse_amount(quantity: Any) -> int:
    """Returns the number of a ``Quantity``: a whole number of 64 bits, which JSON may also write as text; 0 if absent,
    as in proto3."""
    if not isinstance(quantity, dict):
        raise ValueError("a quantity is an object")
    value = quantity.get("value", 0)
    if isinstance(value, str):
        value = int(value) if len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit() else None
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("a value is a whole number")
    return value
