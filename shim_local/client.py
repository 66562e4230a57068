"""The connection of commands to the server or agent of a state directory."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

PIECE_BYTES: Final = 64 * 1024


class NoServer(Exception):
    """No server or agent serves in the state directory."""


class RequestRefused(Exception):
    """The server answered with an error; the message is the server's."""


class ServerConnection:
    """A connection over which requests are sent one after the other."""

    def __init__(self, path: Path) -> None:
        """Connects to the socket at *path*. Raises NoServer."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise NoServer(f"no server runs in {path.parent}; start one with: kornel-local up") from None
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to *message*. Raises NoServer if the server ends, and RequestRefused if it refuses."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            pieces = [self._rest]
            while b"\n" not in pieces[-1]:
                piece = self._socket.recv(PIECE_BYTES)
                if not piece:
                    raise NoServer("the server ended before it had answered")
                pieces.append(piece)
        except OSError as error:
            raise NoServer(f"the connection to the server broke: {error.strerror}") from None
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RequestRefused(str(answer["error"]))
        return answer
