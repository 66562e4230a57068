"""The common part of all streams of events, over REST and gRPC: their number, their pace, and encoded events.

A hundred clients that follow a busy core must not slow it down (5 % at most). So an event is encoded once for all of
them, and each gets what came meanwhile in one piece after a pause that grows with their number. In one pause each gets
so much that all together stay below a rate, a higher one while the core has little to do. One that falls behind because
of that catches up when the core is less busy, or misses what the ring does not keep so long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from kornel.core.config.event_settings import EventSettings
from kornel.core.service.addresses import address_block
from kornel.core.service.status_codes import EventStreamsFull

T = TypeVar("T")

LEAST_PAUSE_S: Final = 0.05
PAUSE_PER_STREAM_S: Final = 0.01
EVENTS_PER_S: Final = 100_000
"""Events sent in a second, over all streams, while the core is busy."""

EVENTS_PER_S_OF_ONE: Final = 20_000
"""Events sent in a second to one client; what others do not share has to be encoded for it alone."""

QUIET_FACTOR: Final = 10
"""The factor by which more may be sent while the core is not busy."""

BUSY: Final = 0.6
"""The part of one processor from which on the core counts as busy."""

LOOK_S: Final = 0.5
"""The interval between two measurements of how busy it is."""

ENCODED_KEPT: Final = 65_536
"""Events kept as bytes, at most, while somebody follows."""

RUN: Final = 256
"""Events that are kept in one piece, too."""

WRITE_PATIENCE_S: Final = 5.0
"""A client that takes nothing for so long is dropped (rest.md 4.2)."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenStream:
    """A stream of events that is open. ``host``: address of the client, without its port. ``opened_ns``: Unix
    nanoseconds."""

    host: str
    opened_ns: int


class StreamPlaces:
    """The open streams. The limits of *settings* hold for new ones only."""

    def __init__(self, settings: Callable[[], EventSettings]) -> None:
        self._settings = settings
        self.budget = Budget()
        """The budget of all streams together."""
        self._open: dict[OpenStream, None] = {}
        self.dropped = 0
        """Streams ended so far because their client read too slowly."""
        self.missed = 0
        """Events overwritten so far before a stream could tell them, over all streams."""

    def __len__(self) -> int:
        return len(self._open)

    def open_streams(self) -> tuple[OpenStream, ...]:
        """Returns the streams that are open, the oldest first."""
        return tuple(self._open)

    @contextmanager
    def take_place(self, host: str, now_ns: int) -> Iterator[OpenStream]:
        """Count a stream of *host* as open. Raises :class:`EventStreamsFull`."""
        settings, block = self._settings(), address_block(host)
        if len(self._open) >= settings.streams:
            raise EventStreamsFull(f"{len(self._open)} event streams are open, the limit is {settings.streams}")
        of_host = sum(address_block(stream.host) == block for stream in self._open)
        if of_host >= settings.streams_per_host:
            most = settings.streams_per_host
            raise EventStreamsFull(f"{of_host} event streams of {block} are open, the limit for one host is {most}")
        stream = OpenStream(host, now_ns)
        self._open[stream] = None
        try:
            yield stream
        finally:
            del self._open[stream]


class Budget:
    """The number of events that may be sent in a second, by how busy the process is. Times in seconds."""

    def __init__(self, processor_s: Callable[[], float] = time.process_time) -> None:
        """Makes a budget. *processor_s*: processor time of the process so far, that of all its threads."""
        self._processor_s = processor_s
        self._looked_at_s: float | None = None
        self._used_s = 0.0
        self._factor = 1

    def speed_factor(self, now_s: float) -> int:
        """Returns how much more than under full load may be sent."""
        if self._looked_at_s is not None and now_s - self._looked_at_s < LOOK_S:
            return self._factor
        used_s = self._processor_s()
        if self._looked_at_s is not None:
            busy = (used_s - self._used_s) / (now_s - self._looked_at_s)
            self._factor = 1 if busy > BUSY else QUIET_FACTOR
        self._looked_at_s, self._used_s = now_s, used_s
        return self._factor


class Pace:
    """When one stream may send again, and how much. Waits on the event loop's own clock."""

    def __init__(self, places: StreamPlaces) -> None:
        self._places = places
        self._next_s = 0.0

    async def wait_for_turn(self) -> int:
        """Waits for the next turn, not at all after a rest. Returns the most events to send in it."""
        loop = asyncio.get_running_loop()
        streams = max(1, len(self._places))
        pause_s = max(LEAST_PAUSE_S, streams * PAUSE_PER_STREAM_S)
        wait_s = self._next_s - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        now_s = loop.time()
        self._next_s = now_s + pause_s
        rate = min(EVENTS_PER_S_OF_ONE, EVENTS_PER_S / streams) * self._places.budget.speed_factor(now_s)
        return max(1, int(rate * pause_s))


class Encodings(Generic[T]):
    """Entries of a ring as bytes, each encoded once however many streams send it."""

    def __init__(self, encode: Callable[[int, T], bytes]) -> None:
        """Makes an empty cache. *encode* gets the number of an entry and the entry."""
        self._encode = encode
        self._encoded: dict[int, bytes] = {}
        self._runs: dict[int, bytes] = {}

    def encode_each(self, first_id: int, entries: Sequence[T]) -> list[bytes]:
        """Returns *entries*, which are numbered from *first_id* on, as bytes."""
        return [self.encode_one(number, entry) for number, entry in enumerate(entries, first_id)]

    def encode_one(self, number: int, entry: T) -> bytes:
        """Returns *entry*, which has this *number*, as bytes."""
        known = self._encoded
        encoded = known.get(number)
        if encoded is None:
            encoded = known[number] = self._encode(number, entry)
            if len(known) > ENCODED_KEPT:
                for old in list(islice(known, ENCODED_KEPT // 2)):
                    del known[old]
        return encoded

    def encode_joined(self, first_id: int, entries: Sequence[T]) -> bytes:
        """Returns the same as :meth:`encode_each`, in one piece."""
        parts = []
        at, end_id = first_id, first_id + len(entries)
        while at < end_id:
            stop = min(at - at % RUN + RUN, end_id)
            if stop - at == RUN:
                parts.append(self._run(at, entries[at - first_id : stop - first_id]))
            else:
                parts += self.encode_each(at, entries[at - first_id : stop - first_id])
            at = stop
        return b"".join(parts)

    def _run(self, first_id: int, entries: Sequence[T]) -> bytes:
        known = self._runs.get(first_id)
        if known is None:
            if len(self._runs) >= ENCODED_KEPT // RUN:
                del self._runs[next(iter(self._runs))]
            known = self._runs[first_id] = b"".join(self.encode_each(first_id, entries))
        return known
