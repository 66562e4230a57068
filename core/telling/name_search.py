"""Searches for everything whose name contains a text, ignoring case: applications, asks, allocations, nodes, queues,
users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kornel.core.state.partition_state import PartitionState

_STEP: Final = 512
"""The number of names that are examined between two pauses for other tasks."""


class FoundName(NamedTuple):
    """One result of a search. ``kind``: application, ended, ask, allocation, node, queue or user.

    ``place``: the queue of an application, the application of an ask, and so on; ``state``: one word, may be empty.
    """

    kind: str
    name: str
    place: str = ""
    state: str = ""


def search_names(state: PartitionState, text: str, now_ns: int) -> Iterator[FoundName | None]:
    """Yields everything that has *text* in its name, kind by kind, the newest ended applications first.

    Yields ``None`` as a pause for other tasks.
    """
    wanted = text.lower()
    for number, found in enumerate(_all_names(state, now_ns)):
        if wanted in found.name.lower():
            yield found
        if not number % _STEP:
            yield None


def _all_names(state: PartitionState, now_ns: int) -> Iterator[FoundName]:
    """Yields all names. A name that is added or removed in the meantime may or may not be found."""
    users: dict[str, None] = {}
    for application in list(state.applications.values()):
        users[application.user] = None
        yield FoundName("application", application.application_id, application.queue.path, str(application.state))
    for ended in (
        *reversed(state.past.finished_applications(now_ns)),
        *reversed(state.past.rejected_applications(now_ns)),
    ):
        users[ended.user] = None
        yield FoundName("ended", ended.spec.application_id, ended.queue, str(ended.state))
    for path in list(state.queues):
        yield FoundName("queue", path)
    for node_id, node in list(state.nodes.items()):
        yield FoundName("node", node_id, "", "" if node.schedulable else "closed")
    yield from (FoundName("user", user) for user in users if user)
    yield from _request_names(state)


def _request_names(state: PartitionState) -> Iterable[FoundName]:
    for request in list(state.requests.values()):
        owner = request.application.application_id
        if request.node is None:
            yield FoundName("ask", request.spec.key, owner)
        else:
            yield FoundName("allocation", request.spec.key, owner, request.node.node_id)
