"""Serves ``kornel.v1.ExplainService``: explains why asks wait, and answers what-ifs."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import ApplicationSpec, UpdateApplications
from kornel.core.service.calls.rpc import Encoded, Service
from kornel.core.service.managers.managers import Managers
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.wire.explain_wire import decode_supposition
from kornel.core.service.wire.status_codes import InvalidRequest, NotFound
from kornel.core.telling.allocations.explanation import Report
from kornel.core.telling.encoding.kornel_v1 import encode_forecast, encode_report
from kornel.core.telling.explain import Named, NamedOnNode, NodeUse
from kornel.core.telling.nodes.node_reports import AskOnNode, NodeReport
from kornel.core.telling.what_if.supposition import SupposeAsk, Supposition
from kornel.v1 import explain_pb2 as pb


class ExplainService(Service):
    """Serves ``kornel.v1.ExplainService``. Each answer is about one moment between two slices."""

    described = pb.DESCRIPTOR.services_by_name["ExplainService"]

    def __init__(self, managers: Managers, *, lookups: GroupLookups, logger: FilteringBoundLogger) -> None:
        super().__init__(logger)
        self._managers = managers
        self._lookups = lookups

    async def _explain(self, request: pb.ExplainRequest) -> Encoded:
        if not request.name and not request.node_id:
            raise InvalidRequest("give a key (an ask, an allocation or an application), a node, or both")
        size = self._managers.reader.size
        found = await self._managers.questions.ask_about(size, lambda: self._explain_subject(request))
        if found is None:
            reader = self._managers.find_partition(request.partition)
            where = f"in partition {request.partition or 'default'!r}"
            if request.node_id and reader.node(request.node_id) is None:
                raise NotFound(f"no node {request.node_id!r} {where}")
            raise NotFound(f"no ask, allocation, application or recent victim {request.name!r} {where}")
        return Encoded(found)

    async def _what_if(self, request: pb.WhatIfRequest) -> Encoded:
        question = decode_supposition(request)
        if isinstance(question, SupposeAsk):
            owner = ApplicationSpec(question.application_id, "", request.partition, question.user, question.groups)
            (owner,) = (await self._lookups.add_groups(UpdateApplications(self._managers.rm_id, (owner,)))).add
            groups = question.groups or owner.looked_up
            question = question._replace(groups=groups, unresolved=owner.unresolved)
        found = await self._managers.questions.ask_apart(lambda: self._suppose_change(request.partition, question))
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

    def _suppose_change(self, partition: str, question: Supposition) -> bytes:
        return encode_forecast(self._managers.find_partition(partition).suppose(question)).SerializeToString()
