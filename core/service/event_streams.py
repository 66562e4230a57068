"""What all streams of events share, over REST and gRPC: how many there may be, their pace, and encoded events.

A hundred clients that follow a busy core must not slow it down (5 % at most). So an event is encoded once for all of
them, and each gets what came meanwhile in one piece after a pause that grows with their number. In one pause each gets
so much that all together stay below a fixed rate. One that falls behind because of that catches up when the core is
less busy, or misses what the ring does not keep so long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from core.config.event_settings import EventSettings
from core.service.status_codes import EventStreamsFull

T = TypeVar("T")

LEAST_PAUSE_S: Final = 0.05
PAUSE_PER_STREAM_S: Final = 0.01
EVENTS_PER_S: Final = 200_000
"""Events sent in a second, over all streams."""

EVENTS_PER_S_OF_ONE: Final = 20_000
"""Events sent in a second to one client; what others do not share has to be encoded for it alone."""

ENCODED_KEPT: Final = 65_536
"""Events kept as bytes, at most, while somebody follows."""

WRITE_PATIENCE_S: Final = 5.0
"""A client that takes nothing for so long is dropped (rest.md 4.2)."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenStream:
    """``host``: address of the client, without its port. ``opened_ns``: Unix nanoseconds."""

    host: str
    opened_ns: int


class StreamPlaces:
    """Which streams are open. The limits of *settings* hold for new ones only."""

    def __init__(self, settings: Callable[[], EventSettings]) -> None:
        self._settings = settings
        self._open: dict[OpenStream, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def streams(self) -> tuple[OpenStream, ...]:
        """The open ones, oldest first."""
        return tuple(self._open)

    @contextmanager
    def place(self, host: str, now_ns: int) -> Iterator[OpenStream]:
        """Count a stream of *host* as open. Raises :class:`EventStreamsFull`."""
        settings = self._settings()
        if len(self._open) >= settings.streams:
            raise EventStreamsFull(f"{len(self._open)} event streams are open, the limit is {settings.streams}")
        of_host = sum(stream.host == host for stream in self._open)
        if of_host >= settings.streams_per_host:
            most = settings.streams_per_host
            raise EventStreamsFull(f"{of_host} event streams of {host} are open, the limit for one host is {most}")
        stream = OpenStream(host, now_ns)
        self._open[stream] = None
        try:
            yield stream
        finally:
            del self._open[stream]


class Pace:
    """When one stream may send again, and how much. Waits on the event loop's own clock."""

    def __init__(self, places: StreamPlaces) -> None:
        self._places = places
        self._next_s = 0.0

    async def turn(self) -> int:
        """Wait for the next turn, not at all after a rest. Most events to send in it."""
        loop = asyncio.get_running_loop()
        streams = max(1, len(self._places))
        pause_s = max(LEAST_PAUSE_S, streams * PAUSE_PER_STREAM_S)
        wait_s = self._next_s - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._next_s = loop.time() + pause_s
        return max(1, int(min(EVENTS_PER_S_OF_ONE, EVENTS_PER_S / streams) * pause_s))


class Encodings(Generic[T]):
    """Entries of a ring as bytes, each encoded once however many streams send it."""

    def __init__(self, encode: Callable[[int, T], bytes]) -> None:
        """*encode* gets the number of an entry and the entry."""
        self._encode = encode
        self._encoded: dict[int, bytes] = {}

    def of(self, first_id: int, entries: Sequence[T]) -> list[bytes]:
        """*entries*, which are numbered from *first_id* on, as bytes."""
        known, encode = self._encoded, self._encode
        found = []
        for number, entry in enumerate(entries, first_id):
            encoded = known.get(number)
            if encoded is None:
                encoded = known[number] = encode(number, entry)
            found.append(encoded)
        if len(known) > ENCODED_KEPT:
            for number in list(islice(known, len(known) - ENCODED_KEPT // 2)):
                del known[number]
        return found
