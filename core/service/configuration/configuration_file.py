"""The configuration file of a running core: read again on request, or whenever it changes.

The file is checked once a second instead of relying on notifications of the file system, which differ between systems,
are missing on network mounts, and do not follow the links that are swapped under a mounted ConfigMap. The path is
followed each time, so it makes no difference whether the file is edited in place, replaced by another, or reached
through another link.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from kornel.core.service.wire.status_codes import ServiceError

LOOK_EVERY_S: Final = 1.0
MOST_BYTES: Final = 8 * 2**20
"""Twice the size that a configuration may have; a longer file is not read."""


class FileUnreadable(Exception):
    """The file cannot be read as text."""


class Stamp(NamedTuple):
    """The identity and state of the file at the path. If two stamps are equal, nothing happened in between."""

    device: int
    inode: int
    modified_ns: int
    size: int


def stamp_of(path: Path) -> Stamp | None:
    """Returns the stamp of the file at *path*, following links; ``None``: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def read_text(path: Path) -> str:
    """Returns the text of the file. Raises :class:`FileUnreadable`."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(f"{path}: {error.strerror or error}") from error
    if len(raw) > MOST_BYTES:
        raise FileUnreadable(f"{path}: longer than {MOST_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileUnreadable(f"{path}: not UTF-8 text: {error}") from error


class Followers(Protocol):
    """The managers that use the file: one manager's ``Configurator``, or all managers."""

    @property
    def problem(self) -> str:
        """The problem with the file; empty: none."""

    def report_problem(self, problem: str) -> None:
        """Note that the file cannot be used because of *problem*; empty: it can be used."""

    async def follow_file(self, text: str) -> None:
        """Apply the file's new *text*. Its content never raises an error; raises :class:`ServiceError` if nothing can
        be applied now."""


class ConfigurationFile:
    """The configuration file that the core was started with. *text*: the content of the file when the core started,
    which is not applied again."""

    def __init__(self, path: Path, text: str, followers: Followers, *, logger: FilteringBoundLogger) -> None:
        self._path = path
        self._text = text
        self._followers = followers
        self._logger = logger
        self._seen: Stamp | None = None
        """The stamp of the file that was applied last."""
        self._before: Stamp | None = None
        self._looked = False

    async def reload(self) -> None:
        """Read the file now and apply it, changed or not."""
        self._logger.info("reading the configuration file again", path=str(self._path))
        self._seen = await asyncio.to_thread(stamp_of, self._path)
        await self._follow_file()

    async def watch(self) -> None:
        """Check the file again and again, and apply its changes."""
        while True:
            await self.follow_changes()
            await asyncio.sleep(LOOK_EVERY_S)

    async def follow_changes(self) -> None:
        """Apply the file if it has changed.

        A change counts once two checks in a row find the same state, so that no half-written file is read.
        """
        now = await asyncio.to_thread(stamp_of, self._path)
        stable = self._looked and now == self._before
        self._before, self._looked = now, True
        if stable and (now != self._seen or now is None):
            self._seen = now
            await self._follow_file(again=False)

    async def _follow_file(self, *, again: bool = True) -> None:
        """Apply the file when it changes. *again*: apply also what was applied before."""
        try:
            text = await asyncio.to_thread(read_text, self._path)
        except FileUnreadable as error:
            self._followers.report_problem(str(error))
            return
        if again or text != self._text or self._followers.problem:
            self._text = text
            try:
                await self._followers.follow_file(text)
            except ServiceError as error:
                self._seen = None  # The file itself may be valid, so the next check applies it again.
                self._followers.report_problem(f"{self._path}: {error}")
