"""A separate process that reads configurations for the core: it is started for the first one, and ended when none has
arrived for a while.

Reading a text of some megabytes takes seconds, during which it would hold the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.service.configuration.reading_program import LENGTH_BYTES, MODULE, add_length
from kornel.core.service.machine.subprocesses import command_of
from kornel.core.service.wire.status_codes import TooMany

IDLE_S: Final = 60.0
"""The time without a text after which the process ends."""


class ReadingProcess:
    """A process that answers one request after the other. *unavailable_resolvers*: types of resolver that do not work
    here, with the reason."""

    def __init__(self, unavailable_resolvers: Mapping[str, str], *, logger: FilteringBoundLogger) -> None:
        self._greeting = json.dumps(dict(unavailable_resolvers)).encode()
        self._logger = logger
        self._one = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False
        self._ending: dict[asyncio.subprocess.Process, asyncio.Task[int]] = {}
        """Idle processes that are ending, each with the task that waits for its end."""
        self.process: asyncio.subprocess.Process | None = None
        """The process; ``None``: it was never started, was killed, or is ending."""

    @property
    def busy(self) -> bool:
        """Tells whether a request is being answered."""
        return self._one.locked()

    async def ask(self, frames: Iterable[bytes]) -> bytes:
        """Returns the answer to a request made of *frames*, in its turn. Other tasks run between two frames.

        Raises :class:`TooMany` if the process has ended.
        """
        async with self._one:
            return await self._ask(frames)

    async def close(self) -> None:
        """Accept no more requests, and drop the one that is being answered."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        for process in self._ending:
            _kill_process(process)
        await asyncio.gather(*self._ending.values(), self._end_process())

    async def _ask(self, frames: Iterable[bytes]) -> bytes:
        if self._idle is not None:
            self._idle.cancel()
        complete = False
        try:
            process = self.process
            if process is None or process.returncode is not None:
                process = self.process = await self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            for frame in frames:
                process.stdin.write(add_length(frame))
                await process.stdin.drain()
                await asyncio.sleep(0)
            size = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
            answer = await process.stdout.readexactly(size)
            complete = True
        except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:
            # The event loop raises a RuntimeError for a pipe whose other end is closed.
            if not self._closed:
                self._logger.error("the process that reads configurations has ended", cause=str(error))
            raise TooMany("the process that reads configurations has ended; try again") from error
        finally:
            if not complete:
                await self._end_process()  # The next caller must not get this answer.
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command_of(MODULE), stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        process.stdin.write(add_length(self._greeting))
        return process

    def _end_idle(self) -> None:
        if self.process is None or self.busy:
            return
        # Later callers get a new process, because this one reads no more.
        process, self.process = self.process, None
        assert process.stdin is not None
        process.stdin.close()
        ended = self._ending[process] = asyncio.create_task(process.wait(), name="end of a reading process")
        ended.add_done_callback(lambda _: self._ending.pop(process, None))

    async def _end_process(self) -> None:
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            _kill_process(process)
            await process.wait()


def _kill_process(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
