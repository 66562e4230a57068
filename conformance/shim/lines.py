"""The server of the scripted core. Its streams can be broken, and its messages wait until there is a stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from kornel.conformance.shim.listener import OPEN_DOOR, Listener
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import callback_pb2_grpc

CUT_OFF_S: Final = 0.25

RESUME_KEY: Final = "kornel-resume"

Request: TypeAlias = si.NodeRequest | si.ApplicationRequest | si.AllocationRequest
Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Kind(StrEnum):
    """The kinds of streams."""

    NODE = "UpdateNode"
    APPLICATION = "UpdateApplication"
    ALLOCATION = "UpdateAllocation"


class Core(Protocol):
    """The interface of the core behind the server. ``news`` is set when something has arrived."""

    @property
    def news(self) -> asyncio.Event: ...

    def register_manager(self, request: si.RegisterResourceManagerRequest) -> si.RegisterResourceManagerResponse:
        """Answer a registration."""

    def admits(self, kind: Kind, request: Request) -> bool:
        """Tells whether this RM may send *request*."""

    def judge_claim(self, kind: Kind, received: str, sent: int) -> None:
        """Judge how many entries this RM says it has received on streams of that kind, on which *sent* were sent."""

    def handle_request(self, request: Request) -> None:
        """Handle a request."""


class Line:
    """One open stream, bound by its first request."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Final = kind
        self.words: Final[deque[Message]] = deque()
        self.news: Final = asyncio.Event()
        self.end: tuple[grpc.StatusCode, str] | None = None
        self.half_closed = False
        self.received: int | None = None
        """The entries that the shim says it has received; ``None``: it does not say."""
        self.greeting = ""
        """The metadata to send first; empty: none, or they were sent."""
        self.position = 0
        """The number of entries since the registration after which this stream is."""


