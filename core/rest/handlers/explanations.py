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
from kornel.core.rest.queries import query_of, read_positive, read_unsigned
from kornel.core.rest.rows import IN_PARTITION, NAME, POSITIVE, UNSIGNED, Parameter, Row
from kornel.core.rest.turns import encode_list
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.managers.managers import Managers
from kornel.core.telling.allocations.explanation import Report
from kornel.core.telling.encoding.yunikorn.explanations import (
    DECISION,
    DECISION_BATCH,
    EXPLANATION,
    DecisionBatch,
    NumberedDecision,
    write_explanation,
)
from kornel.core.telling.explain import Named, NamedOnNode, NodeUse
from kornel.core.telling.nodes.node_reports import AskOnNode, NodeReport

MOST_DECISIONS: Final = 1_000
"""The most decisions in one answer, whatever a client asks for."""
_SUBJECTS: Final = (
    Parameter("key", "Key of an ask or allocation, or an application ID.", NAME),
    Parameter("node", "A node: why the ask is not there; without key: why the node is used as it is.", NAME),
)
_NO_SUBJECT: Final = {400: "Neither key nor node.", 404: "No such partition or node, or nothing has this key."}
_NUMBERS: Final = (
    Parameter("start", "Number of the first decision; without it, the answer has the newest.", UNSIGNED),
    Parameter("limit", "The most entries to look at; never more than 1000.", POSITIVE),
)


class ExplanationHandlers:
    """Serves ``/explain`` and ``/preemptions`` of a partition, and the list of the kinds of preemption."""

    def __init__(self, managers: Managers, journal: EventJournal) -> None:
        self._managers = managers
        self._journal = journal

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

    @Row(f"{IN_PARTITION}/preemptions", "preemptions", "Explanations", DECISION_BATCH, _NUMBERS, ours=True, long=True)
    async def preemptions(self, request: Request) -> ASGIApp:
        """Returns decisions to preempt, the oldest first.

        These are attempts that had a result. Their numbers have gaps where other decisions were made."""
        name = partition_of(self._managers.reader, request).name
        query = query_of(request)
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
