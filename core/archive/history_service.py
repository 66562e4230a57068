"""Serves ``kornel.v1.HistoryService``, which lists what the history database has. Queries run in threads of their
own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from google.protobuf.message import Message
from sqlalchemy.sql.elements import ColumnElement
from structlog.typing import FilteringBoundLogger

from kornel.core.archive.archive import Archive, ArchiveStatus
from kornel.core.archive.preemption_parties import Parties, Sum, find_parties, sum_preemptions
from kornel.core.archive.reader import (
    HistoryReader,
    Page,
    match_any,
    match_column,
    match_partition,
    match_queue,
    token_of,
)
from kornel.core.archive.usage_points import UsagePoint, read_usage
from kornel.core.config.text.problems import Problem, Severity
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.secrets import text_without_secrets
from kornel.core.preemption.registry import SOURCES
from kornel.core.service.calls.rpc import Encoded, Service
from kornel.core.service.configuration.configuration_history import Origin, Version
from kornel.core.service.configuration.configuration_wire import version_message
from kornel.core.service.machine.loop_time import WaitingLine
from kornel.core.service.wire.status_codes import InvalidRequest
from kornel.core.telling.encoding.kornel_v1 import ENCODERS
from kornel.v1 import history_pb2 as pb

MOST_WAITING: Final = 64
"""The most queries that run or wait. One runs at a time, because two threads that make records would hardly leave the
interpreter to the event loop."""

AT_ONCE: Final = 50
"""The number of records made before the interpreter is left to other threads for as long as that took."""
LARGEST_ANSWER: Final = 16 * 2**20
"""The bytes of an answer after which a page ends early."""

_PARTIES: Final = {
    pb.PREEMPTION_PARTY_UNSPECIFIED: "queue",
    pb.PREEMPTION_PARTY_USER: "user",
    pb.PREEMPTION_PARTY_APPLICATION: "application",
}

_encode_sum: Final = ENCODERS.add(
    Sum, pb.PreemptionSum, {"victim_count": "victims", "left_count": "left", "resources": "amounts"}
)
_encode_point: Final = ENCODERS.add(
    UsagePoint, pb.UsagePoint, {"sample_count": "samples", "application_count": "applications"}
)
_encode_status: Final = ENCODERS.add(
    ArchiveStatus, pb.GetHistoryStatusResponse, {"spool_limit_bytes": "spool_limit"}, given=("enabled",)
)

MessageT = TypeVar("MessageT", bound=Message)
AnswerT = TypeVar("AnswerT")

_Answer: TypeAlias = (
    pb.ListPastApplicationsResponse | pb.ListPreemptionsResponse | pb.ListEventsResponse | pb.ListConfigurationsResponse
)

BuildAll: TypeAlias = Callable[[HistoryReader, Sequence[Any]], Iterator[MessageT]]
"""A function that makes messages from rows, if necessary by further queries."""


class HistoryService(Service):
    """Serves the stored history."""

    described = pb.DESCRIPTOR.services_by_name["HistoryService"]

    def __init__(self, archive: Archive, reader: HistoryReader, *, logger: FilteringBoundLogger) -> None:
        super().__init__(logger)
        self._archive = archive
        self._reader = reader
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history-query")
        self._line = WaitingLine(MOST_WAITING, "too many queries of the history wait already")

    def close(self) -> None:
        """Accepts no more queries."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._reader.close()

    async def _list_past_applications(self, request: pb.ListPastApplicationsRequest) -> Encoded:
        table = "applications"
        conditions = [
            *match_partition(table, request.partition),
            *match_column(table, application_id=request.application_id, state=request.state),
            *match_column(table, user_name=request.user),
            *match_queue(table, request.queue, "queue"),
        ]
        page = pb.ListPastApplicationsResponse()
        return await self._read_page(
            table, request.page, conditions, _build_each(_application_record), page, page.applications
        )

    async def _list_preemptions(self, request: pb.ListPreemptionsRequest) -> Encoded:
        conditions = _match_preemptions(request)

        def build_all(reader: HistoryReader, rows: Sequence[Any]) -> Iterator[pb.PreemptionRecord]:
            parties = find_parties(reader, rows)
            return (_preemption_record(row, parties) for row in rows)

        page = pb.ListPreemptionsResponse()
        return await self._read_page("preemptions", request.page, conditions, build_all, page, page.preemptions)

    async def _sum_preemptions(self, request: pb.SumPreemptionsRequest) -> pb.SumPreemptionsResponse:
        wanted = pb.ListPreemptionsRequest()
        wanted.CopyFrom(request.preemptions)
        wanted.outcome = ""
        page = Page.page_for(wanted.page.since_ns, wanted.page.until_ns, 0, "")
        by = _PARTIES.get(request.by)
        if by is None:
            raise InvalidRequest(f"there are no sums by {request.by}")
        sums, complete = await self._run_query(
            lambda reader: sum_preemptions(reader, page, _match_preemptions(wanted), by)
        )
        return pb.SumPreemptionsResponse(sums=map(_encode_sum, sums), complete=complete)

    async def _list_events(self, request: pb.ListEventsRequest) -> Encoded:
        conditions = match_column(
            "events", type=request.type, object_id=request.object_id, reference_id=request.reference_id
        )
        page = pb.ListEventsResponse()
        return await self._read_page("events", request.page, conditions, _build_each(_history_event), page, page.events)

    async def _list_configurations(self, request: pb.ListConfigurationsRequest) -> Encoded:
        conditions = match_column("configurations", applied=request.applied_only, checksum=request.checksum)
        show = lru_cache(maxsize=1)(text_without_secrets) if request.with_config else None
        build = partial(_configuration_record, show=show)
        page = pb.ListConfigurationsResponse()
        return await self._read_page(
            "configurations", request.page, conditions, _build_each(build), page, page.configurations
        )

    async def _list_usage(self, request: pb.ListUsageRequest) -> pb.ListUsageResponse:
        page = Page.page_for(request.since_ns, request.until_ns, request.point_count, "")
        found = await self._run_query(
            lambda reader: read_usage(reader, page, request.partition, request.queue, request.point_count)
        )
        return pb.ListUsageResponse(points=map(_encode_point, found))

    async def _get_history_status(self, _request: pb.GetHistoryStatusRequest) -> pb.GetHistoryStatusResponse:
        return _encode_status(self._archive.status(), enabled=True)

    async def _read_page(
        self,
        table: str,
        wanted: pb.HistoryPage,
        conditions: Sequence[ColumnElement[bool]],
        build_all: BuildAll[MessageT],
        answer: _Answer,
        records: MutableSequence[MessageT],
    ) -> Encoded:
        """Returns *answer*, with the records of one page in its *records*, and the token of the next one."""
        page = Page.page_for(wanted.since_ns, wanted.until_ns, wanted.page_size, wanted.page_token)

        def read(reader: HistoryReader) -> bytes:
            answer.next_page_token = _read(reader, table, page, conditions, build_all, records)
            return answer.SerializeToString()

        return Encoded(await self._run_query(read))

    async def _run_query(self, query: Callable[[HistoryReader], AnswerT]) -> AnswerT:
        """Returns the answer of *query*, which blocks, from a thread that may wait."""
        async with self._line.take_turn():
            return await asyncio.get_running_loop().run_in_executor(self._thread, query, self._reader)


