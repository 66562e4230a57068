"""Handles the queue paths that placement rules make from names (config.md 8.2, B12)."""

from __future__ import annotations

from collections.abc import Mapping

from kornel.core.domain.names import MOST_LEVELS, RECOVERY_PATH, RECOVERY_QUEUE, is_queue_name, show_name
from kornel.core.model.queues import Queue


def is_qualified(name: str) -> bool:
    """Tells whether *name* is a whole path: ``root``, or something below it. Case does not matter."""
    return name[:5].lower() in ("root", "root.")


def flatten_name(name: str) -> str:
    """Returns *name* as one element of a path."""
    return name.replace(".", "_dot_")


def path_flaw(path: str) -> str | None:
    """Returns why *path* cannot be the path of a queue; ``None``: it can. It has to be called before the path is put
    into lower case."""
    elements = path.split(".")
    if len(elements) > MOST_LEVELS:
        return f"a path of {len(elements)} levels; the most are {MOST_LEVELS}"
    lower = path.lower()
    for element in elements:
        if not is_queue_name(element):
            return f"{show_name(element)} is not a queue name"
        if element.lower() == RECOVERY_QUEUE and lower != RECOVERY_PATH:
            return f"{RECOVERY_QUEUE} is reserved"
    return None


def find_nearest(path: str, queues: Mapping[str, Queue]) -> Queue:
    """Returns the queue at *path*, or the deepest one above it that exists."""
    queue = queues.get(path)
    while queue is None:
        path = path.rpartition(".")[0]
        queue = queues.get(path)
    return queue
