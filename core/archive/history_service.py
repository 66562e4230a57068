"""``kornel.v1.HistoryService``: lists what the history database has. Queries run in threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import orjson
from google.protobuf.message import Message
from sqlalchemy.sql.elements import ColumnElement
from structlog.typing import FilteringBoundLogger

from kornel.core.archive.archive import Archive
from kornel.core.archive.reader import HistoryReader, Page, match_any, match_column, match_queue, token_of
from kornel.core.config.problems import Problem, Severity
from kornel.core.domain.secrets import text_without_secrets
from kornel.core.service.configuration_history import Origin, Version
from kornel.core.service.configuration_wire import version_message
from kornel.core.service.rpc import Handler, unary
from kornel.core.service.status_codes import HistoryOff, HistoryUnavailable
from kornel.v1 import history_pb2 as pb

QUERIES_AT_ONCE: Final = 2
MOST_WAITING: Final = 64
LARGEST_ANSWER: Final = 16 * 2**20
"""Bytes after which a page ends early."""

MessageT = TypeVar("MessageT", bound=Message)


class HistoryService:
    """The service of the stored history. *archive* and *reader* ``None``: no history is kept."""

    def __init__(self, archive: Archive | None, reader: HistoryReader | None, *, logger: FilteringBoundLogger) -> None:
        self._archive = archive
        self._reader = reader
        self._logger = logger
        self._threads = ThreadPoolExecutor(QUERIES_AT_ONCE, thread_name_prefix="history-query")
        self._waiting = 0

    def handlers(self) -> dict[str, Handler]:
        """Returns the calls by method name."""
        return {
            "ListPastApplications": unary(pb.ListPastApplicationsRequest, self._applications, self._logger),
            "ListPreemptions": unary(pb.ListPreemptionsRequest, self._preemptions, self._logger),
            "ListEvents": unary(pb.ListEventsRequest, self._events, self._logger),
            "ListConfigurations": unary(pb.ListConfigurationsRequest, self._list_configurations, self._logger),
            "GetHistoryStatus": unary(pb.GetHistoryStatusRequest, self._status, self._logger),
        }

    def close(self) -> None:
        """Take no more queries."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._reader is not None:
            self._reader.close()

    async def _applications(self, request: pb.ListPastApplicationsRequest) -> pb.ListPastApplicationsResponse:
        table = "applications"
        conditions = [
            *match_column(
                table, partition=request.partition, application_id=request.application_id, state=request.state
            ),
            *match_column(table, user_name=request.user),
            *match_queue(table, request.queue, "queue"),
        ]
        found, token = await self._read_page(table, request.page, conditions, _application_record)
        return pb.ListPastApplicationsResponse(applications=found, next_page_token=token)

    async def _preemptions(self, request: pb.ListPreemptionsRequest) -> pb.ListPreemptionsResponse:
        table = "preemptions"
        conditions = [
            *match_column(table, partition=request.partition, kind=request.kind, outcome=request.outcome),
            *match_any(table, request.application_id, "for_application", "victim_application"),
            *match_any(table, request.node_id, "node_id", "victim_node"),
            *match_queue(table, request.queue, "for_queue", "victim_queue"),
        ]
        found, token = await self._read_page(table, request.page, conditions, _preemption_record)
        return pb.ListPreemptionsResponse(preemptions=found, next_page_token=token)

    async def _events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        conditions = match_column(
            "events", type=request.type, object_id=request.object_id, reference_id=request.reference_id
        )
        found, token = await self._read_page("events", request.page, conditions, _history_event)
        return pb.ListEventsResponse(events=found, next_page_token=token)

    async def _list_configurations(self, request: pb.ListConfigurationsRequest) -> pb.ListConfigurationsResponse:
        conditions = match_column("configurations", applied=request.applied_only, checksum=request.checksum)
        build = partial(_configuration_record, with_config=request.with_config)
        found, token = await self._read_page("configurations", request.page, conditions, build)
        return pb.ListConfigurationsResponse(configurations=found, next_page_token=token)

    async def _status(self, _request: pb.GetHistoryStatusRequest) -> pb.GetHistoryStatusResponse:
        if self._archive is None:
            return pb.GetHistoryStatusResponse(enabled=False)
        status = self._archive.status()
        return pb.GetHistoryStatusResponse(
            enabled=True,
            database=status.database,
            problem=status.problem,
            problem_since_ns=status.problem_since_ns,
            run=status.run,
            stored=status.stored,
            committed=status.committed,
            queued=status.queued,
            spool_bytes=status.spool_bytes,
            spool_limit_bytes=status.spool_limit,
            dropped=status.dropped,
            refused=status.refused,
            last_commit_ns=status.last_commit_ns,
            set_aside=status.set_aside,
            set_aside_in=status.set_aside_in,
        )

    async def _read_page(
        self,
        table: str,
        wanted: pb.HistoryPage,
        conditions: Sequence[ColumnElement[bool]],
        build: Callable[[Any], MessageT],
    ) -> tuple[list[MessageT], str]:
        """Returns the records of one page, and the token of the next one."""
        if self._reader is None:
            raise HistoryOff("this core keeps no history, it was started with --history off or could not begin one")
        page = Page.of(wanted.since_ns, wanted.until_ns, wanted.page_size, wanted.page_token)
        if self._waiting >= MOST_WAITING:
            raise HistoryUnavailable(f"{self._waiting} queries of the history wait already")
        reader = self._reader
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _read, reader, table, page, conditions, build)
        finally:
            self._waiting -= 1


def _read(
    reader: HistoryReader,
    table: str,
    page: Page,
    conditions: Sequence[ColumnElement[bool]],
    build: Callable[[Any], MessageT],
) -> tuple[list[MessageT], str]:
    rows, more = reader.rows(table, page, conditions)
    messages: list[MessageT] = []
    size = 0
    for row in rows:
        messages.append(build(row))
        size += messages[-1].ByteSize()
        if size > LARGEST_ANSWER and len(messages) < len(rows):
            return messages, token_of(row)
    return messages, token_of(rows[-1]) if more else ""


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


def _preemption_record(row: Any) -> pb.PreemptionRecord:
    victim = None
    if row.victim_key:
        victim = pb.PreemptionVictim(
            allocation_key=row.victim_key,
            application_id=row.victim_application,
            queue=row.victim_queue,
            node_id=row.victim_node,
            resources=orjson.loads(row.victim_resources),
            adjusted_priority=row.victim_priority,
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


def _configuration_record(row: Any, *, with_config: bool) -> pb.ConfigurationRecord:
    version = Version(
        number=row.number,
        at_ns=row.at_ns,
        origin=Origin(row.origin),
        rm_id=row.rm_id,
        checksum=row.checksum,
        text=text_without_secrets(row.config),
        applied=row.applied,
        reason=row.reason,
        problems=tuple(
            Problem(**{**problem, "severity": Severity(problem["severity"])}) for problem in orjson.loads(row.problems)
        ),
        principal=row.principal,
        note=row.note,
    )
    return pb.ConfigurationRecord(
        id=_read_id(row), version=version_message(version, in_force=0), config=row.config if with_config else ""
    )
