"""Serves the latest refusals, for the web page. YuniKorn has no such route."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.answers import json_answer
from kornel.core.rest.errors import RestError
from kornel.core.rest.queries import query_of, read_positive
from kornel.core.rest.refusal_documents import REFUSALS, Refusals
from kornel.core.rest.rows import POSITIVE, PREFIX, Parameter, Row
from kornel.core.service.events.refusals import RefusalKeeper, RefusalKind
from kornel.core.telling.core_reader import CoreReader

USUAL_LIMIT: Final = 500
_PARAMETERS: Final = (
    Parameter("kind", "Only this kind.", {"type": "string", "enum": list(RefusalKind)}),
    Parameter("partition", "Only of this partition; configurations belong to each."),
    Parameter("limit", "The most refusals in the answer; 500 by default.", POSITIVE),
)


class RefusalHandlers:
    """Serves the refusals. *reader* tells to which managers the partitions belong."""

    def __init__(self, refusals: RefusalKeeper, reader: CoreReader) -> None:
        self._refusals = refusals
        self._reader = reader

    @Row(f"{PREFIX}/scheduler/refusals", "refusals", "Operations", REFUSALS, _PARAMETERS, ours=True)
    async def show_refusals(self, request: Request) -> ASGIApp:
        """Returns recent refusals, with their resource manager, time and reason; the newest first."""
        query = query_of(request)
        wanted = query.get("kind", "")
        if wanted and wanted not in set(RefusalKind):
            raise RestError(400, f'"{wanted}" is not a kind of refusal; give one of {", ".join(RefusalKind)}')
        partition = query.get("partition", "")
        found = self._refusals.newest(
            (RefusalKind(wanted),) if wanted else (),
            self._full_name(partition) if partition else "",
        )
        limit = read_positive(query, "limit", USUAL_LIMIT)
        counts = {str(kind): self._refusals.counts[kind] for kind in RefusalKind}
        return json_answer(REFUSALS.write(Refusals(counts, found[:limit])))

    def _full_name(self, partition: str) -> str:
        found = self._reader.get_first(partition)
        return found.name if found is not None else self._reader.full_name(partition)
