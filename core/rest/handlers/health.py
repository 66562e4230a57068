"""Serves the last health report (rest.md 4.13), and probes for orchestrators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.documents.reports import HEALTH
from kornel.core.rest.http.access import Access
from kornel.core.rest.http.errors import RestError
from kornel.core.rest.serving.answers import json_answer, text_answer
from kornel.core.rest.serving.queries import query_of, read_flag
from kornel.core.rest.serving.rows import FLAG, PREFIX, Parameter, Row
from kornel.core.service.managers.health import HealthKeeper

_STRICT: Final = (Parameter("strict", "Extension: 503 when the report has a problem.", FLAG),)
_UNHEALTHY: Final = {404: "There is no report yet.", 503: "The report has a problem (with strict)."}


class HealthHandlers:
    """Serves the health report (R24). Kornel's own parameter ``strict=true`` answers 503 if something is wrong."""

    def __init__(self, keeper: HealthKeeper, ready: Callable[[], bool]) -> None:
        self._keeper = keeper
        self._ready = ready

    @Row(f"{PREFIX}/scheduler/healthcheck", "healthcheck", "Operations", HEALTH, _STRICT, _UNHEALTHY)
    async def report(self, request: Request) -> ASGIApp:
        """Returns the latest health report; 200 even when it reports a problem."""
        report = self._keeper.report
        if report is None:
            raise RestError(404, "Health check is not available")
        strict = read_flag(query_of(request), "strict")
        return json_answer(HEALTH.write(report), status=503 if strict and not report.healthy else 200)

    @Row("/healthz/ready", "ready", "Operations", None, (), {503: "Not now."}, ("text/plain",), access=Access.OPEN)
    async def ready(self, _request: Request) -> ASGIApp:
        """Tells whether the core accepts requests.

        It does not tell whether all is well, because an unhealthy core still schedules."""
        ready = self._ready()
        return text_answer("ready\n" if ready else "not ready\n", status=200 if ready else 503)


@Row("/healthz/live", "live", "Operations", content=("text/plain",), access=Access.OPEN)
async def live(_request: Request) -> ASGIApp:
    """Answers as long as the process runs.

    It needs the event loop, which is what this probe asks about."""
    return text_answer("ok\n", headers=[("Cache-Control", "no-store")])
