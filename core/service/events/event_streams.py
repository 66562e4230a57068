"""Holds what streams of events over REST and gRPC have in common: bounds of their number and pace, and encoded events.

A hundred clients that follow a busy core must not slow it down by more than 5 %. So an event is encoded once for all of
them, and each client gets the new events together after a pause that grows with the number of clients. The number of
events per pause is bounded, so that all streams together stay below a rate, which is higher while the core has little
to do. A client that falls behind because of that catches up when the core is less busy, or misses events that the ring
no longer keeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from kornel.core.config.keys.event_settings import EventSettings
from kornel.core.service.connections.callers import address_block
from kornel.core.service.wire.status_codes import EventStreamsFull

T = TypeVar("T")

LEAST_PAUSE_S: Final = 0.05
PAUSE_PER_STREAM_S: Final = 0.01
EVENTS_PER_S: Final = 100_000
"""The most events sent per second, over all streams, while the core is busy."""

EVENTS_PER_S_OF_ONE: Final = 20_000
"""The most events sent per second to one client, because events that no other client gets have to be encoded for it
alone."""

QUIET_FACTOR: Final = 10
"""The factor by which more may be sent while the core is not busy."""

BUSY: Final = 0.6
"""The part of one processor above which the core counts as busy."""

LOOK_S: Final = 0.5
"""The interval between two measurements of how busy it is."""

ENCODED_KEPT: Final = 65_536
"""The most events that are kept as bytes while clients follow."""

RUN: Final = 256
"""The number of consecutive events that are kept joined as well."""

WRITE_PATIENCE_S: Final = 5.0
"""The time after which a client that reads nothing is dropped (rest.md 4.2)."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenStream:
    """An open stream of events. ``host``: the address of the client, without its port. ``opened_ns``: in Unix
    nanoseconds."""

    host: str
    opened_ns: int


class StreamPlaces:
    """The open streams. The limits of *settings* apply to new ones only."""

    def __init__(self, settings: Callable[[], EventSettings]) -> None:
        self._settings = settings
        self.budget = Budget()
        """The budget of all streams together."""
        self._open: dict[OpenStream, None] = {}
        self.dropped = 0
        """The number of streams ended so far because their client read too slowly."""
        self.missed = 0
        """The number of events that streams have missed so far because they were dropped too early."""

    def __len__(self) -> int:
        return len(self._open)

    def open_streams(self) -> tuple[OpenStream, ...]:
        """Returns the streams that are open, the oldest first."""
        return tuple(self._open)

    @contextmanager
    def take_place(self, host: str, now_ns: int) -> Iterator[OpenStream]:
        """Counts a stream of *host* as open while the context lasts. Raises :class:`EventStreamsFull`."""
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
    """Determines how many events may be sent per second, by how busy the process is. Times are in seconds."""

    def __init__(self, processor_s: Callable[[], float] = time.process_time) -> None:
        """Makes a budget. *processor_s* returns the processor time of all threads of the process so far."""
        self._processor_s = processor_s
        self._looked_at_s: float | None = None
        self._used_s = 0.0
        self._factor = 1

    def speed_factor(self, now_s: float) -> int:
        """Returns by which factor more events may be sent than under full load."""
        if self._looked_at_s is not None and now_s - self._looked_at_s < LOOK_S:
            return self._factor
        used_s = self._processor_s()
        if self._looked_at_s is not None:
            busy = (used_s - self._used_s) / (now_s - self._looked_at_s)
            self._factor = 1 if busy > BUSY else QUIET_FACTOR
        self._looked_at_s, self._used_s = now_s, used_s
        return self._factor


class Pace:
    """Decides when one stream may send again, and how much. It waits by the clock of the event loop."""

    def __init__(self, places: StreamPlaces) -> None:
        self._places = places
        self._next_s = 0.0

    async def wait_for_turn(self) -> int:
        """Waits for the next turn, if the last one was not long ago. Returns the most events to send in it."""
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
    """Caches the entries of a ring as bytes, so that each is encoded once however many streams send it."""

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
