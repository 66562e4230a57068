"""The seam for metrics: whoever keeps them hands over a function that writes them down (rest.md 6)."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from core.rest.answers import Answer

Exposition = Callable[[str], tuple[str, bytes]]
"""From an ``Accept`` header to a content type and the metrics as of now, uncompressed."""


class MetricsHandlers:
    """R2. Compressed as any other answer is: once."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition

    async def scrape(self, request: Request) -> ASGIApp:
        """R2."""
        content_type, body = self._exposition(request.headers.get("accept", ""))
        return Answer([body], content_type)
