"""``kornel.v1.ExplainService``: why work waits, and what would happen if."""

from __future__ import annotations

from kornel.v1 import explain_pb2 as pb
from structlog.typing import FilteringBoundLogger

from core.service.clock import Clock
from core.service.explain_wire import decode_supposition
from core.service.rpc import Handler, unary
from core.service.runner import PartitionRunner
from core.service.status_codes import UnknownAsk, UnknownPartition
from core.telling.encoding.kornel_v1 import encode_forecast, encode_report


class ExplainService:
    """Answers between two slices, so that each answer is about one moment."""

    def __init__(self, runner: PartitionRunner, *, clock: Clock, logger: FilteringBoundLogger) -> None:
        self._runner = runner
        self._clock = clock
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """The calls by method name."""
        return {
            "Explain": unary(pb.ExplainRequest, self._explain, self._logger),
            "WhatIf": unary(pb.WhatIfRequest, self._what_if, self._logger),
        }

    async def _explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        found = await self._runner.questions.ask(
            lambda: self._runner.explain_work(request.partition, request.name, self._clock.now_ns())
        )
        if found is None:
            where = f"partition {request.partition or 'default'!r}"
            raise UnknownAsk(f"no ask, allocation, application or recent victim {request.name!r} in {where}")
        return encode_report(found)

    async def _what_if(self, request: pb.WhatIfRequest) -> pb.WhatIfResponse:
        question = decode_supposition(request)
        found = await self._runner.questions.ask(
            lambda: self._runner.suppose(request.partition, question, self._clock.now_ns())
        )
        if found is None:
            raise UnknownPartition(f"no partition {request.partition or 'default'!r}")
        return encode_forecast(found)