def _read(
    reader: HistoryReader,
    table: str,
    page: Page,
    conditions: Sequence[ColumnElement[bool]],
    build_all: BuildAll[MessageT],
    records: MutableSequence[MessageT],
) -> str:
    """Put the records of *page* into *records*. Returns the token of the next page; empty: there is none."""
    rows, more = reader.read_rows(table, page, conditions)
    size = 0
    began = time.perf_counter()
    for row, message in zip(rows, build_all(reader, rows), strict=True):
        records.append(message)
        size += message.ByteSize()
        if size > LARGEST_ANSWER and len(records) < len(rows):
            return token_of(row)
        if len(records) % AT_ONCE == 0:
            time.sleep(time.perf_counter() - began)
            began = time.perf_counter()
    return token_of(rows[-1]) if more else ""


def _build_each(build: Callable[[Any], MessageT]) -> BuildAll[MessageT]:
    """Returns a function that makes a message from each row by itself."""
    return lambda _, rows: map(build, rows)


def _match_preemptions(request: pb.ListPreemptionsRequest) -> list[ColumnElement[bool]]:
    table = "preemptions"
    if request.kind and request.kind not in SOURCES:
        raise InvalidRequest(f"there is no kind of preemption {request.kind!r}, only {', '.join(SOURCES)}")
    if request.outcome and request.outcome not in Outcome.__members__:
        raise InvalidRequest(f"preemption has no outcome {request.outcome!r}")
    return [
        *match_partition(table, request.partition),
        *match_column(table, kind=request.kind, outcome=request.outcome),
        *match_any(table, request.application_id, "for_application", "victim_application"),
        *match_any(table, request.node_id, "node_id", "victim_node"),
        *match_queue(table, request.queue, "for_queue", "victim_queue"),
    ]


