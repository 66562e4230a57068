"""Keeps the temporary files of tests in memory where the machine has room for them.

Databases and journals have the disk confirm everything that they write, and hundreds of tests would wait for that.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - it becomes the folder that tempfile works in
LEAST_BYTES: Final = 4 * 2**30
"""The room that there must be: the files of a run take less than a tenth of it."""


def prefer_memory(folder: Path = MEMORY, least_bytes: int = LEAST_BYTES) -> None:
    """Makes *folder* the one for temporary files, of processes that are started too, unless TMPDIR names another."""
    if "TMPDIR" not in os.environ and _is_suitable(folder, least_bytes):
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None


def _is_suitable(folder: Path, least_bytes: int) -> bool:
    """Tells whether programs can be run in *folder*, files written, and *least_bytes* of them."""
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        return False
    found = os.statvfs(folder)
    return not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and found.f_bavail * found.f_frsize >= least_bytes
