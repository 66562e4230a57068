"""Finds the handler of a path: methods, redirects to canonical paths, and the texts for unknown paths (rest.md 2).

The HTTP server percent-decodes a path once. Fixed parts are first matched in upper and lower case as they are; a path
that matches only in another case, or in its canonical form, is redirected.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final
from urllib.parse import quote

from grpc import StatusCode
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kornel.core.rest.access import OPEN_DOOR, Access, Door
from kornel.core.rest.answers import API_VERSION, HTML, TEXT, Answer, error_answer, raw_headers, size_of, text_answer
from kornel.core.rest.browser_rules import ANYTHING, BrowserRules
from kornel.core.rest.errors import RestError, refusal_of
from kornel.core.rest.http_protocol import ABORT
from kornel.core.rest.long_answers import LongAnswers
from kornel.core.rest.operations import Operation
from kornel.core.rest.path_names import to_canonical
from kornel.core.service.wire.status_codes import status_of

NO_HOST: Final = "A request has to name exactly one host\n"
NOT_OURS: Final = "The Host of this request is not a name of this core; see --rest-host\n"

_IS_JSON: Final = raw_headers([("YuniKorn-Api-Version", API_VERSION)])[0]
"""The content type of answers that pages of other origins may be allowed to read."""

Handler = Callable[[Request], Awaitable[ASGIApp]]

_SAFE: Final = "/:@!$&'()*+,;=-._~"


@dataclass(frozen=True, slots=True)
class Route:
    """A route. ``path``: a segment that begins with ``:`` stands for any value of that name.

    ``operation``: its entry in the OpenAPI document; ``None``: it has none, because it is not meant for programs.
    ``long``: its answers may have megabytes, so only a few are made at a time.
    """

    path: str
    handler: Handler
    operation: Operation | None = None
    method: str = "GET"
    access: Access = Access.READ
    long: bool = False
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.path.strip("/").split("/")))

    @property
    def allowed(self) -> str:
        """The value of the ``Allow`` header: the methods in alphabetical order."""
        return ", ".join(sorted((self.method, "OPTIONS")))

    def fill_path(self, values: dict[str, str]) -> str:
        """Returns the path with *values* in place of its names."""
        return "/" + "/".join(values[segment[1:]] if segment[:1] == ":" else segment for segment in self.segments)


class Table:
    """All routes. Fixed segments are preferred to names."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)
        self._by_length: dict[int, list[Route]] = {}
        for route in self._routes:
            self._by_length.setdefault(len(route.segments), []).append(route)
        for same in self._by_length.values():
            same.sort(key=lambda route: tuple(segment.startswith(":") for segment in route.segments))

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def find_route(self, path: str, *, any_case: bool = False) -> tuple[Route, dict[str, str]] | None:
        """Returns the route of *path* and the values of its names; ``None``: there is none."""
        segments = path.split("/")[1:]
        for route in self._by_length.get(len(segments), ()):
            values = _match_route(route.segments, segments, any_case)
            if values is not None:
                return route, values
        return None


def _match_route(wanted: tuple[str, ...], given: list[str], any_case: bool) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for name, segment in zip(wanted, given, strict=True):
        if name[:1] == ":" and segment:
            values[name[1:]] = segment
        elif name != segment and not (any_case and name.lower() == segment.lower()):
            return None
    return values