def _read_id(row: Any) -> pb.HistoryRecordId:
    return pb.HistoryRecordId(run=row.run, sequence=row.seq)


def _application_record(row: Any) -> pb.ApplicationRecord:
    return pb.ApplicationRecord(
        id=_read_id(row),
        at_ns=row.at_ns,
        partition=row.partition,
        application_id=row.application_id,
        queue=row.queue,
        user=row.user_name,
        state=row.state,
        submitted_ns=row.submitted_ns,
        message=row.message,
    )


def _preemption_record(row: Any, parties: Parties) -> pb.PreemptionRecord:
    victim = None
    if row.victim_key:
        victim = pb.PreemptionVictim(
            allocation_key=row.victim_key,
            application_id=row.victim_application,
            queue=row.victim_queue,
            node_id=row.victim_node,
            resources=orjson.loads(row.victim_resources),
            adjusted_priority=row.victim_priority,
            user=parties.user_of(row.partition, row.victim_application),
            left_ns=parties.left_ns(row),
        )
    return pb.PreemptionRecord(
        id=_read_id(row),
        at_ns=row.at_ns,
        partition=row.partition,
        decision=row.decision,
        kind=row.kind,
        laws=map(int, row.laws.split()),
        outcome=row.outcome,
        detail=row.detail,
        for_allocation_key=row.for_key,
        for_application_id=row.for_application,
        for_queue=row.for_queue,
        node_id=row.node_id,
        victim=victim,
        for_user=parties.user_of(row.partition, row.for_application),
    )


def _history_event(row: Any) -> pb.HistoryEvent:
    return pb.HistoryEvent(
        id=_read_id(row),
        at_ns=row.at_ns,
        type=row.type,
        change=row.change,
        detail=row.detail,
        object_id=row.object_id,
        reference_id=row.reference_id,
        resources=orjson.loads(row.resources) if row.resources else {},
        message=row.message,
    )


def _configuration_record(row: Any, *, show: Callable[[str], str] | None) -> pb.ConfigurationRecord:
    """Returns the record in *row*, with its text as *show* makes it."""
    version = Version(
        number=row.number,
        at_ns=row.at_ns,
        origin=Origin(row.origin),
        rm_id=row.rm_id,
        checksum=row.checksum,
        text=row.config,
        applied=row.applied,
        reason=row.reason,
        problems=tuple(
            Problem(**{**problem, "severity": Severity(problem["severity"])}) for problem in orjson.loads(row.problems)
        ),
        principal=row.principal,
        note=row.note,
    )
    shown = show(row.config) if show is not None else ""
    return pb.ConfigurationRecord(
        id=_read_id(row),
        version=version_message(version, in_force=0),
        config=shown,
        has_hidden=show is not None and shown != row.config,
    )
