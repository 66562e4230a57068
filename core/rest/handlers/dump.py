"""Serves the state dump (rest.md 8): everything in one object, written piece by piece, one dump at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.documents.reports import (
    DUMP_KEYS,
    OPEN_STREAM,
    PARTITION_NODES,
    STATE_DUMP,
    OpenStream,
    PartitionPart,
)
from kornel.core.rest.handlers.cluster import ClusterHandlers
from kornel.core.rest.handlers.configuration import ConfigurationHandlers
from kornel.core.rest.handlers.history import HistoryHandlers
from kornel.core.rest.handlers.queues import queue_tree
from kornel.core.rest.http.access import Access
from kornel.core.rest.http.compression import Body
from kornel.core.rest.serving.answers import JSON, Answer, json_headers, wants_gzip
from kornel.core.rest.serving.queries import query_of
from kornel.core.rest.serving.rows import Parameter, Row
from kornel.core.rest.serving.turns import gather_items
from kornel.core.service.callbacks.callback_board import CallbackBoard, NoStateDump
from kornel.core.service.callbacks.state_dumps import BadStateDump, read_state_dump
from kornel.core.service.calls.long_answers import LongAnswers
from kornel.core.service.events.event_streams import StreamPlaces
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.machine.loop_time import WaitingLine, in_turns
from kornel.core.service.managers.managers import Managers
from kornel.core.telling.encoding.yunikorn.applications import write_application
from kornel.core.telling.encoding.yunikorn.nodes import write_node

DIAGNOSTICS: Final = "rmDiagnostics"
"""The name of the part that the shim is asked for."""

MOST_DUMPS: Final = 16
"""The most dumps that wait or are being made; one is made at a time."""

_INDENT: Final = orjson.OPT_INDENT_2
_PARTS: Final = (Parameter("include", "Extension: only these parts of the state, separated by commas."),)


class DumpHandlers:
    """Serves the state dump (D2). The parameter ``include``, a list of parts, is Kornel's own."""

    def __init__(
        self,
        managers: Managers,
        places: StreamPlaces,
        cluster: ClusterHandlers,
        configuration: ConfigurationHandlers,
        history: HistoryHandlers,
        *,
        clock: Clock,
        log_level: Callable[[], str],
        long_answers: LongAnswers,
    ) -> None:
        self._managers = managers
        self._reader = managers.reader
        self._places = places
        self._cluster = cluster
        self._configuration = configuration
        self._history = history
        self._clock = clock
        self._log_level = log_level
        self._long_answers = long_answers
        self._line = WaitingLine(MOST_DUMPS, "too many state dumps are being made")

    @Row("/debug/fullstatedump", "fullStateDump", "Debug", STATE_DUMP, _PARTS, {400: ""}, access=Access.ADMIN)
    async def dump(self, request: Request) -> ASGIApp:
        """Returns the full state of the core in one answer."""
        wanted = query_of(request).get("include", "")
        names = {name for name in wanted.split(",") if name} or set(DUMP_KEYS)
        async with self._line.take_turn():
            body = await self._make_dump(names | {"timestamp"}, compress=wants_gzip(request.scope))
        return Answer(body.chunks, JSON, headers=json_headers(), compress=False, encoded=body.encoded)

    async def _make_dump(self, names: set[str], *, compress: bool) -> Body:
        # The shim may take seconds to answer, so a place for long answers, for which other lists wait, is taken
        # afterwards.
        diagnostics = await self._read_diagnostics() if DIAGNOSTICS in names else {}
        async with self._long_answers.count_making():
            body = Body(compress=compress)
            async for piece in self._dump_pieces(names, diagnostics):
                body.add(piece)
            body.end_body()
        return body

    async def _dump_pieces(self, names: set[str], diagnostics: dict[str, Any]) -> AsyncIterator[bytes]:
        opening = b"{"
        parts: Mapping[str, Callable[[], Any]] = {
            "timestamp": self._clock.now_ns,
            "partitions": self._cluster.partition_documents,
            "applications": self._applications,
            "appHistory": self._history.application_documents,
            "containerHistory": self._history.container_documents,
            "nodes": self._nodes,
            "clusterInfo": self._cluster.cluster_documents,
            "queues": self._queues,
            DIAGNOSTICS: lambda: diagnostics,
            "logLevel": self._log_level,
            "config": self._config,
            "placementRules": self._cluster.rule_documents,
            "eventStreams": self._stream_documents,
        }
        for name in DUMP_KEYS:
            if name not in names:
                continue
            made = parts[name]()
            value = await made if isawaitable(made) else made
            if not value:
                continue
            yield opening + b'\n  "' + name.encode() + b'": '
            opening = b","
            if isinstance(value, list):
                yield b"["
                async for number, item in in_turns(enumerate(value)):
                    yield (b",\n    " if number else b"\n    ") + _indent_json(item, 4)
                yield b"\n  ]"
            else:
                yield _indent_json(value, 2)
        yield b"\n}\n"

    async def _applications(self) -> list[Any]:
        found: list[Any] = []
        for views in self._reader.partitions():
            for kind in (views.applications(), views.finished_applications(), views.rejected_applications()):
                found += await gather_items(map(write_application, kind))
        return found

    async def _nodes(self) -> list[Any]:
        return [
            PARTITION_NODES.write(
                PartitionPart(views.partition().name, await gather_items(map(write_node, views.nodes())))
            )
            for views in self._reader.partitions()
        ]

    async def _queues(self) -> list[Any]:
        return [await queue_tree(views) for views in self._reader.partitions()]

    async def _config(self) -> dict[str, Any]:
        return dict(await self._configuration.make_document())

    async def _read_diagnostics(self) -> dict[str, Any]:
        """Returns the shim's own state, or why there is none; for several managers, by their names."""
        places = self._managers.registered
        if len(places) > 1:
            return {place.rm_id: await _diagnostics_of(place.callbacks) for place in places}
        return await _diagnostics_of(self._managers.leader.callbacks)

    def _stream_documents(self) -> list[dict[str, str]]:
        return [
            OPEN_STREAM.write(OpenStream(stream.host, _write_time(stream.opened_ns)))
            for stream in self._places.open_streams()
        ]


async def _diagnostics_of(callbacks: CallbackBoard) -> dict[str, Any]:
    try:
        return await read_state_dump(callbacks)
    except BadStateDump as reason:
        return {"Error": str(reason)}
    except NoStateDump as reason:
        return {"empty": str(reason)}


def _write_time(ns: int) -> str:
    return datetime.fromtimestamp(ns / SECOND_NS, UTC).isoformat().replace("+00:00", "Z")


def _indent_json(value: Any, columns: int) -> bytes:
    return orjson.dumps(value, option=_INDENT).replace(b"\n", b"\n" + b" " * columns)