class Lines(si_pb2_grpc.SchedulerServicer):
    """All streams. A message of a kind without an open stream waits for the next stream."""

    def __init__(self, core: Core) -> None:
        self.bound: Final[dict[Kind, Line]] = {}
        self.half_closed: Final[set[Kind]] = set()
        self.deaf = False
        """Tells whether requests are lost, as if the core were killed before it recorded them."""
        self.unheard: Final[set[str]] = set()
        """The keys of the allocations whose ends were lost while ``deaf`` was set."""
        self.resumes = False
        """Tells whether the shim says what it has received, and sends again what the core has not applied."""
        self._core = core
        self._backlog: Final[dict[Kind, deque[Message]]] = {kind: deque() for kind in Kind}
        self._registrations = 0
        self._sent: Final[dict[Kind, list[Message]]] = {kind: [] for kind in Kind}
        """Everything since the registration."""
        self._applied: Final[dict[Kind, int]] = dict.fromkeys(Kind, 0)
        """The entries that the shim has sent since the registration, and that were not lost."""
        self._written: Final[dict[Kind, int]] = dict.fromkeys(Kind, 0)
        """The entries since the registration that were written to any stream."""

    def send_message(self, kind: Kind, message: Message) -> None:
        """Send *message* on the stream of that kind, now or when there is one."""
        self._sent[kind].append(message)
        line = self.bound.get(kind)
        if line is None:
            self._backlog[kind].append(message)
        else:
            line.words.append(message)
            line.news.set()

    def drop_messages(self) -> None:
        """Drop every message that was not sent yet: the RM has registered."""
        self._registrations += 1
        for kind in Kind:
            self._sent[kind].clear()
            self._applied[kind] = self._written[kind] = 0
            if kind in self.bound:
                self.bound[kind].position = 0
        for backlog in self._backlog.values():
            backlog.clear()

    def end_stream(self, kind: Kind, code: grpc.StatusCode, text: str) -> None:
        """End the open stream of that kind, if there is one."""
        line = self.bound.pop(kind, None)
        if line is not None:
            line.end = code, text
            line.news.set()

    async def RegisterResourceManager(
        self, request: si.RegisterResourceManagerRequest, context: Context
    ) -> si.RegisterResourceManagerResponse:
        """Serve a registration."""
        answer = self._core.register_manager(request)
        await context.send_initial_metadata(((RESUME_KEY, self._name_epoch()),))
        return answer

    async def UpdateNode(
        self, request_iterator: AsyncIterator[si.NodeRequest], context: Context
    ) -> AsyncIterator[si.NodeResponse]:
        """Serve a node stream."""
        async for message in self._serve_stream(Kind.NODE, request_iterator, context):
            yield message

    async def UpdateApplication(
        self, request_iterator: AsyncIterator[si.ApplicationRequest], context: Context
    ) -> AsyncIterator[si.ApplicationResponse]:
        """Serve an application stream."""
        async for message in self._serve_stream(Kind.APPLICATION, request_iterator, context):
            yield message

    async def UpdateAllocation(
        self, request_iterator: AsyncIterator[si.AllocationRequest], context: Context
    ) -> AsyncIterator[si.AllocationResponse]:
        """Serve an allocation stream."""
        async for message in self._serve_stream(Kind.ALLOCATION, request_iterator, context):
            yield message

    async def _serve_stream(self, kind: Kind, requests: AsyncIterator[Request], context: Context) -> AsyncIterator[Any]:
        line = Line(kind)
        said = dict(context.invocation_metadata() or ()).get(RESUME_KEY)
        if said is not None:
            count = str(said).rpartition("/")[2]
            self._core.judge_claim(kind, count, self._written[kind])
            line.received = line.position = min(int(count), self._written[kind]) if count.isdecimal() else 0
            self.resumes = True
        reader = asyncio.create_task(self._read_requests(line, requests), name=f"scripted core reads {kind}")
        try:
            while True:
                if line.greeting:
                    await context.send_initial_metadata(((RESUME_KEY, line.greeting),))
                    line.greeting = ""
                while line.words:
                    line.position += count_entries(line.words[0])
                    self._written[kind] = max(self._written[kind], line.position)
                    yield line.words[0]
                    line.words.popleft()
                if line.end is not None:
                    await context.abort(*line.end)
                if line.half_closed:
                    return
                await line.news.wait()
                line.news.clear()
        finally:
            reader.cancel()
            await asyncio.wait([reader])
            if self.bound.get(kind) is line:
                del self.bound[kind]
            self._backlog[kind].extendleft(reversed(line.words))
            if not reader.cancelled() and (bug := reader.exception()) is not None:
                raise bug

    async def _read_requests(self, line: Line, requests: AsyncIterator[Request]) -> None:
        async for request in requests:
            if line.end is not None:
                return
            if not self._core.admits(line.kind, request):
                line.end = grpc.StatusCode.FAILED_PRECONDITION, f"{request.rmID!r} is not registered"
                line.news.set()
                return
            if self.bound.get(line.kind) is not line:
                self.bound[line.kind] = line
                line.words.extend(self._find_unsent(line))
                self._backlog[line.kind].clear()
                line.news.set()
            if self.deaf:
                if isinstance(request, si.AllocationRequest):
                    self.unheard.update(end.allocationKey for end in request.releases.allocationsToRelease)
                self._core.news.set()
                continue
            self._applied[line.kind] += count_entries(request)
            self._core.handle_request(request)
        # If the connection was cut, the requests end too, but then the call is cancelled and with it this task.
        await asyncio.sleep(CUT_OFF_S)
        line.half_closed = True
        self.half_closed.add(line.kind)
        line.news.set()

    def _find_unsent(self, line: Line) -> list[Message]:
        """Returns the messages to be sent on *line* once it is bound: those that wait or, if the shim says what it has
        received, everything that it has not received."""
        if line.received is None:
            return list(self._backlog[line.kind])
        line.greeting = f"{self._name_epoch()}/{self._applied[line.kind]}"
        missing, left = list(self._sent[line.kind]), line.received
        while missing and left >= count_entries(missing[0]) > 0:
            left -= count_entries(missing.pop(0))
        return missing

    def _name_epoch(self) -> str:
        return f"kit-{self._registrations}"


def count_entries(message: Message) -> int:
    """Returns the number of elements in all lists of *message*."""
    count = 0
    for _, value in message.ListFields():
        if isinstance(value, Message):
            count += count_entries(value)
        elif not isinstance(value, str | bytes | int | float):
            count += len(value)
    return count


async def serve(
    lines: Lines, questions: callback_pb2_grpc.CallbackServiceServicer, address: str, door: Listener = OPEN_DOOR
) -> tuple[grpc.aio.Server, str]:
    """Starts a server for *lines* and *questions* behind *door*. Returns the server and its address."""
    server = grpc.aio.server(
        interceptors=door.make_interceptors(),
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    si_pb2_grpc.add_SchedulerServicer_to_server(lines, server)
    callback_pb2_grpc.add_CallbackServiceServicer_to_server(questions, server)
    port = door.open_port(server, address)
    await server.start()
    return server, f"{address.rpartition(':')[0]}:{port}"
