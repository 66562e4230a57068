"""Which queue an application belongs to. Rule ``provided`` (configuration spec 8), then ``root.default``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from core.domain.commands import ApplicationSpec
from core.model.queues import Queue

RECOVERY_QUEUE: Final = "@recovery@"


class QueueIndex(Protocol):
    """Where queues are looked up by their lower-case path."""

    @property
    def queues(self) -> Mapping[str, Queue]: ...


def place(index: QueueIndex, spec: ApplicationSpec, *, forced: bool) -> Queue | str | None:
    """The leaf for *spec*, the path of a queue to create, or ``None`` when no rule gives one.

    A name without ``root.`` in front is a child of the root. Draining queues, parents and the recovery queue take
    no application; forced ones end in the recovery queue when nothing else takes them.
    """
    for path in (_qualified(spec.queue), "root.default"):
        queue = index.queues.get(path) if path else None
        if queue is not None and queue.leaf and not queue.draining and queue.name != RECOVERY_QUEUE:
            return queue
    if not forced:
        return None
    path = f"root.{RECOVERY_QUEUE}"
    return index.queues.get(path, path)


def _qualified(name: str) -> str:
    lower = name.lower()
    if not lower or lower == "root" or lower.startswith("root."):
        return lower
    return f"root.{lower}"
