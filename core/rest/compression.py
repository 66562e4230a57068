"""When an answer is compressed, and how: once, and not on the event loop (rest.md 2)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

SMALLEST: Final = 1_400
"""Bytes; a smaller body fits one packet anyway."""

_ON_THE_SPOT: Final = 64 * 1024
"""Bytes that take less time to compress than to hand to another thread."""

_AT_ONCE: Final = 4 << 20
"""Bytes handed to the other thread at once: each time, it has to wait for the interpreter."""

_GZIP: Final = 31
"""``wbits`` of zlib for a gzip header and checksum."""

_THREAD: Final = ThreadPoolExecutor(1, "compression")
"""One, so that the pieces of a body are compressed in their order."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header lists gzip, in any case; a parameter of exactly ``q=0`` refuses it."""
    for entry in accept_encoding.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == "gzip":
            return "q=0" not in parameters
    return False


class Body:
    """The body of an answer while it is being made. ``compress``: it is compressed as it grows, if it grows large."""

    def __init__(self, pieces: Iterable[bytes] = (), *, compress: bool = False) -> None:
        self.chunks: list[bytes] = list(pieces)
        """What it consists of, in order, once :meth:`finish` has returned."""
        self.encoded = False
        """Whether ``chunks`` are compressed."""
        self._compress = compress
        self._waiting = sum(map(len, self.chunks)) if compress else 0
        self._packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP) if compress else None
        self._packing: list[Future[bytes]] = []

    def add(self, piece: bytes) -> None:
        """*piece* comes next."""
        self.chunks.append(piece)
        self._waiting += len(piece)

    @property
    def full(self) -> bool:
        """Whether there is enough to be compressed while more is being made."""
        return self._compress and self._waiting >= _AT_ONCE

    def pack(self) -> None:
        """Compress what there is, while more is being made."""
        assert self._packer is not None, "only a body that is to be compressed"
        ready, self.chunks, self._waiting = self.chunks, [], 0
        self._packing.append(_THREAD.submit(_pack, self._packer, ready))

    async def finish(self) -> None:
        """Nothing more comes."""
        if self._packer is None or (not self._packing and self._waiting < SMALLEST):
            return
        if not self._packing and self._waiting <= _ON_THE_SPOT:
            self.chunks = [_pack(self._packer, self.chunks), self._packer.flush()]
        else:
            self.pack()
            self.chunks = [await asyncio.wrap_future(packed) for packed in self._packing]
            self.chunks.append(self._packer.flush())
        self.encoded = True


async def gzipped(chunks: Sequence[bytes]) -> Body:
    """*chunks* as one gzip stream, unless they are too small."""
    body = Body(chunks, compress=True)
    await body.finish()
    return body


def _pack(packer: zlib._Compress, chunks: Sequence[bytes]) -> bytes:
    """Joined first: compressing releases the interpreter, and a busy one is not given back at once."""
    return packer.compress(b"".join(chunks))
