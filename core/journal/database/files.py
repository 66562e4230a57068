"""Looks at the files of a journal before they are opened. Somebody else may have made them."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def check_regular(path: Path) -> None:
    """Raises ``OSError`` if there is something else than a regular file at *path*: a pipe would be waited for without
    end, and a device has no end."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
