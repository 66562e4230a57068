"""How many applications and containers ran lately (rest.md 4.8)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from core.rest.answers import json_answer
from core.rest.documents.reports import application_sample, container_sample
from core.rest.errors import RestError
from core.rest.history import UsageHistory


class HistoryHandlers:
    """R5 and R6."""

    def __init__(self, history: UsageHistory) -> None:
        self._history = history

    async def applications(self, _request: Request) -> ASGIApp:
        """R5."""
        self._require()
        return json_answer(self.application_documents())

    async def containers(self, _request: Request) -> ASGIApp:
        """R6."""
        self._require()
        return json_answer(self.container_documents())

    def application_documents(self) -> list[dict[str, Any]]:
        """All samples, the oldest first; numbers are text, as upstream has it."""
        return [application_sample(sample) for sample in self._history.samples()]

    def container_documents(self) -> list[dict[str, Any]]:
        """The same for containers."""
        return [container_sample(sample) for sample in self._history.samples()]

    def _require(self) -> None:
        if not self._history.enabled:
            raise RestError(500, "Internal metrics collection is not enabled.")
