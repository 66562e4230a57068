"""Serves ``kornel.v1.ExplainService``: explains why asks wait, and answers what-ifs."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import ApplicationSpec, UpdateApplications
from kornel.core.service.calls.rpc import Encoded, Handler, unary
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
from kornel.core.telling.what_if.supposition import SupposeAsk, Supposition
from kornel.v1 import explain_pb2 as pb


class ExplainService:
    """Serves ``kornel.v1.ExplainService``. Each answer is about one moment between two slices."""

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

    async def _explain(self, request: pb.ExplainRequest) -> Encoded:
        if not request.name and not request.node_id:
            raise InvalidRequest("give a key (an ask, an allocation or an application), a node, or both")
        size = self._managers.reader.size
        found = await self._managers.questions.ask_about(size, lambda: self._explain_subject(request))
        if found is None:
            where = f"partition {request.partition or 'default'!r}"
            self._require_place(request)
            raise UnknownAsk(f"no ask, allocation, application or recent victim {request.name!r} in {where}")
        return Encoded(found)

    async def _what_if(self, request: pb.WhatIfRequest) -> Encoded:
        question = decode_supposition(request)
        if isinstance(question, SupposeAsk):
            owner = ApplicationSpec(question.application_id, "", request.partition, question.user, question.groups)
            (owner,) = (await self._lookups.add_groups(UpdateApplications(self._managers.rm_id, (owner,)))).add
            groups = question.groups or owner.looked_up
            question = question._replace(groups=groups, unresolved=owner.unresolved)
        found = await self._managers.questions.ask_apart(lambda: self._suppose_change(request.partition, question))
        if found is None:
            raise UnknownPartition(say_no_partition(self._managers.rm_id, request.partition))
        return Encoded(found)

    def _explain_subject(self, request: pb.ExplainRequest) -> bytes | None:
        reader = self._managers.reader.get(request.partition)
        if reader is None:
            return None
        found: Report | AskOnNode | NodeReport | None
        if not request.node_id:
            found = reader.explain(Named(request.name))
        elif not request.name:
            found = reader.explain(NodeUse(request.node_id))
        else:
            found = reader.explain(NamedOnNode(request.name, request.node_id))
        return encode_report(found).SerializeToString() if found is not None else None

    def _require_place(self, request: pb.ExplainRequest) -> None:
        """Raises :class:`UnknownPartition` or :class:`UnknownNode` if the request names one that does not exist."""
        reader = self._managers.reader.get(request.partition)
        if reader is None:
            raise UnknownPartition(say_no_partition(self._managers.rm_id, request.partition))
        if request.node_id and reader.node(request.node_id) is None:
            raise UnknownNode(f"no node {request.node_id!r} in partition {request.partition or 'default'!r}")

    def _suppose_change(self, partition: str, question: Supposition) -> bytes | None:
        reader = self._managers.reader.get(partition)
        return encode_forecast(reader.suppose(question)).SerializeToString() if reader is not None else None
