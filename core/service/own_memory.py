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
    """The amounts that the C library has handed out, and that it keeps of what was freed."""

    used_bytes: int
    free_bytes: int


def count_native() -> NativeMemory | None:
    """Returns what the C library says of its memory, which is not that of most Python objects; ``None``: nothing."""
    count = _find_count()
    if count is None:
        return None
    found = count()
    return NativeMemory(found.uordblks + found.hblkhd, found.fordblks)


@cache
def _find_count() -> Callable[[], _AllocatorCounts] | None:
    """Returns the function of glibc that counts, which takes some microseconds; finding it takes a hundred times as
    long, and leaves a reference cycle. Other C libraries have none."""
    try:
        count = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    count.restype = _AllocatorCounts
    return count


class OwnMemory:
    """The memory of this process, for one who asks often."""

    def __init__(self) -> None:
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._count = _find_count()

    @property
    def counts_used(self) -> bool:
        """Tells whether the C library says how much of its memory is in use."""
        return self._count is not None

    def used_bytes(self) -> int:
        """Returns how much memory the C library has handed out, which is that of gRPC and of large Python objects only;
        where it does not say, how much the process holds."""
        if self._count is None:
            return self.held_bytes()
        found = self._count()
        return int(found.uordblks + found.hblkhd)

    def held_bytes(self) -> int:
        """Returns how much the process holds now; 0: that is not known here."""
        if self._descriptor < 0:
            return 0
        return int(os.pread(self._descriptor, 128, 0).split()[1]) * _PAGE

    def give_back(self) -> None:
        """Gives the system what was freed: the allocator keeps it in case it is wanted again."""
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def close(self) -> None:
        """Ask no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
