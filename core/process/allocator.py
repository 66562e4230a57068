"""A bound on the memory that the C library keeps after it was freed.

What gRPC allocates for connections and messages comes and goes in megabytes, from threads of its own. Such memory is
freed, as measured, but glibc does not give all of it back: it has up to eight arenas for each processor, keeps the free
end of each up to a threshold, and raises that threshold by itself, to 64 MiB at most, whenever a large block was freed.
``malloc_trim`` does not touch the free ends of any arena but the first. So a core under load with hostile neighbours
grew by megabytes a minute while what was in use stayed the same. With the thresholds set they stay as they are set, and
with few arenas there are few ends.

Other C libraries, such as musl, have no ``mallopt``, and keep less by themselves.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

ARENAS: Final = 2
"""One for the thread of the event loop, and one for all others."""

OWN_SETTINGS: Final = ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""The variables of the environment by which somebody may have chosen otherwise."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def bound_kept_memory(kept_bytes: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Makes the C library keep at most about *kept_bytes* of freed memory in each of :data:`ARENAS` arenas.

    Returns whether it does. It does not with 0, where the environment says something of it already, and where the
    library has no such bounds. To be called before threads are started, because those there are keep their arenas.
    """
    if not kept_bytes or any(environment.get(name) for name in OWN_SETTINGS):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    chosen = ((_ARENA_MAX, ARENAS), (_TRIM_THRESHOLD, kept_bytes), (_MMAP_THRESHOLD, kept_bytes))
    return all(set_option(option, value) == 1 for option, value in chosen)
