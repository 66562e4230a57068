"""The extra settings about events (config.md 12.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_CAPACITY: Final = 1_000

TRACKING_KEY: Final = "event.trackingEnabled"
CAPACITY_KEY: Final = "event.requestCapacity"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_COUNT: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """``capacity``: most events handed over in one interval. ``tracking``: whether there are any."""

    tracking: bool = True
    capacity: int = DEFAULT_CAPACITY


def event_settings(extra_config: Mapping[str, str]) -> tuple[EventSettings, tuple[str, ...]]:
    """What *extra_config* says of events, and what is wrong with it. A bad value means the default."""
    problems = []
    tracking = extra_config.get(TRACKING_KEY, "true")
    if tracking not in _TRUE | _FALSE:
        problems.append(f"{TRACKING_KEY}: {tracking!r} is neither true nor false, taking true")
    capacity = extra_config.get(CAPACITY_KEY, str(DEFAULT_CAPACITY))
    count = int(capacity) if _COUNT.fullmatch(capacity) else 0
    if not count:
        problems.append(f"{CAPACITY_KEY}: {capacity!r} is no positive number, taking {DEFAULT_CAPACITY}")
    return EventSettings(tracking not in _FALSE, count or DEFAULT_CAPACITY), tuple(problems)
