"""Answers the queries of a history where none is kept. It needs no database."""

from __future__ import annotations

from typing import Final, NoReturn

from google.protobuf.message import Message
from structlog.typing import FilteringBoundLogger

from kornel.core.service.calls.rpc import Handler, unary
from kornel.core.service.wire.status_codes import HistoryOff
from kornel.v1 import history_pb2 as pb

_QUERIES: Final[dict[str, type[Message]]] = {
    "ListPastApplications": pb.ListPastApplicationsRequest,
    "ListPreemptions": pb.ListPreemptionsRequest,
    "SumPreemptions": pb.SumPreemptionsRequest,
    "ListEvents": pb.ListEventsRequest,
    "ListConfigurations": pb.ListConfigurationsRequest,
    "ListUsage": pb.ListUsageRequest,
}


class AbsentHistory:
    """Stands for the history of a core that keeps none: refuses all queries, and says so in its status."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        queries = {name: unary(request, _refuse_query, self._logger) for name, request in _QUERIES.items()}
        return {**queries, "GetHistoryStatus": unary(pb.GetHistoryStatusRequest, _tell_status, self._logger)}

    def close(self) -> None:
        """Does nothing: no query is under way."""


async def _refuse_query(_request: Message) -> NoReturn:
    raise HistoryOff("this core keeps no history, it was started with --history off or could not begin one")


async def _tell_status(_request: pb.GetHistoryStatusRequest) -> pb.GetHistoryStatusResponse:
    return pb.GetHistoryStatusResponse(enabled=False)
