"""Serves the routes about applications (rest.md 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.domain.application_states import AppState
from kornel.core.rest.handlers.places import known_queue, partition_of, queue_path
from kornel.core.rest.http.errors import RestError, not_found
from kornel.core.rest.http.path_names import decode_again
from kornel.core.rest.serving.answers import Answer, json_answer
from kornel.core.rest.serving.listing import (
    PAGE_PARAMETERS,
    SUMMARY,
    Wishes,
    list_answer,
    page_in_order,
    page_of,
    whole_list_answer,
    wishes_of,
)
from kornel.core.rest.serving.queries import checked_queue, read_unsigned
from kornel.core.rest.serving.rows import IN_PARTITION, UNSIGNED, Parameter, Row, any_case
from kornel.core.rest.serving.sorting import APPLICATIONS, Order, Value
from kornel.core.rest.serving.turns import gather_items
from kornel.core.telling.applications.application_views import ApplicationSummary, ApplicationView
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.encoding.yunikorn.applications import (
    APPLICATION,
    encode_head,
    encode_parts,
    write_application,
    write_application_summary,
)
from kornel.core.telling.reader import PartitionReader

ACTIVE: Final = {
    state.lower(): state
    for state in (
        AppState.NEW,
        AppState.ACCEPTED,
        AppState.RUNNING,
        AppState.COMPLETING,
        AppState.FAILING,
        AppState.RESUMING,
    )
}
"""The values of ``status``."""

_QUEUE: Final = f"{IN_PARTITION}/queue/{{queue}}"
_FILTERS: Final = (
    *PAGE_PARAMETERS,
    APPLICATIONS.parameter,
    SUMMARY,
    Parameter("user", "Extension: only applications of this user."),
    Parameter("queuePrefix", "Extension: only applications of queues whose path begins so."),
    Parameter("contains", "Extension: only applications with this text in ID, queue or user; case does not matter."),
    Parameter("since", "Extension: only applications submitted at this time (ns) or later.", UNSIGNED),
)
_IN_STATE: Final = (
    Parameter("status", f"Only those in this active state: {', '.join(ACTIVE)}.", any_case(*ACTIVE, empty=True)),
    *_FILTERS,
)
_ANY_STATE: Final = Parameter("state", "Extension: with the value any, also one that has ended or was rejected.")

Test = Callable[[ApplicationSummary | ApplicationView], bool]


class ApplicationHandlers:
    """Serves routes R13 to R17. Pages, ``sort``, ``summary``, ``user``, ``queuePrefix``, ``contains`` and ``since`` are
    Kornel's own."""

    def __init__(self, reader: CoreReader) -> None:
        self._reader = reader

    @Row(f"{_QUEUE}/applications", "applicationsOfQueue", "Applications", [APPLICATION], _FILTERS, long=True)
    async def of_queue(self, request: Request) -> ASGIApp:
        """Returns the live applications of this queue, without the queues below."""
        path = queue_path(request)
        views = partition_of(self._reader, request)
        return await self._find_live(request, views, known_queue(views, path), None)

    @Row(
        f"{_QUEUE}/applications/{{state}}", "applicationsOfQueueByState", "Applications", [APPLICATION], _IN_STATE,
        long=True,
    )  # fmt: skip
    async def of_queue_by_state(self, request: Request) -> ASGIApp:
        """Returns the live applications of this queue that are in one state."""
        views = partition_of(self._reader, request)
        path = known_queue(views, queue_path(request))
        if request.path_params["state"].lower() != "active":
            raise RestError(400, "Only following application states are allowed: active")
        return await self._find_live(request, views, path, _status(request))

    @Row(
        f"{IN_PARTITION}/applications/{{state}}",
        "applicationsByState",
        "Applications",
        [APPLICATION],
        _IN_STATE,
        long=True,
    )
    async def by_state(self, request: Request) -> ASGIApp:
        """Returns the applications that are active, completed or rejected."""
        views = partition_of(self._reader, request)
        state = request.path_params["state"].lower()
        if state == "active":
            # For applications that have ended, YuniKorn ignores the status.
            return await self._find_live(request, views, "", _status(request))
        if state == "completed":
            return await _list_past(request, views.finished_applications())
        if state == "rejected":
            return await _list_past(request, views.rejected_applications())
        raise RestError(400, "Only following application states are allowed: active, rejected, completed")

    @Row(f"{_QUEUE}/application/{{application}}", "applicationOfQueue", "Applications", APPLICATION)
    async def in_queue(self, request: Request) -> ASGIApp:
        """Returns a live application of this queue."""
        name = decode_again(request.path_params["queue"])
        views = partition_of(self._reader, request)
        path = known_queue(views, checked_queue(name))
        found = views.application(request.path_params["application"])
        if found is None or found.queue != path:
            raise not_found("Application")
        return json_answer(write_application(found))

    @Row(f"{IN_PARTITION}/application/{{application}}", "application", "Applications", APPLICATION, (_ANY_STATE,))
    async def application(self, request: Request) -> ASGIApp:
        """Returns a live application.

        With ``state=any`` it also finds applications that have ended or were rejected, the latest with that ID."""
        views = partition_of(self._reader, request)
        wanted = request.path_params["application"]
        found = views.application(wanted)
        if found is None and wishes_of(request).query.get("state", "").lower() == "any":
            found = next(
                (
                    past
                    for past in reversed([*views.rejected_applications(), *views.finished_applications()])
                    if past.application_id == wanted
                ),
                None,
            )
        if found is None:
            raise not_found("Application")
        return json_answer(write_application(found))

    async def _find_live(self, request: Request, views: PartitionReader, path: str, status: AppState | None) -> ASGIApp:
        """Returns the live applications of the queue at *path*, or of all queues, in the state *status*, or in any."""
        wishes = wishes_of(request)
        test, order = _make_test(wishes, status), APPLICATIONS.find_order(wishes.query)
        if wishes.plain and test is None and order is None:
            if not wishes.fields:
                return await whole_list_answer(request, map(encode_parts, views.application_parts(path, encode_head)))
            found = views.applications_of(path) if path else views.applications()
            return await list_answer(request, map(write_application, found), wishes)
        summaries = [
            (summary.application_id, summary)
            for summary in await gather_items(views.application_summaries())
            if (not path or summary.queue == path) and (test is None or test(summary))
        ]
        if order is None:
            page, more = page_of(summaries, wishes)
        else:
            page, more = await page_in_order(
                await gather_items(_rank_applications(views, path, dict(summaries), order)), wishes, order
            )
        documents = _make_documents(views, page, summary=wishes.summary)
        return await list_answer(request, documents, wishes, more=more, total=len(summaries))