class Router:
    """The ASGI application for a table of routes. *otherwise* answers paths without a route; absent: they get 404.

    *rules* are applied before anything else, *door* before a handler runs. *long_answers*: the places for long answers,
    which may be shared with handlers that take a place themselves.
    """

    def __init__(
        self,
        table: Table,
        *,
        logger: FilteringBoundLogger,
        door: Door = OPEN_DOOR,
        rules: BrowserRules = ANYTHING,
        otherwise: ASGIApp | None = None,
        long_answers: LongAnswers | None = None,
    ) -> None:
        self._table = table
        self._logger = logger
        self._door = door
        self._rules = rules
        self._otherwise = otherwise
        self._long_answers = LongAnswers() if long_answers is None else long_answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        began = time.perf_counter()
        try:
            answer, methods = await self._find_answer(scope, receive)
            abort = scope.get("extensions", {}).get(ABORT, {}).get("abort")
            with self._long_answers.on_its_way(size_of(answer), abort):
                await answer(scope, receive, _add_timing(self._make_readable(send, scope, methods), began))
        finally:
            self._door.end_request(scope)
        self._logger.debug(
            "http request",
            method=scope["method"],
            path=quote(scope["path"], safe=_SAFE)[:200],
            client=(scope.get("client") or ("",))[0],
            ms=round((time.perf_counter() - began) * 1_000, 3),
        )

    async def _find_answer(self, scope: Scope, receive: Receive) -> tuple[ASGIApp, str]:
        """Returns the answer, and the methods of its route; empty: there is no route."""
        hosts = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == b"host"]
        if not self._rules.names_one_host(hosts, old=scope["http_version"] < "1.1"):
            return text_answer(NO_HOST, status=400), ""
        if hosts and not self._rules.knows_host(hosts[0]):
            return text_answer(NOT_OURS, status=421), ""
        path = scope["path"]
        tidy = to_canonical(path)
        found = self._table.find_route(tidy)
        if found is not None and tidy == path:
            return await self._handle(*found, scope, receive), found[0].allowed
        found = found or self._table.find_route(tidy, any_case=True)
        if found is not None:
            return _redirect_to(found[0].fill_path(found[1]), scope), ""
        if self._otherwise is not None:
            return self._otherwise, ""
        return Answer([b"404 page not found"], TEXT, status=404), ""

    def _make_readable(self, send: Send, scope: Scope, methods: str) -> Send:
        """Returns *send* for an answer that pages of other origins may read if it is JSON."""
        allowing = raw_headers(self._rules.headers_for(_find_header(scope, b"origin"), methods)) if methods else []
        if not allowing:
            return send

        async def send_readable(message: Message) -> None:
            if message["type"] == "http.response.start" and _IS_JSON in message["headers"]:
                message = {**message, "headers": [*message["headers"], *allowing]}
            await send(message)

        return send_readable

    async def _handle(self, route: Route, values: dict[str, str], scope: Scope, receive: Receive) -> ASGIApp:
        if scope["method"] == "OPTIONS":
            allowing = self._rules.headers_for(_find_header(scope, b"origin"), route.allowed)
            return text_answer("", headers=[("Allow", route.allowed), *allowing])
        if scope["method"] != route.method:
            return text_answer("Method Not Allowed", status=405, headers=[("Allow", route.allowed)])
        scope["path_params"] = values
        request = Request(scope, receive)
        try:
            await self._door.admit_request(request, route.access)
            if not route.long:
                return await route.handler(request)
            async with self._long_answers.count_making():
                return await route.handler(request)
        except RestError as error:
            return error_answer(error.status, error.message, headers=error.headers)
        except ClientDisconnect:
            return text_answer("", status=408)  # The client is gone and will not read the answer.
        except Exception as error:
            status = status_of(error)
            if status.code is StatusCode.INTERNAL:
                self._logger.error("bug while a request was answered", route=route.path, exc_info=error)
            refusal = refusal_of(status.code, status.details)
            return error_answer(refusal.status, refusal.message, headers=refusal.headers)


def redirect_to(location: str, status: int = 301) -> Answer:
    """Returns a redirection to *location*, with a page that says so."""
    page = f'<a href="{escape(location)}">Moved Permanently</a>.\n'
    return text_answer(page, status=status, content_type=HTML, headers=[("Location", location)])


def _add_timing(send: Send, began: float) -> Send:
    """Returns *send* for an answer that says how long the core has worked on it.

    The web page repeats slow requests less often.
    """

    async def send_timed(message: Message) -> None:
        if message["type"] == "http.response.start":
            spent = f"core;dur={(time.perf_counter() - began) * 1_000:.2f}".encode()
            message = {**message, "headers": [*message["headers"], (b"server-timing", spent)]}
        await send(message)

    return send_timed


def _redirect_to(path: str, scope: Scope) -> Answer:
    location = quote(path, safe=_SAFE)
    query = scope["query_string"].decode("latin-1")
    if query:
        location += "?" + quote(query, safe=_SAFE + "?%")
    return redirect_to(location, 301 if scope["method"] == "GET" else 307)


def _find_header(scope: Scope, name: bytes) -> str:
    """Returns the first header of this *name*; empty: there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
