"""Says since when the work of a task would be lost, and defines the tag by which it states its minimum run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.shared.quantities import parse_duration

MIN_RUNTIME_TAG: Final = "kornel.min-runtime"
"""The tag of a task that says how long it should run before preemption may take it, as a duration. Case matters."""


def unsaved_since(task: Allocation, checkpoints: Mapping[str, int]) -> int:
    """Returns the time since which the work of *task*, which runs, would be lost: when it was last saved by
    *checkpoints*, which are times by key, or when it began if that is later or not known (preemption.md F11)."""
    return max(task.bound_ns, checkpoints.get(task.key, 0))


def read_min_runtime(tags: Iterable[tuple[str, str]]) -> int | None:
    """Returns the minimum run time that *tags* state, in nanoseconds; ``None``: they state none that can be read."""
    for name, text in tags:
        if name == MIN_RUNTIME_TAG:
            return _read_duration(text)
    return None


@lru_cache(256)
def _read_duration(text: str) -> int | None:
    try:
        duration_ns = parse_duration(text)
    except ValueError:
        return None
    return duration_ns if duration_ns >= 0 else None
