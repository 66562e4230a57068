"""When an answer is compressed, and how: once, and not on the event loop (rest.md 2)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Final

SMALLEST: Final = 1_400
"""Bytes; a smaller body fits one packet anyway."""

_ON_THE_SPOT: Final = 64 * 1024
"""Bytes that take less time to compress than to hand to another thread."""

_GZIP: Final = 31
"""``wbits`` of zlib for a gzip header and checksum."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header lists gzip, in any case; a parameter of exactly ``q=0`` refuses it."""
    for entry in accept_encoding.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == "gzip":
            return "q=0" not in parameters
    return False


async def gzipped(chunks: Sequence[bytes]) -> list[bytes]:
    """*chunks* as one gzip stream."""
    if sum(map(len, chunks)) <= _ON_THE_SPOT:
        return _gzip(chunks)
    return await asyncio.to_thread(_gzip, chunks)


def _gzip(chunks: Sequence[bytes]) -> list[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    packed = [packer.compress(chunk) for chunk in chunks]
    packed.append(packer.flush())
    return [chunk for chunk in packed if chunk]
