"""Serves metrics, written by a function that the process provides (rest.md 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.metrics.exposition import CONTENT_TYPE
from kornel.core.rest.serving.answers import Answer, wants_gzip
from kornel.core.rest.serving.rows import PREFIX, Row
from kornel.core.rest.serving.turns import make_body
from kornel.core.service.machine.loop_time import WaitingLine

Exposition = Callable[[], Iterator[bytes]]
"""A function that writes the present metrics, uncompressed, in pieces between which other tasks may run. Only one call
may be active at a time."""

MOST_WAITING: Final = 8


class MetricsHandlers:
    """Serves the metrics (R2), compressed like any other answer."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._line = WaitingLine(MOST_WAITING, "too many scrapes at once")

    @Row(f"{PREFIX}/metrics", "metrics", "Operations", content=("text/plain",))
    async def scrape(self, request: Request) -> ASGIApp:
        """Returns the metrics for Prometheus."""
        async with self._line.take_turn():
            body = await make_body(self._exposition(), compress=wants_gzip(request.scope))
        return Answer(body.chunks, CONTENT_TYPE, compress=False, encoded=body.encoded)
