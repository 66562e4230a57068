"""Division of the event loop's time between the engines and the readers of long answers.

Readers work in short steps. Between two of its turns the engine lets them have several times what its own turn took,
so that an answer is soon complete. It does so while they have credit left, which grows by a fixed part of all time;
readers that want more wait until there is credit again. While the engine has nothing to do, nothing counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

READERS_PART: Final = 0.16
"""The part of a busy engine's time that readers get at most in the long run."""

CREDIT_S: Final = 1.0
"""The most time that readers can save up."""

RATIO: Final = 4.0
"""Time for readers in terms of the engine's own, while there is credit."""

STEP_S: Final = 0.005
"""The longest step of a reader before others have their turn."""

LONGEST_REST_S: Final = 0.06
"""The longest the engine waits for readers at once, however long its own turn was."""

BREATHS: Final = 2
"""Turns of the event loop between two of the engine's. A call takes several, to be accepted, read and answered; with
one for each a health check would wait for as many slices. An empty turn costs some microseconds."""


class Sharing:
    """Shares the time of one event loop between engine and readers: :meth:`of_loop`. *clock*: seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._readers: set[object] = set()
        self._engines: set[object] = set()
        """The engines that have something to do."""
        self._credit_s = CREDIT_S
        self._credited_at = clock()
        self._read_s = 0.0
        """The time that readers have worked in all."""

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
        """Answers that are being made or sent now."""
        return len(self._readers)

    @property
    def credit_s(self) -> float:
        """Returns the time that readers may have before they have to wait."""
        now = self._clock()
        self._credit_s = min(CREDIT_S, self._credit_s + (now - self._credited_at) * READERS_PART)
        self._credited_at = now
        return self._credit_s

    @property
    def busy(self) -> bool:
        """Tells whether an engine has something to do."""
        return bool(self._engines)

    def note_idle(self, engine: object = None) -> None:
        """Note that *engine* has nothing to do; while none has, readers may go on as they like."""
        self._engines.discard(engine)

    async def rest_after(self, took_s: float, engine: object = None) -> None:
        """Let others have their turn after one of *engine*'s that took *took_s*."""
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
        """Counts a long answer as being made or sent, for *at_most_s*: after that its client may be a slow one."""
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
        """Give others their turn after a reader's step that took *took_s*, and wait while it has no credit."""
        self._read_s += took_s
        if self._engines:
            self._credit_s -= took_s
        await asyncio.sleep(0)
        while self._engines and self.credit_s <= 0:  # noqa: ASYNC110 - one look per turn of the engine
            await asyncio.sleep(0)


async def _yield_to_loop() -> None:
    """Let everybody else have their turn."""
    for _ in range(BREATHS):
        await asyncio.sleep(0)


_sharings: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Sharing]] = WeakKeyDictionary()
