"""Inflates blocks and snapshots, which may come from somebody else: a megabyte can unfold to a gigabyte."""

from __future__ import annotations

import zlib
from typing import Final

LEAST_BOUND: Final = 256 * 2**20
"""Everything that a core writes may unfold to this many bytes."""
MOST_TIMES: Final = 64
"""Larger things may unfold to this many times their size: what a core writes unfolds to about ten times."""


class UnfoldsTooFar(Exception):
    """The bytes unfold to more than anything that a core writes."""


def inflate_bytes(data: bytes | memoryview) -> bytes:
    """Returns *data* inflated. Raises ``zlib.error`` if it is damaged, and :class:`UnfoldsTooFar`."""
    inflater = zlib.decompressobj()
    most = find_bound(data)
    found = inflater.decompress(data, most)
    if not inflater.eof:
        check_bound(len(found) + bool(inflater.unconsumed_tail), most)
        raise zlib.error("incomplete or truncated stream")
    return found


def inflate_sound_part(data: bytes) -> bytes:
    """Returns what stands in *data* before its damage. Raises :class:`UnfoldsTooFar`."""
    inflater, most, found, at, step = zlib.decompressobj(), find_bound(data), bytearray(), 0, 2**16
    while at < len(data):
        before = inflater.copy()
        try:
            found += inflater.decompress(data[at : at + step])
        except zlib.error:
            if step == 1:
                break
            # An error loses everything that the same call has inflated: the way to the damage goes byte by byte.
            inflater, step = before, 1
            continue
        at += step
        check_bound(len(found), most)
    return bytes(found)


def find_bound(data: bytes | memoryview) -> int:
    """Returns the number of bytes to which *data* may unfold."""
    return max(LEAST_BOUND, MOST_TIMES * len(data))


def check_bound(size: int, most: int) -> None:
    """Raises :class:`UnfoldsTooFar` if *size* is more than *most*."""
    if size > most:
        raise UnfoldsTooFar(f"it unfolds to more than {most // 2**20} MiB")
