"""Just enough HTTP/2 to say wrong things: bytes on a socket that no gRPC library would send (RFC 9113, 7541)."""

from __future__ import annotations

import socket
import struct
from typing import Final

from tests.patience import PATIENCE_S

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x6, 0x8, 0x9
END_STREAM, END_HEADERS = 0x1, 0x4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """One frame. *length* other than that of *payload*: a frame that lies."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers(path: str, **more: str) -> bytes:
    """A header block of literals that starts a call of *path*; *more* with ``_`` for ``-``."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    block = b""
    for name, value in fields.items():
        block += b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return block


def message(payload: bytes, *, length: int | None = None, compressed: int = 0) -> bytes:
    """One gRPC message with its prefix. *length* other than that of *payload*: a prefix that lies."""
    return struct.pack(">BI", compressed, len(payload) if length is None else length) + payload


def say(address: str, data: bytes, *, patience_s: float = 0.2, awaited: bytes = b"") -> bytes:
    """Connects, sends *data*, hears what comes until *awaited* has come, the other side hangs up, or nothing comes for
    *patience_s*, and hangs up."""
    host, _, port = address.rpartition(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.settimeout(patience_s)
        try:
            connection.sendall(data)
            while piece := connection.recv(65_536):
                heard += piece
                if awaited and awaited in heard:
                    break
        except (TimeoutError, ConnectionError):
            pass
    return heard
