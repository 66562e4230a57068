"""Answers the queries of a history where none is kept. It needs no database."""

from __future__ import annotations

from typing import Any, NoReturn

from google.protobuf.message_factory import GetMessageClass

from kornel.core.service.calls.rpc import Handler, Service, unary
from kornel.core.service.wire.status_codes import HistoryOff
from kornel.v1 import history_pb2 as pb


class AbsentHistory(Service):
    """Stands for the history of a core that keeps none: refuses all queries, and says so in its status."""

    described = pb.DESCRIPTOR.services_by_name["HistoryService"]

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {
            each.name: unary(
                GetMessageClass(each.input_type),
                _tell_status if each.name == "GetHistoryStatus" else _refuse_query,
                self._logger,
            )
            for each in self.described.methods
        }

    def close(self) -> None:
        """Does nothing: no query is under way."""


async def _refuse_query(_request: Any) -> NoReturn:
    raise HistoryOff("this core keeps no history, it was started with --history off or could not begin one")


async def _tell_status(_request: Any) -> pb.GetHistoryStatusResponse:
    return pb.GetHistoryStatusResponse(enabled=False)
