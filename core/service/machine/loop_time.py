"""Divides the time of the event loop between the engines and the readers, which make long answers.

Readers work in short steps. Between two of its turns, the engine leaves them several times as long as its own turn
took, so that an answer is soon complete. It does so while they have credit, which grows by a fixed part of all time;
readers that need more wait until there is credit again. While the engine has nothing to do, no time is counted. Callers
who want what takes long stand in lines, which are served one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from kornel.core.service.wire.status_codes import TooMany

READERS_PART: Final = 0.16
"""The largest part of the time that readers get in the long run while the engine is busy."""

CREDIT_S: Final = 1.0
"""The most time that readers can save up."""

RATIO: Final = 4.0
"""The time for readers as a multiple of the engine's own, while there is credit."""

STEP_S: Final = 0.005
"""The longest step of a reader before other tasks have their turn."""

T = TypeVar("T")

LONGEST_REST_S: Final = 0.06
"""The longest time that the engine waits for readers, however long its own turn was."""

BREATHS: Final = 2
"""The turns of the event loop between two turns of the engine. A call takes several of them to be accepted, read and
answered, so with only one a health check would wait for as many slices. An empty turn costs some microseconds."""


class Sharing:
    """Divides the time of one event loop between engines and readers; :meth:`of_loop` returns the one of a loop.
    *clock* returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._readers: set[object] = set()
        self._engines: set[object] = set()
        """The engines that have something to do."""
        self._credit_s = CREDIT_S
        self._credited_at = clock()
        self._read_s = 0.0
        """The total time that readers have worked."""

    @staticmethod
    def of_loop() -> Sharing:
        """Returns the record of the running loop."""
        loop = asyncio.get_running_loop()
        sharing = _sharings.get(loop)
        if sharing is None:
            sharing = _sharings[loop] = Sharing()
        return sharing

    @property
    def readers(self) -> int:
        """The number of long answers that are being made or sent now."""
        return len(self._readers)

    @property
    def credit_s(self) -> float:
        """The time that readers may use before they have to wait."""
        now = self._clock()
        self._credit_s = min(CREDIT_S, self._credit_s + (now - self._credited_at) * READERS_PART)
        self._credited_at = now
        return self._credit_s

    @property
    def busy(self) -> bool:
        """Tells whether an engine has something to do."""
        return bool(self._engines)

    def note_idle(self, engine: object = None) -> None:
        """Notes that *engine* has nothing to do. While no engine has, readers need not wait."""
        self._engines.discard(engine)

    async def rest_after(self, took_s: float, engine: object = None) -> None:
        """Lets other tasks have their turn after a turn of *engine* that took *took_s*."""
        self._engines.add(engine)
        if not self._readers:
            await _yield_to_loop()
            return
        enough_s = self._read_s + took_s * RATIO
        ends = self._clock() + LONGEST_REST_S
        await _yield_to_loop()
        while self._waited_for(enough_s) and self._clock() < ends:  # noqa: ASYNC110 - readers come between two looks
            await asyncio.sleep(0)

    def _waited_for(self, enough_s: float) -> bool:
        return bool(self._readers) and self._read_s < enough_s and self.credit_s > 0

    @contextmanager
    def count_reading(self, at_most_s: float | None = None) -> Iterator[None]:
        """Counts a long answer as being made or sent while the context lasts, but at most for *at_most_s*, because its
        client may be slow."""
        reader = object()
        self._readers.add(reader)
        timer = None
        if at_most_s is not None:
            timer = asyncio.get_running_loop().call_later(at_most_s, self._readers.discard, reader)
        try:
            yield
        finally:
            self._readers.discard(reader)
            if timer is not None:
                timer.cancel()

    async def pause_after(self, took_s: float) -> None:
        """Lets other tasks have their turn after a reader's step that took *took_s*, and waits while there is no
        credit."""
        self._read_s += took_s
        if self._engines:
            self._credit_s -= took_s
        await asyncio.sleep(0)
        while self._engines and self.credit_s <= 0:  # noqa: ASYNC110 - one look per turn of the engine
            await asyncio.sleep(0)


class WaitingLine:
    """A line of callers. ``waiting``: how many are in it, those who are being served included."""

    def __init__(self, most: int, refusal: str, *, at_once: int = 1) -> None:
        """Makes an empty line for *most* callers, of whom *at_once* are served at a time. *refusal* is what a caller
        reads who finds it full."""
        self._most = most
        self._refusal = refusal
        self._places = asyncio.Semaphore(at_once)
        self.waiting = 0

    @asynccontextmanager
    async def take_turn(self) -> AsyncIterator[None]:
        """Waits for the caller's turn, which lasts as long as the context. Raises :class:`TooMany`."""
        if self.waiting >= self._most:
            raise TooMany(self._refusal)
        self.waiting += 1
        try:
            async with self._places:
                yield
        finally:
            self.waiting -= 1


async def in_turns(items: Iterable[T], step_s: float = STEP_S) -> AsyncIterator[T]:
    """Yields *items*, of which a long answer is made. Other tasks have their turn after each step of *step_s*.

    Whoever begins goes through all of them.
    """
    sharing, clock = Sharing.of_loop(), time.perf_counter
    began = clock()
    for item in items:
        yield item
        took_s = clock() - began
        if took_s >= step_s:
            with sharing.count_reading():
                await sharing.pause_after(took_s)
            began = clock()


async def _yield_to_loop() -> None:
    """Lets all other tasks have their turn."""
    for _ in range(BREATHS):
        await asyncio.sleep(0)


_sharings: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Sharing]] = WeakKeyDictionary()
