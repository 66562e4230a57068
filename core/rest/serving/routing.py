"""Serves the rows of a table: hosts, canonical paths, methods, and the texts for unknown paths (rest.md 2).

A path is percent-decoded once, and Starlette finds its row. A path that has a row only in its canonical
form, or in another case of its fixed parts, is redirected.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape
from typing import Final
from urllib.parse import quote

from grpc import StatusCode
from starlette import routing
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kornel.core.rest.http.access import Door
from kornel.core.rest.http.browser_rules import ANYTHING, BrowserRules
from kornel.core.rest.http.errors import RestError, refusal_of
from kornel.core.rest.http.http_protocol import ABORT
from kornel.core.rest.http.path_names import SAFE, decode_path, decode_slashes, encode_path, to_canonical
from kornel.core.rest.serving.answers import (
    API_VERSION,
    HTML,
    TEXT,
    Answer,
    error_answer,
    raw_headers,
    size_of,
    text_answer,
)
from kornel.core.rest.serving.rows import Handler, Row
from kornel.core.service.calls.long_answers import LongAnswers
from kornel.core.service.managers.standing import Standing
from kornel.core.service.wire.status_codes import status_of

NO_HOST: Final = "A request has to name exactly one host\n"
NOT_OURS: Final = "The Host of this request is not a name of this core; see --rest-host\n"

_IS_JSON: Final = raw_headers([("YuniKorn-Api-Version", API_VERSION)])[0]
"""The content type of answers that pages of other origins may be allowed to read."""


class Router:
    """The ASGI application for *rows* with their handlers; the first one that has a path counts. *otherwise* answers
    paths without a row; absent: they get 404.

    *rules* are applied before anything else, *door* before a handler runs. *long_answers*: the places for long answers,
    which may be shared with handlers that take a place themselves. *standing*: that of a core which shares its journal.
    """

    def __init__(
        self,
        rows: Iterable[tuple[Row, Handler]],
        *,
        logger: FilteringBoundLogger,
        door: Door | None = None,
        rules: BrowserRules = ANYTHING,
        otherwise: ASGIApp | None = None,
        long_answers: LongAnswers | None = None,
        standing: Standing | None = None,
    ) -> None:
        self._logger = logger
        self._door = door
        self._rules = rules
        self._standing = standing
        self._otherwise = otherwise or Answer([b"404 page not found"], TEXT, status=404)
        self._long_answers = LongAnswers() if long_answers is None else long_answers
        routes = [routing.Route(row.path.rstrip("/"), _Endpoint(self, row, handler)) for row, handler in rows]
        self._find_row = routing.Router(routes, redirect_slashes=False, default=self._redirect_request)
        self._forms = [each.path.split("/") for each in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        began = time.perf_counter()
        scope = {**scope, "path": decode_path(scope["raw_path"])}
        try:
            await self._check_host(scope)(scope, receive, self._mark_answer(send, began))
        finally:
            if self._door is not None:
                self._door.end_request(scope)
        self._logger.debug(
            "http request",
            method=scope["method"],
            path=encode_path(scope["path"])[:200],
            client=(scope.get("client") or ("",))[0],
            ms=round((time.perf_counter() - began) * 1_000, 3),
        )

    def _mark_answer(self, send: Send, began: float) -> Send:
        """Returns *send* for an answer that says how long the core has worked on it, because the web page repeats slow
        requests less often; that of a standby has its possible age and the address of the leader, too."""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = [("Server-Timing", f"core;dur={(time.perf_counter() - began) * 1_000:.2f}")]
                if self._standing is not None and not self._standing.leads:
                    said.append(("Kornel-Standing", _describe_standing(self._standing)))
                message = {**message, "headers": [*message["headers"], *raw_headers(said)]}
            await send(message)

        return send_marked

    def _check_host(self, scope: Scope) -> ASGIApp:
        """Returns what answers a request that is meant for this core, or refuses another one."""
        hosts = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == b"host"]
        if not self._rules.names_one_host(hosts, old=scope["http_version"] < "1.1"):
            return text_answer(NO_HOST, status=400)
        if hosts and not self._rules.knows_host(hosts[0]):
            return text_answer(NOT_OURS, status=421)
        return self._find_row if to_canonical(scope["path"]) == scope["path"] else self._redirect_request

    async def _redirect_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request without a row with the path that has one, if there is any."""
        segments = to_canonical(scope["path"]).split("/")
        answer: ASGIApp = self._otherwise
        for form in self._forms:
            if len(form) == len(segments) and all(map(_fits_segment, form, segments)):
                right = (segment if name[:1] == "{" else name for name, segment in zip(form, segments, strict=True))
                answer = _redirect_to("/".join(right), scope)
                break
        await answer(scope, receive, send)

    async def serve_row(self, row: Row, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request to the path of *row*."""
        allowing = self._rules.headers_for(_find_header(scope, b"origin"), row.allowed)
        answer: ASGIApp
        if scope["path"].endswith("\n") and not row.path.endswith("}"):
            answer = self._otherwise  # Starlette also finds rows for paths with a line feed behind them.
        elif scope["method"] == "OPTIONS":
            answer = text_answer("", headers=[("Allow", row.allowed), *allowing])
        elif scope["method"] != row.method:
            answer = text_answer("Method Not Allowed", status=405, headers=[("Allow", row.allowed)])
        else:
            answer = await self._handle(row, handler, Request(scope, receive))
        abort = scope.get("extensions", {}).get(ABORT, {}).get("abort")
        with self._long_answers.on_its_way(size_of(answer), abort):
            await answer(scope, receive, _make_readable(send, raw_headers(allowing)))

    async def _handle(self, row: Row, handler: Handler, request: Request) -> ASGIApp:
        try:
            if self._door is not None:
                await self._door.admit_request(request, row.access)
            if not row.long:
                return await handler(request)
            async with self._long_answers.count_making():
                return await handler(request)
        except RestError as error:
            return error_answer(error.status, error.message, headers=error.headers)
        except ClientDisconnect:
            return text_answer("", status=408)  # The client is gone and will not read the answer.
        except Exception as error:
            status = status_of(error)
            if status.code is StatusCode.INTERNAL:
                self._logger.error("bug while a request was answered", route=row.path, exc_info=error)
            refusal = refusal_of(status.code, status.details)
            return error_answer(refusal.status, refusal.message, headers=refusal.headers)


class _Endpoint:
    """A row as Starlette serves it, whatever the method."""

    def __init__(self, router: Router, row: Row, handler: Handler) -> None:
        self._router = router
        self._row = row
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path_params"] = {name: decode_slashes(value) for name, value in scope["path_params"].items()}
        await self._router.serve_row(self._row, self._handler, scope, receive, send)


def _fits_segment(name: str, segment: str) -> bool:
    return name[:1] == "{" or name.lower() == segment.lower()


def _make_readable(send: Send, allowing: list[tuple[bytes, bytes]]) -> Send:
    """Returns *send* for an answer that pages of other origins may read if it is JSON and *allowing* has headers."""
    if not allowing:
        return send

    async def send_readable(message: Message) -> None:
        if message["type"] == "http.response.start" and _IS_JSON in message["headers"]:
            message = {**message, "headers": [*message["headers"], *allowing]}
        await send(message)

    return send_readable


def redirect_to(location: str, status: int = 301) -> Answer:
    """Returns a redirection to *location*, with a page that says so."""
    page = f'<a href="{escape(location)}">Moved Permanently</a>.\n'
    return text_answer(page, status=status, content_type=HTML, headers=[("Location", location)])


def _describe_standing(standing: Standing) -> str:
    leader = f"; leader={standing.leader_address}" if standing.leader_address else ""
    return f"{standing.role}; behind={standing.behind_s:.3f}{leader}"


def _redirect_to(path: str, scope: Scope) -> Answer:
    location = encode_path(path)
    query = scope["query_string"].decode("latin-1")
    if query:
        location += "?" + quote(query, safe=SAFE + "?%")
    return redirect_to(location, 301 if scope["method"] == "GET" else 307)


def _find_header(scope: Scope, name: bytes) -> str:
    """Returns the first header of this *name*; empty: there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
