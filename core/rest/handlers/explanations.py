"""Explains why work waits and what was preempted for what, for the web page. YuniKorn has no such routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.rest.answers import JSON, Answer, json_answer, json_headers
from kornel.core.rest.errors import RestError
from kornel.core.rest.handlers.places import partition_of, partition_or_none
from kornel.core.rest.queries import read_positive, read_query, read_unsigned
from kornel.core.rest.turns import encode_list
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.managers.managers import Managers
from kornel.core.telling.allocations.explanation import Report
from kornel.core.telling.encoding.yunikorn.explanations import (
    DECISION,
    DECISION_BATCH,
    DecisionBatch,
    NumberedDecision,
    write_explanation,
)
from kornel.core.telling.encoding.yunikorn.preemption_kinds import write_preemption_kinds
from kornel.core.telling.explain import Named, NamedOnNode, NodeUse
from kornel.core.telling.nodes.node_reports import AskOnNode, NodeReport

MOST_DECISIONS: Final = 1_000
"""The most decisions in one answer, whatever a client asks for."""


class ExplanationHandlers:
    """Serves ``/explain`` and ``/preemptions`` of a partition, and the list of the kinds of preemption."""

    def __init__(self, managers: Managers, journal: EventJournal) -> None:
        self._managers = managers
        self._journal = journal

    async def explain(self, request: Request) -> ASGIApp:
        """Returns the same answer as ``kornel.v1.ExplainService.Explain``."""
        # An unknown partition is reported before any other mistake of the request.
        partition_of(self._managers.reader, request)
        query = read_query(request.scope["query_string"])
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

    async def kinds(self, request: Request) -> ASGIApp:
        """Returns the kinds of preemption, with the words that explain their decisions."""
        return json_answer(write_preemption_kinds())

    async def preemptions(self, request: Request) -> ASGIApp:
        """Returns attempts to preempt that had a result. Their numbers have gaps where other decisions were made."""
        name = partition_of(self._managers.reader, request).name
        query = read_query(request.scope["query_string"])
        count = min(read_positive(query, "limit", MOST_DECISIONS), MOST_DECISIONS)
        ring = self._journal.decisions
        start = (
            max(read_unsigned(query, "start", 0), ring.lowest_id) if query.get("start") else ring.newest_start(count)
        )
        found = ring.get(start, count) or ()
        next_id = start + len(found) if found else ring.next_id
        head = DECISION_BATCH.write(DecisionBatch(self._journal.instance, ring.lowest_id, next_id))
        documents: Iterator[dict[str, Any]] = (
            DECISION.write(NumberedDecision(start + place, entry.next_event, entry.what))
            for place, entry in enumerate(found)
            if isinstance(entry.what, PreemptionDecided) and entry.what.partition == name
        )
        body = b"".join((await encode_list(documents)).chunks).rstrip(b"\n")
        return Answer([orjson.dumps(head)[:-1], b',"preemptions":', body, b"}\n"], JSON, headers=json_headers())
