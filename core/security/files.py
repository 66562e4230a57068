"""Files that are followed while the core runs: certificates, keys, the security file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kornel.core.service.configuration_file import Stamp, stamp_of

LOOK_EVERY_S: Final = 1.0


class FollowedFiles:
    """Calls *on_change* when one of *files* is another than before, once two looks in a row find the same.

    Two looks, so that nobody reads half a file, or a new certificate with the old key. ``files`` is asked at each look,
    because one file may name others.
    """

    def __init__(self, files: Callable[[], Sequence[Path]], on_change: Callable[[], None]) -> None:
        self._files = files
        self._on_change = on_change
        self._before: tuple[Stamp | None, ...] | None = None
        self._seen = self._read_stamps()

    async def watch_files(self) -> None:
        """Look for ever."""
        while True:
            self.check_files()
            await asyncio.sleep(LOOK_EVERY_S)

    def check_files(self) -> None:
        """Check the files with a few stat calls; those of a file system that hangs would hang every other reading of it
        too."""
        now = self._read_stamps()
        stable, self._before = now == self._before, now
        if stable and now != self._seen:
            self._on_change()
            self._seen = self._read_stamps()

    def _read_stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(stamp_of(path) for path in self._files())
