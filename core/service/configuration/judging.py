"""Validates configurations that are not to come into force, apart from all others and a few at a time.

Large texts are read by a separate process, one after the other (:mod:`.reading_process`). Small ones, which are nearly
all, take a thread for some milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.config.rereading import ConfigurationReader
from kornel.core.service.configuration.reading_process import Judgement, ReadingProcess, judge_with
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
        judgement: Judgement = await self.process.ask([text])
        return judgement
