"""Serves ``kornel.v1.ExplainService``: explains why asks wait, and answers what-ifs."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import ApplicationSpec, UpdateApplications
from kornel.core.service.calls.rpc import Handler, unary
from kornel.core.service.managers.managers import Managers
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.wire.explain_wire import decode_supposition
from kornel.core.service.wire.status_codes import (
    InvalidRequest,
    UnknownAsk,
    UnknownNode,
    UnknownPartition,
    say_no_partition,
)
from kornel.core.telling.allocations.explanation import Report
from kornel.core.telling.encoding.kornel_v1 import encode_forecast, encode_report
from kornel.core.telling.explain import Named, NamedOnNode, NodeUse
from kornel.core.telling.nodes.node_reports import AskOnNode, NodeReport
from kornel.core.telling.what_if.supposition import Forecast, SupposeAsk, Supposition
from kornel.v1 import explain_pb2 as pb


class ExplainService:
    """Serves ``kornel.v1.ExplainService``. It answers between two slices, so that each answer is about one moment."""

    def __init__(self, managers: Managers, *, lookups: GroupLookups, logger: FilteringBoundLogger) -> None:
        self._managers = managers
        self._lookups = lookups
        self._logger = logger

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {
            "Explain": unary(pb.ExplainRequest, self._explain, self._logger),
            "WhatIf": unary(pb.WhatIfRequest, self._what_if, self._logger),
        }

    async def _explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        if not request.name and not request.node_id:
            raise InvalidRequest("give a key (an ask, an allocation or an application), a node, or both")
        found = await self._managers.questions.ask(lambda: self._explain_subject(request))
        if found is None:
            where = f"partition {request.partition or 'default'!r}"
            self._require_place(request)
            raise UnknownAsk(f"no ask, allocation, application or recent victim {request.name!r} in {where}")
        return encode_report(found)

    async def _what_if(self, request: pb.WhatIfRequest) -> pb.WhatIfResponse:
        question = decode_supposition(request)
        if isinstance(question, SupposeAsk):
            owner = ApplicationSpec(question.application_id, "", request.partition, question.user, question.groups)
            (owner,) = (await self._lookups.add_groups(UpdateApplications(self._managers.rm_id, (owner,)))).add
            groups = question.groups or owner.looked_up
            question = question._replace(groups=groups, unresolved=owner.unresolved)
        found = await self._managers.questions.ask(lambda: self._suppose_change(request.partition, question))
        if found is None:
            raise UnknownPartition(say_no_partition(self._managers.rm_id, request.partition))
        return encode_forecast(found)

    def _explain_subject(self, request: pb.ExplainRequest) -> Report | AskOnNode | NodeReport | None:
        reader = self._managers.reader.get(request.partition)
        if reader is None:
            return None
        if not request.node_id:
            return reader.explain(Named(request.name))
        if not request.name:
            return reader.explain(NodeUse(request.node_id))
        return reader.explain(NamedOnNode(request.name, request.node_id))

    def _require_place(self, request: pb.ExplainRequest) -> None:
        """Raises :class:`UnknownPartition` or :class:`UnknownNode` if the request names one that does not exist."""
        reader = self._managers.reader.get(request.partition)
        if reader is None:
            raise UnknownPartition(say_no_partition(self._managers.rm_id, request.partition))
        if request.node_id and reader.node(request.node_id) is None:
            raise UnknownNode(f"no node {request.node_id!r} in partition {request.partition or 'default'!r}")

    def _suppose_change(self, partition: str, question: Supposition) -> Forecast | None:
        reader = self._managers.reader.get(partition)
        return reader.suppose(question) if reader is not None else None
