"""Serves samples of how many applications and containers ran lately (rest.md 4.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.documents.history import UsageHistory, UsageSample
from kornel.core.rest.documents.reports import APPLICATION_SAMPLE, CONTAINER_SAMPLE
from kornel.core.rest.http.errors import RestError
from kornel.core.rest.serving.listing import PAGE_PARAMETERS, page_answer
from kornel.core.rest.serving.queries import query_of, read_unsigned
from kornel.core.rest.serving.rows import PREFIX, UNSIGNED, Parameter, Row

_PARAMETERS: Final = (
    *PAGE_PARAMETERS,
    Parameter("since", "Extension: only samples taken at this time (ns) or later.", UNSIGNED),
)
_ERRORS: Final = {500: "Internal metrics collection is not enabled."}


class HistoryHandlers:
    """Serves routes R5 and R6. Pages and ``since`` (ns) are Kornel's own."""

    def __init__(self, history: UsageHistory) -> None:
        self._history = history

    @Row(f"{PREFIX}/history/apps", "applicationHistory", "Cluster", [APPLICATION_SAMPLE], _PARAMETERS, _ERRORS)
    async def applications(self, request: Request) -> ASGIApp:
        """Returns the numbers of running applications, one sample per minute."""
        return await page_answer(request, self._samples_since(request), APPLICATION_SAMPLE.write)

    @Row(f"{PREFIX}/history/containers", "containerHistory", "Cluster", [CONTAINER_SAMPLE], _PARAMETERS, _ERRORS)
    async def containers(self, request: Request) -> ASGIApp:
        """Returns the numbers of containers, one sample per minute."""
        return await page_answer(request, self._samples_since(request), CONTAINER_SAMPLE.write)

    def application_documents(self) -> list[dict[str, Any]]:
        """Returns all samples of the number of applications, the oldest first, with numbers as text, as in YuniKorn."""
        return [APPLICATION_SAMPLE.write(sample) for sample in self._history.kept_samples()]

    def container_documents(self) -> list[dict[str, Any]]:
        """Returns all samples of the number of containers, in the same form as those of applications."""
        return [CONTAINER_SAMPLE.write(sample) for sample in self._history.kept_samples()]

    def _samples_since(self, request: Request) -> Iterator[tuple[str, UsageSample]]:
        if not self._history.enabled:
            raise RestError(500, "Internal metrics collection is not enabled.")
        since_ns = read_unsigned(query_of(request), "since", 0)
        return ((f"{s.at_ns:020}", s) for s in self._history.kept_samples() if s.at_ns >= since_ns)
