"""Counts the memory that the C library has handed out to this process. With glibc only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


class _AllocatorCounts(ctypes.Structure):
    """The ``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


@dataclass(frozen=True, slots=True)
class NativeMemory:
    """The amounts of memory that the C library has handed out, and that it keeps of what was freed."""

    used_bytes: int
    free_bytes: int


def count_native() -> NativeMemory | None:
    """Returns what the C library reports of its memory, which does not include most Python objects; ``None``: it
    reports nothing."""
    count = _find_count()
    if count is None:
        return None
    found = count()
    return NativeMemory(found.uordblks + found.hblkhd, found.fordblks)


@cache
def _find_count() -> Callable[[], _AllocatorCounts] | None:
    """Returns the function of glibc that counts the memory, or ``None`` with other C libraries. A call takes some
    microseconds; finding the function takes a hundred times as long, and leaves a reference cycle."""
    try:
        count = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    count.restype = _AllocatorCounts
    return count
