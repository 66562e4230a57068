"""Explains why work waits, for the web page. YuniKorn has no such route."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.answers import json_answer
from kornel.core.rest.errors import RestError
from kornel.core.rest.handlers.places import partition_of, partition_or_none
from kornel.core.rest.queries import query_of
from kornel.core.rest.rows import IN_PARTITION, NAME, Parameter, Row
from kornel.core.service.managers.managers import Managers
from kornel.core.telling.allocations.explanation import Report
from kornel.core.telling.encoding.yunikorn.explanations import EXPLANATION, write_explanation
from kornel.core.telling.explain import Named, NamedOnNode, NodeUse
from kornel.core.telling.nodes.node_reports import AskOnNode, NodeReport

_SUBJECTS: Final = (
    Parameter("key", "Key of an ask or allocation, or an application ID.", NAME),
    Parameter("node", "A node: why the ask is not there; without key: why the node is used as it is.", NAME),
)
_NO_SUBJECT: Final = {400: "Neither key nor node.", 404: "No such partition or node, or nothing has this key."}


class ExplanationHandlers:
    """Serves ``/explain`` of a partition."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers

    @Row(f"{IN_PARTITION}/explain", "explain", "Explanations", EXPLANATION, _SUBJECTS, _NO_SUBJECT, ours=True)
    async def explain(self, request: Request) -> ASGIApp:
        """Tells why an ask waits, what an application waits for, or who took an allocation's room; with a node, why the
        ask is not there, or why the node is used as it is.

        It is the answer of ``kornel.v1.ExplainService.Explain``."""
        # An unknown partition is reported before any other mistake of the request.
        partition_of(self._managers.reader, request)
        query = query_of(request)
        key, node = query.get("key", ""), query.get("node", "")
        if not key and not node:
            raise RestError(400, "give key (an ask, an allocation or an application), node (a node ID), or both")
        found = await self._managers.questions.ask(lambda: self._explain_subject(request, key, node))
        if found is None:
            if node:
                raise RestError(404, "There is no such node, or no ask, allocation or application with this key")
            raise RestError(404, "Nothing has this key, and no allocation that had it was preempted recently")
        return json_answer(write_explanation(found))

    def _explain_subject(self, request: Request, key: str, node: str) -> Report | AskOnNode | NodeReport | None:
        reader = partition_or_none(self._managers.reader, request)
        if reader is None:
            return None
        if not node:
            return reader.explain(Named(key))
        return reader.explain(NamedOnNode(key, node)) if key else reader.explain(NodeUse(node))