async def _list_past(request: Request, found: Iterable[ApplicationView]) -> Answer:
    wishes = wishes_of(request)
    test, order = _make_test(wishes, None), APPLICATIONS.find_order(wishes.query)
    if wishes.plain and test is None and order is None:
        return await list_answer(request, map(write_application, found), wishes)
    # Several ended applications may have the same ID, so the time of the end makes the key unique and keeps pages in
    # order.
    keyed = [(f"{view.finished_ns:020}/{view.application_id}", view) for view in found if test is None or test(view)]
    keyed.sort(key=lambda pair: pair[0])
    if order is None:
        page, more = page_of(keyed, wishes)
    else:
        ranked = await gather_items((order.value_of(write_application_summary(view)), key, view) for key, view in keyed)
        page, more = await page_in_order(ranked, wishes, order)
    documents = map(_writer_for(summary=wishes.summary), page)
    return await list_answer(request, documents, wishes, more=more, total=len(keyed))


def _rank_applications(
    views: PartitionReader, path: str, chosen: dict[str, ApplicationSummary], order: Order
) -> Iterator[tuple[Value, str, ApplicationSummary] | None]:
    """Yields each of the *chosen* with its sort value and key, and ``None`` for every other application."""
    for parts in views.application_parts(path, encode_head):
        document = orjson.loads(parts.head)
        summary = chosen.get(document["applicationID"])
        yield (order.value_of(document), summary.application_id, summary) if summary is not None else None


def _make_documents(
    views: PartitionReader, page: list[ApplicationSummary], *, summary: bool
) -> Iterator[dict[str, Any]]:
    write = _writer_for(summary=summary)
    for item in page:
        view = views.application(item.application_id)
        if view is not None:
            yield write(view)


def _writer_for(*, summary: bool) -> Callable[[ApplicationView], dict[str, Any]]:
    return write_application_summary if summary else write_application


def _status(request: Request) -> AppState | None:
    text = wishes_of(request).query.get("status", "")
    if not text:
        return None
    state = ACTIVE.get(text.lower())
    if state is None:
        allowed = ", ".join(ACTIVE)
        raise RestError(400, f"allowed active status filters: {allowed}")
    return state


def _make_test(wishes: Wishes, status: AppState | None) -> Test | None:
    """Returns the test that an application must pass; ``None``: there is none."""
    tests: list[Test] = []
    if status is not None:
        tests.append(lambda summary: summary.state is status)
    user = wishes.query.get("user", "")
    if user:
        tests.append(lambda summary: summary.user == user)
    prefix = wishes.query.get("queuePrefix", "").lower()
    if prefix:
        tests.append(lambda summary: summary.queue.startswith(prefix))
    part = wishes.query.get("contains", "").lower()
    if part:
        tests.append(lambda one: any(part in text.lower() for text in (one.application_id, one.queue, one.user)))
    since_ns = read_unsigned(wishes.query, "since", 0)
    if since_ns:
        tests.append(lambda summary: summary.submitted_ns >= since_ns)
    if not tests:
        return None
    return lambda summary: all(test(summary) for test in tests)
