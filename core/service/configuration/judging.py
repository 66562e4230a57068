"""Validates configurations that are not to come into force, apart from all others and a few at a time.

Large texts are read by a separate process, one after the other (:mod:`.reading_process`). Small ones, which are nearly
all, take a thread for some milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError
from kornel.core.service.configuration.reading_process import MODULE, Judgement, judge_with
from kornel.core.service.machine.helpers import Helper, HelperEnded
from kornel.core.service.wire.status_codes import TooMany

SMALL: Final = 16 * 1024
"""The most characters of a text that is read in this process."""

MOST_TEXTS: Final = 16
MOST_BYTES: Final = 16 * 2**20
"""The most bytes of texts that are being received, wait, or are read."""

MOST_PREVIEWS: Final = 2
"""The most previews at a time: one that is being worked out, and one that waits."""


class TextRooms:
    """Room for the texts that are being received, waiting or being read at one time."""

    def __init__(self) -> None:
        self._texts = 0
        self._bytes = 0

    @contextmanager
    def take_room(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that makes room for so many more bytes of a text, which is kept from the first byte to the
        verdict. Raises :class:`TooMany`, as the function does."""
        if self._texts >= MOST_TEXTS:
            raise TooMany("too many configurations wait to be read")
        size = 0

        def add_bytes(more: int) -> None:
            nonlocal size
            size += more
            self._bytes += more
            if self._bytes > MOST_BYTES:
                raise TooMany("too many configurations wait to be read")

        self._texts += 1
        try:
            yield add_bytes
        finally:
            self._texts -= 1
            self._bytes -= size


class ReadingProcess:
    """Has requests answered by processes, one after the other. *unavailable_resolvers*: types of resolver that do not
    work here, with the reason."""

    def __init__(self, unavailable_resolvers: Mapping[str, str], *, logger: FilteringBoundLogger) -> None:
        self._unavailable_resolvers = dict(unavailable_resolvers)
        self._logger = logger
        self._one = asyncio.Lock()
        self._closed = False
        self.helper: Helper | None = None
        """The process that was started last."""

    async def ask(self, messages: Iterable[object]) -> Any:
        """Returns the answer to a request made of *messages*, in its turn.

        Raises ConfigError, or :class:`TooMany` if the process has ended.
        """
        async with self._one:
            helper = self.helper = Helper(MODULE, self._unavailable_resolvers)
            if self._closed:
                helper.kill_process()
            asking = asyncio.ensure_future(asyncio.to_thread(_ask_helper, helper, messages))
            try:
                answer = await asyncio.shield(asking)
            except (HelperEnded, OSError) as error:
                if not self._closed:
                    self._logger.error("the process that reads configurations has ended", cause=str(error))
                raise TooMany("the process that reads configurations has ended; try again") from error
            finally:
                helper.kill_process()
                await asyncio.gather(asking, return_exceptions=True)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    async def close(self) -> None:
        """Accept no more requests, and drop the one that is being answered."""
        self._closed = True
        if self.helper is not None:
            self.helper.kill_process()
        async with self._one:
            pass


def _ask_helper(helper: Helper, messages: Iterable[object]) -> Any:
    with helper:
        helper.send(messages)
        return helper.receive()


class Judge:
    """Tells whether configurations could come into force. The managers of a core share it, and the room for texts.

    *unavailable_resolvers*: types of resolver that do not work here, with the reason.
    """

    def __init__(self, unavailable_resolvers: Mapping[str, str], *, logger: FilteringBoundLogger) -> None:
        self.unavailable_resolvers: Final = unavailable_resolvers
        self.rooms: Final = TextRooms()
        """Room for texts that are to be judged."""
        self.changes: Final = TextRooms()
        """Room for texts that are to come into force."""
        self.bodies: Final = TextRooms()
        """Room for HTTP requests with texts that are to be judged or previewed, until they are parsed."""
        self.process: Final = ReadingProcess(unavailable_resolvers, logger=logger)
        """The processes that read large texts, those to be previewed as well."""
        self._small = asyncio.Lock()

    async def judge_text(self, text: str) -> Judgement:
        """Returns the judgement of *text*. Raises ConfigError, or :class:`TooMany` if the process has ended."""
        if len(text) <= SMALL:
            async with self._small:
                return await asyncio.to_thread(judge_with, ConfigurationReader(self.unavailable_resolvers), text)
        return await self.process.ask([text])  # type: ignore[no-any-return]  # one text has a judgement
