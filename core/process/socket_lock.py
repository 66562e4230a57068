"""Allows only one core for a socket file.

gRPC removes an existing socket file and makes its own, so a second core would take over the clients of the first one
while both go on serving. A lock on a file beside the socket shows whether a core is running: the system releases it
however the process ends, while the socket file stays. A program that cleans up directories may remove the locked file,
so a socket at which a core answers is left alone too.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from typing import Final

_SCHEME: Final = "unix:"
_LOCK: Final = ".lock"


class SocketTaken(Exception):
    """Another process serves on the socket."""


class SocketLock:
    """The right to serve at *address* if that is a socket file; for other addresses it does nothing.

    Raises :class:`SocketTaken`, or :class:`OSError` if the lock file cannot be made.
    """

    def __init__(self, address: str) -> None:
        self._held: int | None = None
        if not address.startswith(_SCHEME):
            return
        path = address.removeprefix(_SCHEME)
        # unix:///run/kornel.sock is another way of writing unix:/run/kornel.sock.
        self._path = f"{path.removeprefix('//') if path.startswith('///') else path}{_LOCK}"
        # The lock file is not removed when the core ends, because another core that has just opened it would lock a
        # removed file.
        held = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise SocketTaken(f"another core serves on {address!r}") from None
        if _is_answered(self._path.removesuffix(_LOCK)):
            os.close(held)
            raise SocketTaken("somebody answers there already")
        self._held = held

    def release(self) -> None:
        """Allows another core to serve there."""
        if self._held is not None:
            with suppress(OSError):
                os.close(self._held)
            self._held = None


def _is_answered(path: str) -> bool:
    """Tells whether a process listens at the socket file *path*."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
        except BlockingIOError:
            return True  # More clients wait there than the process has accepted so far.
        except OSError:
            return False
        return True
