"""Calls of ``kornel.v1`` over HTTP, for the web page, which cannot use gRPC. YuniKorn has none.

Each one runs the handler of gRPC, so limits, errors and log lines are the same. A call that changes something is
allowed only for pages of this core, and if callers are not identified, only from this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn
from urllib.parse import urlsplit

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.documents.message_documents import (
    check_structure,
    document_like,
    long_document,
    message_document,
    read_message,
    read_parameters,
)
from kornel.core.rest.documents.page_documents import CALLER_REPORT, CallerReport
from kornel.core.rest.handlers.configuration import limited_body
from kornel.core.rest.handlers.places import partition_of
from kornel.core.rest.http.access import ADMITTED, Access
from kornel.core.rest.http.errors import RestError, refusal_of
from kornel.core.rest.serving.answers import json_answer
from kornel.core.rest.serving.queries import query_of
from kornel.core.rest.serving.rows import (
    IN_PARTITION,
    JSON_TYPE,
    NAME,
    OBJECT,
    POSITIVE,
    PREFIX,
    UNSIGNED,
    YAML_TYPE,
    HandlerT,
    Parameter,
    Row,
)
from kornel.core.security.methods import METHODS
from kornel.core.service.calls.long_answers import LongAnswers
from kornel.core.service.calls.rpc import Handler
from kornel.core.service.configuration.configuring import Outcome
from kornel.core.service.connections.callers import CALLER, PEER, Permission, principal
from kornel.core.service.connections.limits import CONFIGURATION_LIMIT, QUESTION_LIMIT, request_limit
from kornel.core.service.events.refusals import RefusalKind
from kornel.core.service.managers.managers import Managers
from kornel.v1 import configuration_pb2

MOST_BODY: Final = 4 * 2**20 + 64 * 1024
"""The most bytes of a request with a configuration of the largest size, with the JSON around it."""

PARSED_ALONE: Final = 1_024
"""The size in bytes from which a body is parsed in a separate turn of the event loop."""

_CALLS: Final = f"{PREFIX}/calls/"
_OTHER_ORIGIN: Final = "a page of another origin may change nothing"
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
_REFUSED: Final = {
    400: "The body is not the JSON of this request, or the request contradicts itself.",
    404: "Something that the request names does not exist.",
    409: "Not possible in this state: for instance, no resource manager is registered, or no history is kept.",
    413: "The body is too long.",
    503: "Too many such requests at once, or the history does not answer.",
}
_CHANGE_REFUSED: Final = {
    **_REFUSED,
    403: "Changes are not allowed from another origin, nor from another host while the core has no security file.",
    415: "The body of a change must be application/json or application/x-yaml.",
}


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A call that HTTP offers. ``changes``: it changes something. ``long``: its answers may have megabytes. ``asks``:
    so may these, but nobody waits for them before they are known. ``at``: the row of a document of Kornel's own, which
    is the answer of the call; its parameters are the fields of the request. ``given``: fields that each request has."""

    service: str
    method: str
    summary: str = ""
    access: Access = Access.READ
    changes: bool = False
    long: bool = False
    asks: bool = False
    at: Row | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The service and the method, as in the path."""
        return f"{self.service}/{self.method}"

    @property
    def most_body(self) -> int:
        """The most bytes of a request: as over gRPC, with more for the JSON around a configuration."""
        limit = request_limit(f"/kornel.v1.{self.name}")
        return MOST_BODY if limit == CONFIGURATION_LIMIT else limit

    @property
    def described(self) -> MethodDescriptor:
        """The description of the call in its ``.proto`` file."""
        return descriptor_pool.Default().FindMethodByName(f"kornel.v1.{self.service}.{self.method}")

    @property
    def row(self) -> Row:
        """The row that serves the call."""
        if self.at is not None:
            return replace(self.at, answer=document_like(self.described.output_type), ours=True)
        return Row(
            _CALLS + self.name,
            self.method[0].lower() + self.method[1:],
            "Calls",
            OBJECT,
            errors=_CHANGE_REFUSED if self.changes else _REFUSED,
            body=JSON_TYPE,
            wanted=OBJECT,
            method="POST",
            access=self.access,
            ours=True,
            summary=f"{self.summary} It is the call of kornel.v1 with this name, in JSON.",
        )


CALLS: Final = (
    RemoteCall("ConfigurationService", "ValidateConfiguration", "Whether a configuration is valid, and its problems."),
    RemoteCall("ConfigurationService", "PreviewConfiguration", "What a configuration would change.", asks=True),
    RemoteCall("ConfigurationService", "GetConfigurationHistory", "The configurations since the core started."),
    RemoteCall("ConfigurationService", "GetConfiguration", "One configuration with its text.", long=True),
    RemoteCall(
        "ConfigurationService",
        "RollbackConfiguration",
        "Puts an earlier version into force again, or undoes a rollback.",
        Access.CONFIGURE,
        changes=True,
    ),
    RemoteCall(
        "ExplainService",
        "WhatIf",
        "What would be placed where, and preempted for it, after a change.",
        asks=True,
    ),
    RemoteCall("AdminService", "DrainNode", "Takes a node out of scheduling.", Access.ADMIN, changes=True),
    RemoteCall("AdminService", "UndrainNode", "Returns a node to scheduling.", Access.ADMIN, changes=True),
    RemoteCall("AdminService", "Preempt", "Asks those to leave whom a person names.", Access.PREEMPT, changes=True),
    RemoteCall("HistoryService", "ListPastApplications", "States that applications entered.", long=True),
    RemoteCall("HistoryService", "ListPreemptions", "Decisions to preempt, a record for each victim.", long=True),
    RemoteCall("HistoryService", "SumPreemptions", "Who took how much from whom."),
    RemoteCall("HistoryService", "ListUsage", "The usage of a queue over time.", long=True),
    RemoteCall("HistoryService", "ListEvents", "Events of the stored history.", long=True),
    RemoteCall("HistoryService", "ListConfigurations", "Configurations of the stored history.", long=True),
    RemoteCall("HistoryService", "GetHistoryStatus", "The state of the stored history."),
    RemoteCall("StatusService", "ExplainUser", "What a user may use and does use, queue by queue."),
)
"""The calls in the order of the documentation."""


def _document(method: str, row: Row, *, service: str = "ReadService", long: bool = False, **given: str) -> RemoteCall:
    return RemoteCall(service, method, long=long, at=row, given=given)


OURS: Final = (
    _document("FindNames", Row(
        f"{IN_PARTITION}/search", "search", "Explanations", parameters=(
            Parameter("text", "The text that names contain; case does not matter.", NAME, required=True),
            Parameter("limit", "The most names of each kind; 20 by default, never more than 1000.", POSITIVE),
        ),
        summary="Applications (ended ones too), queues, nodes, users, asks, allocations by part of a name.",
    ), long=True),
    _document("FindQueue", Row(
        f"{IN_PARTITION}/placement", "placement", "Explanations", parameters=(
            Parameter("user", "Owner of the application.", NAME, required=True),
            Parameter("groups", "Groups of the owner, separated by commas; by default one with the user's name."),
            Parameter("queue", "The queue that the application names."),
        ),
        summary="The queue that an application would get, were it submitted now; tag.NAME gives a tag.",
    )),
    _document("Explain", Row(
        f"{IN_PARTITION}/explain", "explain", "Explanations", parameters=(
            Parameter("key", "Key of an ask or allocation, or an application ID.", NAME),
            Parameter("node", "A node: why the ask is not there; without key: why the node is used as it is.", NAME),
        ),
        summary="Why an ask waits, what an application waits for, or who took an allocation's room; with a node, why"
        " the ask is not there, or why the node is used as it is.",
    ), service="ExplainService"),
    _document("ListWaits", Row(
        f"{IN_PARTITION}/waits", "waits", "Explanations", parameters=(
            Parameter("by", "What to sum up.", {"type": "string", "enum": ["", "application", "queue", "user"]}),
            Parameter("queue", "Only applications of this queue and below."),
            Parameter("user", "Only applications of this user."),
            Parameter("limit", "The most entries; 20 by default, never more than 100.", POSITIVE),
        ),
        summary="Applications, or queues or users, with asks that wait, the longest first, each with the ask that has"
        " waited longest and what keeps that back first of all.",
    )),
    _document("ListNodes", Row(
        f"{IN_PARTITION}/stranded", "stranded", "Explanations", parameters=(
            Parameter("pageSize", "The most nodes; 500 by default, never more than 5000.", POSITIVE),
            Parameter("pageToken", "Where a page begins: nextPageToken of the page before."),
        ),
        summary="Nodes, each with what is free of types that somebody waits for, although no ask that wants them fits"
        " there.",
    ), long=True, stranded="1"),
    _document("ListDecisions", Row(
        f"{IN_PARTITION}/preemptions", "preemptions", "Explanations", parameters=(
            Parameter("start", "Number of the first decision; without it, the answer has the newest.", UNSIGNED),
            Parameter("limit", "The most entries to look at; never more than 1000.", POSITIVE),
        ),
        summary="Decisions to preempt, the oldest first.",
    ), service="EventService", long=True),
    _document("ListPreemptionKinds", Row(
        f"{PREFIX}/preemption-kinds", "preemptionKinds", "Explanations",
        summary="The kinds of preemption in the order in which they run, then the governor.",
    )),
    _document("GetHolds", Row(
        f"{PREFIX}/scheduler/holds", "holds", "Operations",
        summary="A rollback in force, nodes drained by operators, and whether the resource manager is connected.",
    ), long=True),
    _document("ListRefusals", Row(
        f"{PREFIX}/scheduler/refusals", "refusals", "Operations", parameters=(
            Parameter("kind", "Only this kind.", {"type": "string", "enum": list(RefusalKind)}),
            Parameter("partition", "Only of this partition; configurations belong to each."),
            Parameter("limit", "The most refusals in the answer.", POSITIVE),
        ),
        summary="Recent refusals, with their resource manager, time and reason; the newest first.",
    ), long=True),
)  # fmt: skip
"""The documents of Kornel's own, each with the call whose answer it is."""

