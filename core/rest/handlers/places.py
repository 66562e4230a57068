"""Finds the partitions and queues that the names in a path mean, with the errors that clients know (rest.md 2, 3)."""

from __future__ import annotations

from starlette.requests import Request

from kornel.core.rest.http.errors import not_found
from kornel.core.rest.http.path_names import decode_again
from kornel.core.rest.serving.queries import checked_queue
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.reader import PartitionReader


def partition_of(reader: CoreReader, request: Request) -> PartitionReader:
    """Returns the partition that the path names. Raises 404."""
    found = partition_or_none(reader, request)
    if found is None:
        raise not_found("Partition")
    return found


def partition_or_none(reader: CoreReader, request: Request) -> PartitionReader | None:
    """Returns the partition that the path names; ``None``: an unknown one is no error.

    Short names are accepted; full names only if several managers have a partition of that short name (rest.md 1). Then
    the short name means the partition of the first manager, so that clients which use it are not affected by later
    managers.
    """
    name = request.path_params["partition"]
    found = reader.get_first(name)
    return found if found is not None and (not name.startswith("[") or name == found.shown_name) else None


def queue_path(request: Request) -> str:
    """Returns the queue that the path names, checked and in lower case. Raises 400."""
    return checked_queue(decode_again(request.path_params["queue"]))


def known_queue(views: PartitionReader, path: str) -> str:
    """Returns *path*. Raises 404."""
    if not views.has_queue(path):
        raise not_found("Queue")
    return path
