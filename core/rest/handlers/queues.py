"""Serves the routes about queues (rest.md 4.4)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.handlers.places import known_queue, partition_of, queue_path
from kornel.core.rest.http.errors import not_found
from kornel.core.rest.serving.answers import json_answer
from kornel.core.rest.serving.listing import PAGE_PARAMETERS, page_answer
from kornel.core.rest.serving.queries import query_of
from kornel.core.rest.serving.rows import IN_PARTITION, Parameter, Row
from kornel.core.rest.serving.sorting import QUEUES
from kornel.core.rest.serving.turns import gather_items
from kornel.core.service.machine.loop_time import in_turns
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.encoding.yunikorn.queues import QUEUE, QueueTree, write_queue
from kornel.core.telling.reader import PartitionReader

_SUBTREE: Final = Parameter("subtree", "With any value, the answer also has all queues below.")
_LIST_PARAMETERS: Final = (
    *PAGE_PARAMETERS,
    QUEUES.parameter,
    Parameter("queuePrefix", "Only queues whose path begins so."),
)


class QueueHandlers:
    """Serves routes R9 and R10, and one of Kornel's own: all queues as a list, which has pages and orders."""

    def __init__(self, reader: CoreReader) -> None:
        self._reader = reader

    @Row(f"{IN_PARTITION}/queues", "queues", "Partition", QUEUE, long=True)
    async def tree(self, request: Request) -> ASGIApp:
        """Returns the root queue with all others in it."""
        return json_answer(await queue_tree(partition_of(self._reader, request)))

    @Row(f"{IN_PARTITION}/queues/flat", "queueList", "Partition", [QUEUE], _LIST_PARAMETERS, ours=True, long=True)
    async def flat(self, request: Request) -> ASGIApp:
        """Returns all queues as a flat list, sorted by path."""
        views = partition_of(self._reader, request)
        prefix = query_of(request).get("queuePrefix", "").lower()
        found = [
            view for view in await gather_items(views.queues("root", subtree=True)) if view.path.startswith(prefix)
        ]
        show = partial(write_queue, partition=views.partition().name)
        return await page_answer(request, ((view.path, view) for view in found), show, QUEUES)

    @Row(f"{IN_PARTITION}/queue/{{queue}}", "queue", "Partition", QUEUE, (_SUBTREE,), long=True)
    async def queue(self, request: Request) -> ASGIApp:
        """Returns one queue."""
        views = partition_of(self._reader, request)
        path = known_queue(views, queue_path(request))
        subtree = "subtree" in query_of(request)
        return json_answer(await _make_tree(views, path, QueueTree(), subtree=subtree))


async def queue_tree(views: PartitionReader) -> dict[str, Any]:
    """Returns all queues of a partition as a tree; only the root names the partition."""
    return await _make_tree(views, "root", QueueTree(views.partition().name))


async def _make_tree(views: PartitionReader, path: str, tree: QueueTree, *, subtree: bool = True) -> dict[str, Any]:
    async for view in in_turns(views.queues(path, subtree=subtree)):
        tree.add(view)
    document = tree.to_document()
    if document is None:
        raise not_found("Queue")
    return document
