"""Queues questions to the engine that take long, such as what-ifs: answers them one after the other, with time for
other callers in between, or in a copy of the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from kornel.core.service.machine.helpers import HelperEnded
from kornel.core.service.machine.loop_time import Sharing, WaitingLine
from kornel.core.service.machine.process_copies import ProcessCopy
from kornel.core.service.wire.status_codes import TooMany

MOST_WAITING: Final = 32

SMALL: Final = 1_000
"""The most requests, nodes and applications of a core that answers without a copy of itself, in some milliseconds."""

LONGEST_REST_S: Final = 0.1
REST_STEP_S: Final = 0.005

AnswerT = TypeVar("AnswerT")


class Questions:
    """The queue of long questions. An answer is about one moment, so the engine stands still for it, and many answers
    in a row would stop it for long.

    So each question is handled only after a rest as long as the last answer took, even if it has waited already.
    """

    def __init__(self, beside: Questions | None = None) -> None:
        """Makes an empty queue. If the queue *beside* is held back, this one is held back as well."""
        self._line = WaitingLine(MOST_WAITING, "too many questions wait for an answer")
        self._rested_at = 0.0
        self._settled: asyncio.Event = asyncio.Event() if beside is None else beside._settled
        self._settled.set()
        self._changes = 0
        """The number of changes under way to what questions are about."""

    @property
    def waiting(self) -> int:
        """The number of questions that are not answered yet."""
        return self._line.waiting

    @contextmanager
    def hold_back(self) -> Iterator[None]:
        """Makes all questions wait while the context lasts, because what they are about is being changed and is not
        consistent."""
        self._changes += 1
        self._settled.clear()
        try:
            yield
        finally:
            self._changes -= 1
            if not self._changes:
                self._settled.set()

    async def wait_settled(self) -> None:
        """Returns once nothing is being changed."""
        await self._settled.wait()

    async def ask(self, answer: Callable[[], AnswerT]) -> AnswerT:
        """Returns the result of *answer*, called in its turn. Raises :class:`TooMany` if too many wait."""
        async with self._line.take_turn():
            await self._rest_after()
            await self.wait_settled()
            began = time.perf_counter()
            try:
                return answer()
            finally:
                took_s = time.perf_counter() - began
                sharing = Sharing.of_loop()
                with sharing.count_reading():
                    await sharing.pause_after(took_s)
                self._rested_at = time.perf_counter() + min(took_s, LONGEST_REST_S)

    async def ask_about(self, size: int, answer: Callable[[], AnswerT]) -> AnswerT:
        """Returns the result of *answer*, about *size* records: called here if they are few, otherwise in a copy."""
        return await (self.ask(answer) if size <= SMALL else self.ask_apart(answer))

    async def ask_apart(self, answer: Callable[[], AnswerT]) -> AnswerT:
        """Returns the result of *answer*, called in its turn in a copy of this process (:class:`ProcessCopy`),
        which is killed if the caller goes.

        Nobody else waits for it but the next question. Raises :class:`TooMany` if too many wait, or if there is not
        enough memory for a copy.
        """
        async with self._line.take_turn():
            await self._rest_after()
            await self.wait_settled()
            began = time.perf_counter()
            try:
                copy = ProcessCopy(answer)
                answering = asyncio.ensure_future(asyncio.to_thread(copy.await_answer))
                try:
                    return await asyncio.shield(answering)
                finally:
                    copy.kill()
                    # There is one copy at a time, even if the caller has gone.
                    await asyncio.gather(answering, return_exceptions=True)
            except (HelperEnded, OSError) as error:
                raise TooMany(f"the copy of the core that works out the answer {error}; try again") from error
            finally:
                self._rested_at = time.perf_counter() + min(time.perf_counter() - began, LONGEST_REST_S)

    async def _rest_after(self) -> None:
        """Leaves time to other calls, which take several turns of the event loop to be accepted, read and answered."""
        # The clock of the event loop may lag behind by as long as the question took, so a sleep might end at once.
        while time.perf_counter() < self._rested_at:  # noqa: ASYNC110 - time, not an event
            await asyncio.sleep(REST_STEP_S)
