"""The extra settings about events and the stored history (config.md 12.1, rest.md 5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_CAPACITY: Final = 1_000
DEFAULT_RING_CAPACITY: Final = 100_000
DEFAULT_STREAMS: Final = 100
DEFAULT_STREAMS_PER_HOST: Final = 15
DEFAULT_RESPONSE_SIZE: Final = 10_000
LARGEST_RING: Final = 10_000_000
"""The largest ring of events, which takes several gigabytes."""

TRACKING_KEY: Final = "event.trackingEnabled"
CAPACITY_KEY: Final = "event.requestCapacity"
RING_CAPACITY_KEYS: Final = ("event.ringBufferCapacity", "event.ringbufferCapacity")
"""The keys of the ring's capacity; if both are given, the first one counts."""
STREAMS_KEY: Final = "event.maxStreams"
STREAMS_PER_HOST_KEY: Final = "event.maxStreamsPerHost"
RESPONSE_SIZE_KEY: Final = "event.RESTResponseSize"

HISTORY_KEY: Final = "history.enabled"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_COUNT: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The settings of events.

    tracking          tells whether events are recorded
    capacity          the most events sent to the shim in one interval
    ring_capacity     the most events kept to be read later
    streams           the most streams of events open at once, over REST and gRPC together; 0: none
    streams_per_host  the most of them for each host; 0: none
    response_size     the most events in one answer
    """

    tracking: bool = True
    capacity: int = DEFAULT_CAPACITY
    ring_capacity: int = DEFAULT_RING_CAPACITY
    streams: int = DEFAULT_STREAMS
    streams_per_host: int = DEFAULT_STREAMS_PER_HOST
    response_size: int = DEFAULT_RESPONSE_SIZE


def event_settings(extra_config: Mapping[str, str]) -> tuple[EventSettings, tuple[str, ...]]:
    """Returns the settings in *extra_config*, and the problems with them. A bad value means the default."""
    problems: list[str] = []

    def count(key: str, default: int, *, least: int = 1, most: int = 10**18) -> int:
        text = extra_config.get(key)
        if text is None:
            return default
        number = int(text) if _COUNT.fullmatch(text) else -1
        if least <= number <= most:
            return number
        wanted = "a positive number" if least else "a number of at least 0"
        if number > most:
            wanted = f"{most} at most"
        shown = text if len(text) <= 40 else text[:40] + "..."
        problems.append(f"{key}: {shown!r} is not {wanted}; using {default}")
        return default

    tracking = extra_config.get(TRACKING_KEY, "true")
    if tracking not in _TRUE | _FALSE:
        problems.append(f"{TRACKING_KEY}: {tracking!r} is neither true nor false; using true")
    ring_key = next((key for key in RING_CAPACITY_KEYS if key in extra_config), RING_CAPACITY_KEYS[0])
    settings = EventSettings(
        tracking=tracking not in _FALSE,
        capacity=count(CAPACITY_KEY, DEFAULT_CAPACITY),
        ring_capacity=count(ring_key, DEFAULT_RING_CAPACITY, most=LARGEST_RING),
        streams=count(STREAMS_KEY, DEFAULT_STREAMS, least=0),
        streams_per_host=count(STREAMS_PER_HOST_KEY, DEFAULT_STREAMS_PER_HOST, least=0),
        response_size=count(RESPONSE_SIZE_KEY, DEFAULT_RESPONSE_SIZE),
    )
    return settings, tuple(problems)


def keeps_history(extra_config: Mapping[str, str]) -> bool:
    """Tells whether the manager with *extra_config* wants its stored history."""
    return extra_config.get(HISTORY_KEY, "true") not in _FALSE
