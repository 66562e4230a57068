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
from kornel.core.rest.queries import checked_user, read_positive, read_query
from kornel.core.rest.turns import gather_items
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.name_search import FoundName

MOST_FOUND: Final = 1_000
"""The most names of one kind in an answer."""

LONGEST_TEXT: Final = 512
MOST_TAGS: Final = 64


class FindingHandlers:
    """Handlers of ``/search`` and ``/placement`` of a partition."""

    def __init__(self, reader: CoreReader) -> None:
        self._reader = reader

    async def find_names(self, request: Request) -> ASGIApp:
        """Serves the names that have a text in them, at most *limit* of each kind."""
        views = partition_of(self._reader, request)
        query = read_query(request.scope["query_string"])
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

    async def find_queue(self, request: Request) -> ASGIApp:
        """Serves the queue that the placement rules give an application of a user."""
        views = partition_of(self._reader, request)
        query = read_query(request.scope["query_string"])
        user = checked_user(query.get("user", ""))
        groups = [name for name in query.get("groups", "").split(",") if name]
        tags = {name.removeprefix("tag."): value for name, value in query.items() if name.startswith("tag.")}
        if len(tags) > MOST_TAGS:
            raise RestError(400, f"give at most {MOST_TAGS} tags")
        return json_answer(PLACEMENT.write(views.find_placement(user, groups, query.get("queue", ""), tags)))
