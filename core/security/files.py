"""Follows files while the core runs: certificates, keys, the security file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from kornel.core.service.configuration.configuration_file import LOOK_EVERY_S, Stamp, stamp_of


class FollowedFiles:
    """Calls *on_change* when one of *files* has changed, once two checks in a row find the same state.

    Two checks are needed so that no half-written file is read, and no new certificate with the old key. ``files`` is
    called at each check, because one file may name others.
    """

    def __init__(self, files: Callable[[], Sequence[Path]], on_change: Callable[[], None]) -> None:
        self._files = files
        self._on_change = on_change
        self._before: tuple[Stamp | None, ...] | None = None
        self._seen = self._read_stamps()

    async def watch_files(self) -> None:
        """Checks the files again and again, without end."""
        while True:
            self.check_files()
            await asyncio.sleep(LOOK_EVERY_S)

    def check_files(self) -> None:
        """Check the files with a few stat calls; if the file system hangs, other readings of it would hang as well."""
        now = self._read_stamps()
        stable, self._before = now == self._before, now
        if stable and now != self._seen:
            self._seen = now  # A file that changes while it is read is read again.
            self._on_change()

    def _read_stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(stamp_of(path) for path in self._files())
