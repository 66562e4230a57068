"""Bounds the freed memory that the C library keeps.

gRPC allocates and frees megabytes for connections and messages, in threads of its own. glibc does not give all of the
freed memory back: it has up to eight arenas for each processor, keeps the free end of each up to a threshold, and
raises that threshold by itself, up to 64 MiB, whenever a large block is freed. Thresholds that are set explicitly are
not raised, and with few arenas there are few free ends.

Other C libraries, such as musl, have no ``mallopt``, and keep less by themselves.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

ARENAS: Final = 2
"""The number of arenas: one for the thread of the event loop, and one for all other threads."""

OWN_SETTINGS: Final = ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""The environment variables by which an administrator may have set this already."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def bound_kept_memory(kept_bytes: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Makes the C library keep at most about *kept_bytes* of freed memory in each of :data:`ARENAS` arenas.

    Returns whether that was done. It is not done for 0, if the environment sets it already, or if the library has no
    such bounds. It has to be called before threads are started, because existing threads keep their arenas.
    """
    if not kept_bytes or any(environment.get(name) for name in OWN_SETTINGS):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    chosen = ((_ARENA_MAX, ARENAS), (_TRIM_THRESHOLD, kept_bytes), (_MMAP_THRESHOLD, kept_bytes))
    return all(set_option(option, value) == 1 for option, value in chosen)
