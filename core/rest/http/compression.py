"""Compresses answers while they are being made (rest.md 2).

Compression runs on the event loop, in the turns of the answer: ISA-L takes less time for a long list than another
thread would wait for the interpreter while the engine is busy.
"""

from __future__ import annotations

import zlib
from typing import Final

from isal import isal_zlib

SMALLEST: Final = 1_400
"""The fewest bytes of a body that is compressed; a smaller one fits one packet anyway."""

PACKED_AT_ONCE: Final = 256 * 1024
"""The bytes compressed at once, which takes some hundred microseconds."""

_LEVEL: Final = 1
"""A level that makes bodies as small as level 1 of zlib, in a quarter of the time."""

_GZIP: Final = 31
"""The parameter ``wbits`` of zlib for a gzip header and checksum."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Tells whether the header *accept_encoding* lists gzip, in upper or lower case; a parameter of exactly ``q=0``
    refuses it."""
    for entry in accept_encoding.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == "gzip":
            return "q=0" not in parameters
    return False


class Body:
    """The body of an answer while it is being made. *compress*: it is compressed unless it is small."""

    def __init__(self, *, compress: bool = False) -> None:
        self.chunks: list[bytes] = []
        """The chunks, in order, once :meth:`end_body` has returned."""
        self.encoded = False
        """Tells whether ``chunks`` are compressed."""
        self._packer = isal_zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if compress else None
        self._waiting: list[bytes] = []
        """The pieces that are in no chunk yet."""
        self._size = 0
        """The number of bytes in ``_waiting``."""

    def add(self, piece: bytes) -> None:
        """Append *piece*."""
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size >= PACKED_AT_ONCE:
            self._pack_pieces()

    def end_body(self) -> None:
        """Finish the body, so that ``chunks`` is complete."""
        if self._packer is not None and not self.encoded and self._size < SMALLEST:
            self.chunks = self._waiting
            return
        self._pack_pieces()
        if self._packer is not None:
            self.chunks.append(self._packer.flush())

    def _pack_pieces(self) -> None:
        """Join the waiting pieces into one, because many small ones would take several times the memory."""
        packed = b"".join(self._waiting)
        if self._packer is not None:
            packed = self._packer.compress(packed)
            self.encoded = True
        if packed:
            self.chunks.append(packed)
        self._waiting, self._size = [], 0