_BY_PATH: Final = {call.row.path: call for call in (*CALLS, *OURS)}


class _HttpContext:
    """The context for a handler of gRPC that is called over HTTP."""

    def __init__(self, host: str) -> None:
        self._host = host

    def peer(self) -> str:
        """Returns the name that gRPC has for the peer."""
        kind = "ipv6" if ":" in self._host else "ipv4"
        return f"{kind}:{f'[{self._host}]' if kind == 'ipv6' else self._host}:0"

    def invocation_metadata(self) -> tuple[()]:
        """Returns no metadata, because HTTP requests have no session."""
        return ()

    async def abort(self, code: grpc.StatusCode, details: str = "", _trailing: object = ()) -> NoReturn:
        """End the call."""
        raise refusal_of(code, details)


def _serve_calls(handler: HandlerT) -> HandlerT:
    for call in reversed(_BY_PATH.values()):
        handler = call.row(handler)
    return handler


class CallHandlers:
    """Serves calls in JSON. *handlers*: those of gRPC, by service and method. *local*: HTTP is served only to this
    machine."""

    def __init__(
        self,
        handlers: Callable[[], Mapping[str, Handler]],
        managers: Managers,
        long_answers: LongAnswers,
        *,
        local: bool,
    ) -> None:
        self._handlers = handlers
        self._managers = managers
        self._long_answers = long_answers
        self._local = local
        self._one_is_parsed = asyncio.Lock()
        self._types = {
            call.name: tuple(map(GetMessageClass, (call.described.input_type, call.described.output_type)))
            for call in _BY_PATH.values()
        }

    @_serve_calls
    async def answer_call(self, request: Request) -> ASGIApp:
        """Answers a call with the message that the handler of gRPC gives."""
        call = _BY_PATH[request.scope["route"].path]
        if call.changes:
            self._check_change(request)
        raw = self._read_parameters(request, call) if call.at else await self._read_request(request, call)
        # The place is taken only now, so that slow requests do not keep others from long answers.
        async with self._long_answers.count_making() if call.long else nullcontext():
            message: Message = self._types[call.name][1].FromString(await self._answer(request, call, raw))
            if not call.asks:
                return json_answer(await long_document(message) if call.long else message_document(message))
        # A question has waited in a line of its own.
        async with self._long_answers.count_making():
            return json_answer(await long_document(message))

    @Row(f"{PREFIX}/caller", "caller", "Calls", CALLER_REPORT, ours=True)
    async def show_caller(self, request: Request) -> ASGIApp:
        """Returns the caller's name as the core records it, and the caller's permissions."""
        admitted = request.scope.get(ADMITTED)
        with _Calling(request):
            name = principal()
        granted = sorted(map(str, admitted.permissions if admitted is not None else Permission))
        report = CallerReport(name, granted, admitted is not None, self._find_refusal(request))
        return json_answer(CALLER_REPORT.write(report))

    @Row(
        f"{PREFIX}/configuration", "configure", "Calls", OBJECT, errors=_CHANGE_REFUSED, body=YAML_TYPE, method="POST",
        access=Access.CONFIGURE, ours=True,
    )  # fmt: skip
    async def apply_text(self, request: Request) -> ASGIApp:
        """Puts a queue configuration of at most 4 MiB into force. Other settings stay."""
        self._check_change(request)
        with self._managers.leader.configurator.judge.changes.take_room() as add_bytes:
            body = await limited_body(request, MOST_BODY, add_bytes)
            outcome = await self._apply(request, body)
        answer = configuration_pb2.UpdateConfigurationResponse(
            changed=outcome.changed, checksum=outcome.checksum, version=outcome.version
        )
        return json_answer({**message_document(answer), "warnings": [str(warning) for warning in outcome.warnings]})

    async def _apply(self, request: Request, body: bytes) -> Outcome:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise RestError(400, f"the text is not UTF-8: {error}") from error
        if not text.strip():
            # For gRPC an empty text means the core's file or default. Here it is more likely a mistake.
            raise RestError(400, "the text is empty")
        with _Calling(request):
            rm_id = query_of(request).get("manager", "")
            return await self._managers.choose(rm_id).configurator.update_text(text)

    def _read_parameters(self, request: Request, call: RemoteCall) -> bytes:
        """Returns the message that the path and the query describe, encoded."""
        reader, given = self._managers.reader, query_of(request)
        if "partition" in request.path_params:
            given["partition"] = partition_of(reader, request).name
        elif (found := reader.get_first(given.get("partition", ""))) is not None:
            given["partition"] = found.name
        return read_parameters(self._types[call.name][0](), {**given, **call.given}).SerializeToString()

    async def _read_request(self, request: Request, call: RemoteCall) -> bytes:
        """Returns the message that the body describes, encoded."""
        bodies = self._managers.leader.configurator.judge.bodies
        with bodies.take_room() if call.most_body > QUESTION_LIMIT else nullcontext() as add_bytes:
            body = await limited_body(request, call.most_body, add_bytes or (lambda _: None))
            check_structure(body)
            if len(body) < PARSED_ALONE:
                return read_message(self._types[call.name][0], body).SerializeToString()
            async with self._one_is_parsed:
                await asyncio.sleep(0)  # Many requests sent at once are parsed one by one, with turns for others.
                return read_message(self._types[call.name][0], body).SerializeToString()

    async def _answer(self, request: Request, call: RemoteCall, raw: bytes) -> bytes:
        admitted = request.scope.get(ADMITTED)
        handler = self._handlers()[call.name]
        assert handler.unary_unary is not None
        with _Calling(request):
            if admitted is not None:
                METHODS[f"/kornel.v1.{call.name}"].check_caller(admitted, raw)
            answer: bytes = await handler.unary_unary(raw, _HttpContext(_host_of(request)))  # type: ignore[arg-type]  # all of it that handlers use
            return answer

    def _check_change(self, request: Request) -> None:
        """Raises 403 or 415 for a change that a page of another origin may have sent, or that comes from another
        machine without permission."""
        types = [value.partition(";")[0].strip().lower() for value in request.headers.getlist("content-type")]
        if len(types) != 1 or types[0] not in (JSON_TYPE, YAML_TYPE):
            raise RestError(415, "a request that changes something has to be application/json or application/x-yaml")
        refusal = self._find_refusal(request)
        if refusal:
            raise RestError(403, refusal)

    def _find_refusal(self, request: Request) -> str:
        """Returns why *request* may not change anything; empty: it may."""
        headers = request.headers
        if any(site not in ("same-origin", "none") for site in headers.getlist("sec-fetch-site")):
            return _OTHER_ORIGIN
        if not all(_is_own_origin(origin, request) for origin in headers.getlist("origin")):
            return _OTHER_ORIGIN
        if ADMITTED in request.scope:
            return ""
        if not self._local or any(name in headers for name in _FORWARDED):
            return "this core does not identify its callers, so only this machine may change something; see security"
        return ""


def _is_own_origin(origin: str, request: Request) -> bool:
    """Tells whether a page of *origin* is one of the core that *request* is addressed to.

    If the request came over HTTPS, the origin has to be HTTPS too. If it came over HTTP, a proxy may have removed TLS.
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    schemes = ("https",) if request.url.scheme == "https" else ("http", "https")
    return (
        parts.scheme in schemes
        and bool(parts.netloc)
        and parts.netloc.lower() == request.headers.get("host", "").lower()
    )


class _Calling:
    """A context in which the sender of *request* is the caller."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __enter__(self) -> None:
        admitted = self._request.scope.get(ADMITTED)
        self._caller = CALLER.set(admitted) if admitted is not None else None
        self._peer = PEER.set(_host_of(self._request))

    def __exit__(self, *_: object) -> None:
        PEER.reset(self._peer)
        if self._caller is not None:
            CALLER.reset(self._caller)


def _host_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
