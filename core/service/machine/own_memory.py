"""Measures how much memory this process holds, and gives back what it no longer uses. On Linux only."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final

FREED_PAUSE_S: Final = 1.0
"""The pause between two counts of the freed memory, which take some microseconds each."""

MUCH_FREED_BYTES: Final = 8 * 2**20
"""Freed memory is given back to the system when it has grown by this much."""

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


@cache
def _find_trim() -> Callable[[int], int] | None:
    """Returns the function of glibc that releases freed memory, or ``None`` with other C libraries."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim


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

    def free_bytes(self) -> int:
        """Returns how much freed memory the C library has, whether it has given the pages back or not; 0: it does not
        report that."""
        return 0 if self._count is None else int(self._count().fordblks)

    def give_back(self) -> None:
        """Gives freed memory back to the system, which the allocator would keep in case it is needed again."""
        trim = _find_trim()
        if trim is not None:
            trim(0)

    def close(self) -> None:
        """Stops measuring."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class FreedMemory:
    """Gives the freed memory of this process back to the system whenever much has been freed, which takes about a
    millisecond.

    The C library by itself gives back only what lies at the end of an arena. After an attack, blocks that are still in
    use are spread between those that were freed, so the free memory stays in the middle.
    """

    def __init__(self, memory: OwnMemory) -> None:
        self._memory = memory
        self._looked_s = -inf
        self._least_bytes = 0
        """The least free memory since it was given back last. Memory that was given back counts as free, too."""
        self._due_s: float | None = None

    @property
    def is_due(self) -> bool:
        """Tells whether memory will be given back soon."""
        return self._due_s is not None

    def give_back_at(self, due_s: float) -> None:
        """Gives memory back at *due_s*, however little it is."""
        self._due_s = due_s

    def look(self, now_s: float) -> bool:
        """Gives memory back if it is time, or if much has been freed. Returns whether it did. *now_s*: the time."""
        due = self._due_s is not None and now_s >= self._due_s
        if not due and now_s - self._looked_s < FREED_PAUSE_S:
            return False
        self._looked_s = now_s
        free = self._memory.free_bytes()
        self._least_bytes = min(self._least_bytes, free)
        if not due and free - self._least_bytes < MUCH_FREED_BYTES:
            return False
        self._memory.give_back()
        self._least_bytes = self._memory.free_bytes()
        if due:
            self._due_s = None
        return True
