"""Compression of answers, once, while they are being made (rest.md 2).

It runs on the event loop, in the turns of whoever makes the answer: ISA-L takes less time for a long list than another
thread would have to wait for the interpreter while the engine is busy.
"""

from __future__ import annotations

import zlib
from typing import Final

from isal import isal_zlib

SMALLEST: Final = 1_400
"""The fewest bytes of a body that is compressed; a smaller one fits one packet anyway."""

PACKED_AT_ONCE: Final = 256 * 1024
"""Bytes, of which the compression takes some hundred microseconds."""

_LEVEL: Final = 1
"""The level that makes a body as small as level 1 of zlib does, in a quarter of the time."""

_GZIP: Final = 31
"""``wbits`` of zlib for a gzip header and checksum."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Tells whether the header lists gzip, in any case; a parameter of exactly ``q=0`` refuses it."""
    for entry in accept_encoding.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == "gzip":
            return "q=0" not in parameters
    return False


class Body:
    """The body of an answer while it is being made. ``compress``: it is compressed, unless it stays small."""

    def __init__(self, *, compress: bool = False) -> None:
        self.chunks: list[bytes] = []
        """The chunks, in order, once :meth:`end_body` has returned."""
        self.encoded = False
        """Tells whether ``chunks`` are compressed."""
        self._packer = isal_zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if compress else None
        self._waiting: list[bytes] = []
        """The pieces that are in no chunk yet."""
        self._size = 0
        """The bytes of those pieces."""

    def add(self, piece: bytes) -> None:
        """Append *piece*."""
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size >= PACKED_AT_ONCE:
            self._pack_pieces()

    def end_body(self) -> None:
        """End the body."""
        if self._packer is not None and not self.encoded and self._size < SMALLEST:
            self.chunks = self._waiting
            return
        self._pack_pieces()
        if self._packer is not None:
            self.chunks.append(self._packer.flush())

    def _pack_pieces(self) -> None:
        """Put what waits into one piece: of many small ones the allocator would keep several times the memory."""
        packed = b"".join(self._waiting)
        if self._packer is not None:
            packed = self._packer.compress(packed)
            self.encoded = True
        if packed:
            self.chunks.append(packed)
        self._waiting, self._size = [], 0
