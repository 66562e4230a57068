"""Serves the search by name, and the queue that an application would get: for the web page; YuniKorn has neither."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.answers import json_answer
from kornel.core.rest.errors import RestError
from kornel.core.rest.handlers.places import partition_of
from kornel.core.rest.page_documents import PLACEMENT, SEARCH, SearchAnswer
from kornel.core.rest.queries import checked_user, query_of, read_positive
from kornel.core.rest.rows import IN_PARTITION, NAME, POSITIVE, Parameter, Row
from kornel.core.rest.turns import gather_items
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.name_search import FoundName

MOST_FOUND: Final = 1_000
"""The most names of one kind in an answer."""

LONGEST_TEXT: Final = 512
MOST_TAGS: Final = 64
_SEARCHED: Final = (
    Parameter("text", "The text that names contain; case does not matter.", NAME, required=True),
    Parameter("limit", "The most names of each kind; 20 by default, never more than 1000.", POSITIVE),
)
_PLACED: Final = (
    Parameter("user", "Owner of the application.", NAME, required=True),
    Parameter("groups", "Groups of the owner, separated by commas; by default one group with the user's name."),
    Parameter("queue", "The queue that the application names."),
)


class FindingHandlers:
    """Handlers of ``/search`` and ``/placement`` of a partition."""

    def __init__(self, reader: CoreReader) -> None:
        self._reader = reader

    @Row(f"{IN_PARTITION}/search", "search", "Explanations", SEARCH, _SEARCHED, ours=True, long=True)
    async def find_names(self, request: Request) -> ASGIApp:
        """Returns applications (ended ones too), queues, nodes, users, asks, allocations by part of a name."""
        views = partition_of(self._reader, request)
        query = query_of(request)
        text = query.get("text", "").strip()
        if not text or len(text) > LONGEST_TEXT:
            raise RestError(400, f"give a text that names contain, of 1 to {LONGEST_TEXT} characters")
        most = min(read_positive(query, "limit", 20), MOST_FOUND)
        counts: Counter[str] = Counter()
        found: list[FoundName] = []
        for each in await gather_items(views.search_names(text)):
            counts[each.kind] += 1
            if counts[each.kind] <= most:
                found.append(each)
        more = [kind for kind, count in counts.items() if count > most]
        return json_answer(SEARCH.write(SearchAnswer(found, more)))

    @Row(f"{IN_PARTITION}/placement", "placement", "Explanations", PLACEMENT, _PLACED, ours=True)
    async def find_queue(self, request: Request) -> ASGIApp:
        """Returns the queue that an application would get, were it submitted now; tag.NAME gives a tag."""
        views = partition_of(self._reader, request)
        query = query_of(request)
        user = checked_user(query.get("user", ""))
        groups = [name for name in query.get("groups", "").split(",") if name]
        tags = {name.removeprefix("tag."): value for name, value in query.items() if name.startswith("tag.")}
        if len(tags) > MOST_TAGS:
            raise RestError(400, f"give at most {MOST_TAGS} tags")
        return json_answer(PLACEMENT.write(views.find_placement(user, groups, query.get("queue", ""), tags)))
