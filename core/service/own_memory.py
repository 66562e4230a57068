"""Measures how much memory this process holds, and gives back what it no longer uses. On Linux only."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


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


class OwnMemory:
    """Measures the memory of this process, for frequent use."""

    def __init__(self) -> None:
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._count = _find_count()

    @property
    def counts_used(self) -> bool:
        """Tells whether the C library reports how much of its memory is in use."""
        return self._count is not None

    def used_bytes(self) -> int:
        """Returns how much memory the C library has handed out, which is that of gRPC and of large Python objects only.
        If it does not report that, returns how much memory the process holds."""
        if self._count is None:
            return self.held_bytes()
        found = self._count()
        return int(found.uordblks + found.hblkhd)

    def held_bytes(self) -> int:
        """Returns how much the process holds now; 0: it is not known on this system."""
        if self._descriptor < 0:
            return 0
        return int(os.pread(self._descriptor, 128, 0).split()[1]) * _PAGE

    def give_back(self) -> None:
        """Gives freed memory back to the system, which the allocator would keep in case it is needed again."""
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def close(self) -> None:
        """Stops measuring."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
