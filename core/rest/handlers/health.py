"""Serves the last health report (rest.md 4.13), and probes for orchestrators."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.answers import json_answer, text_answer
from kornel.core.rest.errors import RestError
from kornel.core.rest.queries import read_flag, read_query
from kornel.core.rest.reports import HEALTH
from kornel.core.service.managers.health import HealthKeeper


class HealthHandlers:
    """Serves the health report (R24). Kornel's own parameter ``strict=true`` answers 503 if something is wrong."""

    def __init__(self, keeper: HealthKeeper, ready: Callable[[], bool]) -> None:
        self._keeper = keeper
        self._ready = ready

    async def report(self, request: Request) -> ASGIApp:
        """Serves route R24."""
        report = self._keeper.report
        if report is None:
            raise RestError(404, "Health check is not available")
        strict = read_flag(read_query(request.scope["query_string"]), "strict")
        return json_answer(HEALTH.write(report), status=503 if strict and not report.healthy else 200)

    async def ready(self, _request: Request) -> ASGIApp:
        """Serves a route of Kornel's own that tells whether the core takes requests. It does not tell whether all is
        well, because an unhealthy core still schedules."""
        ready = self._ready()
        return text_answer("ready\n" if ready else "not ready\n", status=200 if ready else 503)


async def live(_request: Request) -> ASGIApp:
    """Answers 200 as long as the event loop runs, which is what this probe asks."""
    return text_answer("ok\n", headers=[("Cache-Control", "no-store")])
