"""The client of ``si.v1`` for shims: it registers, reports, sends asks, and reads the core's decisions.

As the contract says, sent entries are not confirmed: a method that sends returns once its entries are queued, and waits
only while the queue is full. The answers are read through :meth:`ShimClient.updates` by one consumer. While the
consumer does not read, HTTP/2 flow control stops the core from writing, so that no list of this client grows without
bound.
"""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kornel.shim_client.asks import AllocationEntry, Ask, Generation, encode_ask, encode_withdrawal, make_release
from kornel.shim_client.call_status import ending_with_status
from kornel.shim_client.callbacks import CallbackAttachment, CallbackHandler
from kornel.shim_client.credentials import Credentials, CredentialsUnusable
from kornel.shim_client.errors import (
    CallFailed,
    ConnectionLost,
    CoreUnreachable,
    NotSupported,
    RegistrationHeld,
    RegistrationRefused,
    ShimClientError,
    Superseded,
)
from kornel.shim_client.leader import LeaderChannel, split_addresses
from kornel.shim_client.outbox import Outbox, OutboxClosed
from kornel.shim_client.progress import RESUME_KEY, Progress
from kornel.shim_client.retry_info import read_retry_delay
from kornel.shim_client.stream import DuplexStream
from kornel.shim_client.updates import (
    ApplicationAccepted,
    ApplicationRejected,
    NodeAccepted,
    NodeRejected,
    StreamKind,
    StreamReopened,
    Update,
    UpdateHandler,
    allocation_updates,
    application_updates,
    node_updates,
)
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import (
    callback_pb2_grpc,
    configuration_pb2,
    configuration_pb2_grpc,
    explain_pb2,
    explain_pb2_grpc,
    manager_pb2,
    manager_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
)

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
CALL_TIMEOUT_S: Final = 30.0
CLOSE_GRACE_S: Final = 5.0
ACKNOWLEDGE_PAUSE_S: Final = 0.1
ACKNOWLEDGE_AGAIN_S: Final = 1.0
"""The pauses after an acknowledgement that succeeded, and after one that failed."""

SESSION_KEY: Final = "kornel-session"
LEASE_KEY: Final = "kornel-lease"

RETRY_KEY: Final = "kornel-retry-after-ms"

ApplicationEntry: TypeAlias = si.AddApplicationRequest | si.RemoveApplicationRequest
NodeAnswer: TypeAlias = NodeAccepted | NodeRejected
ApplicationAnswer: TypeAlias = ApplicationAccepted | ApplicationRejected
Answer = TypeVar("Answer")
Entry = TypeVar("Entry", bound=Message)

# The order in which the core handles the lists of one AllocationRequest.
_RANKS: Final[Mapping[type, int]] = {
    si.Allocation: 0,
    si.AllocationAsk: 1,
    si.AllocationAskRelease: 2,
    si.AllocationRelease: 3,
}


class ShimClient:
    """A connection of one RM cluster to one core, or to the leader of several cores.

    Use it as an async context manager, or call :meth:`close`. After a break it tries to reconnect for *reconnect_s*;
    the shim gets a :class:`StreamReopened` for each stream that is open again. Errors that reconnecting cannot cure,
    such as :class:`ResyncRequired`, are raised by :meth:`updates` and by the methods that wait for answers. A unary
    call that the break interrupts is not repeated, because the core may have carried it out: it fails with UNAVAILABLE.
    """

    def __init__(
        self,
        address: str,
        rm_id: str,
        *,
        generation: Generation = Generation.G3,
        credentials: grpc.ChannelCredentials | Credentials | None = None,
        connect_s: float = 10.0,
        reconnect_s: float = 60.0,
        batch: int = 1000,
        outbox: int = 20_000,
        inbox: int = 1000,
    ) -> None:
        """Prepares a client without connecting. *address* is the address of the core, or the addresses of several cores
        that share a journal, separated by commas; the client then talks to the leader.

        Without *credentials*, those of :meth:`Credentials.from_environment` are used. *batch* is the most entries per
        request, *outbox* the most entries that may wait per stream, and *inbox* the most messages that may be unread.
        """
        self.address = address
        self.rm_id = rm_id
        self.generation = generation
        self._credentials = credentials
        self.session = uuid.uuid4().hex
        """The name of this program's session, by which the core distinguishes it from another program with the same
        RM."""
        self._metadata = ((SESSION_KEY, self.session),)
        self._connect_s = connect_s
        self._reconnect_s = reconnect_s
        self._batch = batch
        self._outbox_capacity = outbox
        self._inbox_capacity = inbox
        self._channel: LeaderChannel | None = None
        self._streams: asyncio.Task[None] | None = None
        self._duplexes: tuple[DuplexStream[Any, Any, Any], ...] = ()
        self._attachments: list[CallbackAttachment] = []
        self._reset_queues()

    def _reset_queues(self) -> None:
        """Make new queues, because nothing that was written or read under an earlier registration belongs to the next
        one."""
        self._inbox: asyncio.Queue[tuple[Update, ...] | None] = asyncio.Queue(self._inbox_capacity)
        self._readers = 0
        self._failure: ShimClientError | None = None
        self._allocations: Outbox[AllocationEntry] = self._make_outbox(lambda entry: _RANKS[type(entry)])
        self._applications: Outbox[ApplicationEntry] = self._make_outbox(
            lambda entry: isinstance(entry, si.RemoveApplicationRequest)
        )
        self._nodes: Outbox[si.NodeInfo] = self._make_outbox(lambda _: 0)
        self._acknowledging = asyncio.Event()
        due = self._acknowledging.set
        self._progress: dict[StreamKind, Progress[Any]] = {
            StreamKind.NODE: Progress(StreamKind.NODE, self._nodes, due),
            StreamKind.APPLICATION: Progress(StreamKind.APPLICATION, self._applications, due),
            StreamKind.ALLOCATION: Progress(StreamKind.ALLOCATION, self._allocations, due),
        }
        self._node_answers: dict[str, asyncio.Future[NodeAnswer]] = {}
        self._application_answers: dict[str, asyncio.Future[ApplicationAnswer]] = {}

    def _make_outbox(self, rank: Callable[[Entry], int]) -> Outbox[Entry]:
        return Outbox(capacity=self._outbox_capacity, batch=self._batch, rank=rank)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect the channel. Raises CoreUnreachable if no core answers in time, or CredentialsUnusable."""
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            # Without this, a core that comes back is found only after gRPC's own pauses, which grow to two minutes.
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        given = self._credentials or Credentials.from_environment()
        addresses = split_addresses(self.address) or (self.address,)
        if len(addresses) > 1:
            options[-1] = ("grpc.max_reconnect_backoff_ms", 200)  # Another core takes over within seconds.

        def make_channel(address: str) -> grpc.aio.Channel:
            if isinstance(given, grpc.ChannelCredentials):
                return grpc.aio.secure_channel(address, given, options=options)
            return given.channel(address, options)

        self._channel = LeaderChannel(addresses, make_channel)
        try:
            await self._channel.find_leader(self._connect_s)
        except CredentialsUnusable:
            self._channel = None
            raise
        except ConnectionLost:
            await self._channel.close()
            self._channel = None
            raise CoreUnreachable(self.address, self._connect_s) from None

    async def register(
        self,
        *,
        config: str = "",
        policy_group: str = "queues",
        version: str = "",
        build_info: Mapping[str, str] | None = None,
        extra_config: Mapping[str, str] | None = None,
        wait_for_s: float | None = None,
    ) -> None:
        """Register the RM and open its streams. *config* is the text of a queues.yaml, or empty for the core's default.

        The core forgets everything that an earlier registration of the same RM reported, and ends the streams of the
        program that made it. With *wait_for_s*, the core instead keeps that program's registration until the program
        has had no stream for that long; until then the core refuses with RegistrationHeld, which says when to try
        again. Raises RegistrationRefused.
        """
        request = si.RegisterResourceManagerRequest(
            rmID=self.rm_id,
            version=version,
            policyGroup=policy_group,
            config=config,
            buildInfo=build_info or {},
            extraConfig=extra_config or {},
        )
        lease = () if wait_for_s is None else ((LEASE_KEY, f"wait={math.ceil(wait_for_s * 1_000)}ms"),)
        try:
            epoch = await self._call_registration(request, (*self._metadata, *lease))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise CoreUnreachable(self.address, self._connect_s) from error
            retry_ms = dict(error.trailing_metadata() or ()).get(RETRY_KEY)
            if retry_ms is not None:
                raise RegistrationHeld(
                    "RegisterResourceManager", error.code(), error.details() or "", int(retry_ms) / 1000
                ) from error
            raise RegistrationRefused("RegisterResourceManager", error.code(), error.details() or "") from error
        if self._streams is None or self._streams.done():
            self._reset_queues()
            self._begin_progress(epoch)
            self._duplexes = self._make_streams()
            self._streams = asyncio.create_task(self._run_streams(), name=f"streams of {self.rm_id}")
        elif epoch:
            # Messages still on their way on the open streams belong to the earlier registration.
            self._begin_progress(epoch)
            for stream in self._duplexes:
                stream.begin_again()
        for attachment in self._attachments:
            attachment.note_registered()

    def _begin_progress(self, epoch: str) -> None:
        for progress in self._progress.values():
            progress.begin_counting(epoch)

    async def _call_registration(
        self, request: si.RegisterResourceManagerRequest, metadata: tuple[tuple[str, str], ...]
    ) -> str:
        """Registers at the leader, also if another core has become leader meanwhile. Returns the epoch that the core
        names, or an empty text if it names none."""
        channel = self._open_channel()
        stub = si_pb2_grpc.SchedulerStub(channel)

        async def register(**options: Any) -> str:
            call = stub.RegisterResourceManager(request, metadata=metadata, **options)
            await call
            return str(dict(await call.initial_metadata() or ()).get(RESUME_KEY, ""))

        try:
            return await _call_patiently(register)
        except grpc.aio.AioRpcError as error:
            if not channel.note_leader(error.trailing_metadata()):
                raise
            try:
                await channel.find_leader(self._connect_s)
            except ConnectionLost:
                raise error from None
            return await _call_patiently(register)

    async def attach_callbacks(self, handler: CallbackHandler, *, timeout_s: float | None = None) -> CallbackAttachment:
        """Subscribe *handler* to the questions and messages whose methods it overrides, until the client or the
        attachment is closed.

        Call it after :meth:`register`. *timeout_s* is how long the core waits for an answer; with ``None`` the core's
        default applies. Raises ResyncRequired without a registration, and NotSupported for a core without callbacks.
        """
        channel = self._open_channel()
        stub = callback_pb2_grpc.CallbackServiceStub(channel)

        async def connected() -> None:
            await channel.find_leader(self._reconnect_s)

        attachment = CallbackAttachment(
            handler,
            rm_id=self.rm_id,
            timeout_s=timeout_s,
            start=partial(stub.Attach, metadata=self._metadata),
            connected=connected,
            ended=channel.note_leader,
        )
        try:
            await attachment.wait_until_attached()
        except BaseException:
            await attachment.close()
            raise
        self._attachments.append(attachment)
        return attachment

    async def unregister(self) -> None:
        """Remove the RM and everything it reported from the core (``kornel.v1``), so that another one may register.

        It writes the queued entries and ends the streams, so :meth:`updates` ends without an error; :meth:`register`
        starts anew. Raises CallFailed when the core does not know the RM.
        """
        await self._end_streams()
        stub = manager_pb2_grpc.ManagerServiceStub(self._open_channel())
        request = manager_pb2.UnregisterResourceManagerRequest(rm_id=self.rm_id)
        try:
            await _call_patiently(partial(stub.UnregisterResourceManager, request, metadata=self._metadata))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("UnregisterResourceManager", error) from error

    async def close(self) -> None:
        """Write the queued entries, half-close the streams, and end all tasks. It may be called twice."""
        await asyncio.gather(*(attachment.close() for attachment in self._attachments))
        self._attachments.clear()
        await self._end_streams()
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _end_streams(self) -> None:
        if self._streams is not None:
            for outbox in self._outboxes():
                await outbox.close()
            # If nothing read the inbox, a full inbox would keep the streams from ending.
            drain = asyncio.create_task(self._discard_updates())
            await asyncio.wait([self._streams], timeout=CLOSE_GRACE_S)
            self._streams.cancel()
            await asyncio.wait([self._streams])
            drain.cancel()
            await asyncio.wait([drain])
            self._streams = None

    async def updates(self) -> AsyncIterator[Update]:
        """Yields the core's messages as typed values, in the order of each stream, until the client is closed. Only one
        consumer may read them at a time.

        Raises the error that ended the streams: ResyncRequired, Superseded, StreamRefused or ConnectionLost. When
        another program takes over, unread decisions are no longer yielded, because that program has to carry them out.
        """
        async for batch in self.update_batches():
            for update in batch:
                if isinstance(self._failure, Superseded):
                    raise self._failure
                yield update

    async def update_batches(self) -> AsyncIterator[tuple[Update, ...]]:
        """Yields the same updates as :meth:`updates`, as one tuple per message of the core, which is cheaper where
        thousands arrive."""
        self._readers += 1
        try:
            while (batch := await self._inbox.get()) is not None:
                yield batch
        finally:
            self._readers -= 1
        # The next reader has to find the end as well.
        self._inbox.put_nowait(None)
        if self._failure is not None:
            raise self._failure
        if self._streams is not None:
            await asyncio.wait([self._streams])
            if not self._streams.cancelled():
                self._streams.result()

    async def dispatch(self, handler: UpdateHandler) -> None:
        """Call *handler* for every update until the client is closed. Raises as :meth:`updates` does."""
        async for batch in self.update_batches():
            for update in batch:
                handler.handle(update)

    async def send_nodes(self, nodes: Iterable[si.NodeInfo]) -> None:
        """Report nodes and node actions in the given order."""
        await self._queue_entries(self._nodes, nodes)

    async def create_nodes(self, nodes: Sequence[si.NodeInfo]) -> list[NodeAnswer]:
        """Report new nodes and wait for the core's answer to each. Allocations may be reported on them afterwards."""
        answers = [_expect_answer(self._node_answers, node.nodeID) for node in nodes]
        await self.send_nodes(nodes)
        return [await answer for answer in answers]

    async def send_applications(self, entries: Iterable[ApplicationEntry]) -> None:
        """Add and remove applications in the given order."""
        await self._queue_entries(self._applications, entries)

    async def add_applications(self, applications: Sequence[si.AddApplicationRequest]) -> list[ApplicationAnswer]:
        """Add applications and wait for the core's answer to each. Only afterwards may asks for them be sent."""
        answers = [_expect_answer(self._application_answers, entry.applicationID) for entry in applications]
        await self.send_applications(applications)
        return [await answer for answer in answers]

    async def submit_asks(self, asks: Iterable[Ask]) -> None:
        """Submit asks for room.

        The only answer is the decision: Allocated, Released, AskReleased or AskRejected.
        """
        await self.send_allocations(encode_ask(ask, self.generation) for ask in asks)

    async def send_allocations(self, entries: Iterable[AllocationEntry]) -> None:
        """Send entries of any kind in the given order. Those of one call share a request if its size and the order of
        its lists allow that."""
        await self._queue_entries(self._allocations, entries)

    async def report_allocations(self, allocations: Iterable[si.Allocation]) -> None:
        """Report tasks that run already, or foreign allocations. The core confirms new ones with Allocated."""
        await self._queue_entries(self._allocations, allocations)

    async def withdraw_asks(self, keys: Iterable[tuple[str, str]], *, partition: str = "") -> None:
        """Withdraw pending asks, given as (application ID, key). The core does not answer."""
        await self.send_allocations(
            encode_withdrawal(self.generation, application_id, key, partition=partition) for application_id, key in keys
        )

    def release_of(
        self, application_id: str, key: str, termination: si.TerminationType.ValueType, *, partition: str = ""
    ) -> si.AllocationRelease:
        """Returns the release of one allocation, with the names that the client's generation uses for it."""
        return make_release(self.generation, application_id, key, termination, partition=partition)

    async def release(self, releases: Iterable[si.AllocationRelease]) -> None:
        """End allocations (STOPPED_BY_RM, which the core answers with Released), or confirm releases that the core
        started (without an answer).
        """
        await self._queue_entries(self._allocations, releases)

    async def flush(self) -> None:
        """Wait until gRPC has taken everything sent so far on all streams."""
        for outbox in self._outboxes():
            await outbox.wait_until_drained()
        if self._failure is not None:
            raise self._failure

    async def update_configuration(
        self, config: str, *, policy_group: str = "queues", extra_config: Mapping[str, str] | None = None
    ) -> configuration_pb2.UpdateConfigurationResponse:
        """Replace the queue configuration in force (``kornel.v1``).

        Raises CallFailed with the core's reason.
        """
        stub = configuration_pb2_grpc.ConfigurationServiceStub(self._open_channel())
        request = configuration_pb2.UpdateConfigurationRequest(
            rm_id=self.rm_id, policy_group=policy_group, config=config, extra_config=extra_config or {}
        )
        try:
            return await _call_patiently(partial(stub.UpdateConfiguration, request, metadata=self._metadata))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("UpdateConfiguration", error) from error

    async def validate_configuration(self, config: str) -> configuration_pb2.ValidateConfigurationResponse:
        """Returns the core's judgement of a queue configuration (``kornel.v1``). Changes nothing."""
        stub = configuration_pb2_grpc.ConfigurationServiceStub(self._open_channel())
        request = configuration_pb2.ValidateConfigurationRequest(config=config)
        try:
            return await _call_patiently(partial(stub.ValidateConfiguration, request))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("ValidateConfiguration", error) from error

    async def status(
        self, partition: str = "", *, omit_queues: bool = False, audit: bool = False
    ) -> status_pb2.GetStatusResponse:
        """Returns the state of the core and of the RM's partitions (``kornel.v1``). With an empty *partition*, all of
        them are returned.

        A client that has not registered gets the partitions of all RMs.

        With *audit*, the core also checks its accounts, and does not schedule meanwhile.
        """
        stub = status_pb2_grpc.StatusServiceStub(self._open_channel())
        named = partition and self._full_partition(partition)
        ours = self.rm_id if self._streams is not None else ""
        request = status_pb2.GetStatusRequest(partition=named, omit_queues=omit_queues, audit=audit, rm_id=ours)
        try:
            return await _call_patiently(partial(stub.GetStatus, request))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("GetStatus", error) from error

    async def state_dump(self) -> dict[str, Any]:
        """Returns the whole state of the core for an analysis, including the state of this shim (``kornel.v1``)."""
        stub = status_pb2_grpc.StatusServiceStub(self._open_channel())
        request = status_pb2.GetStateDumpRequest(rm_id=self.rm_id)
        try:
            answer = await _call_patiently(partial(stub.GetStateDump, request))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("GetStateDump", error) from error
        dump: dict[str, Any] = json.loads(answer.json)
        return dump

    async def explain_ask(self, key: str, partition: str = "") -> status_pb2.ExplainAskResponse:
        """Returns the state of an ask and the reasons why it was not placed (``kornel.v1``).

        Raises CallFailed for an ask that the core does not know.
        """
        stub = status_pb2_grpc.StatusServiceStub(self._open_channel())
        request = status_pb2.ExplainAskRequest(partition=self._full_partition(partition), allocation_key=key)
        try:
            return await _call_patiently(partial(stub.ExplainAsk, request))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("ExplainAsk", error) from error

    async def explain(self, name: str, partition: str = "") -> explain_pb2.ExplainResponse:
        """Returns everything that blocks an ask or application, or the preemptor of an allocation (``kornel.v1``).

        Raises CallFailed for a name that the core does not know.
        """
        stub = explain_pb2_grpc.ExplainServiceStub(self._open_channel())
        request = explain_pb2.ExplainRequest(partition=self._full_partition(partition), name=name)
        try:
            return await _call_patiently(partial(stub.Explain, request))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("Explain", error) from error

    async def what_if(self, request: explain_pb2.WhatIfRequest) -> explain_pb2.WhatIfResponse:
        """Returns the placements and the victims that there would be if the assumptions of *request* were true
        (``kornel.v1``).

        It changes nothing. Raises CallFailed for a question that makes no sense.
        """
        stub = explain_pb2_grpc.ExplainServiceStub(self._open_channel())
        asked = explain_pb2.WhatIfRequest()
        asked.CopyFrom(request)
        asked.partition = self._full_partition(request.partition)
        try:
            return await _call_patiently(partial(stub.WhatIf, asked))
        except grpc.aio.AioRpcError as error:
            raise _call_failed("WhatIf", error) from error

    def _full_partition(self, name: str) -> str:
        """Returns the full name of the partition, which is unique among all RMs of the core."""
        return name if name.startswith("[") else f"[{self.rm_id}]{name or 'default'}"

    def _open_channel(self) -> LeaderChannel:
        if self._channel is None:
            raise RuntimeError("the client is not connected")
        return self._channel

    def _outboxes(self) -> tuple[Outbox[si.NodeInfo], Outbox[ApplicationEntry], Outbox[AllocationEntry]]:
        return self._nodes, self._applications, self._allocations

    async def _queue_entries(self, outbox: Outbox[Entry], entries: Iterable[Entry]) -> None:
        try:
            await outbox.put(entries)
        except OutboxClosed:
            raise self._failure or ConnectionLost("the client is closed") from None

    async def _run_streams(self) -> None:
        """Keep the three streams open. When one of them cannot be reopened, end all of them, and fail every call that
        waits."""
        acknowledging = asyncio.create_task(self._acknowledge_for_ever(), name=f"acknowledgements of {self.rm_id}")
        try:
            async with asyncio.TaskGroup() as group:
                for stream in self._duplexes:
                    group.create_task(stream.run(), name=f"stream of {self.rm_id}")
        except* ShimClientError as failed:
            self._failure = next(error for error in failed.exceptions if isinstance(error, ShimClientError))
        finally:
            acknowledging.cancel()
            for outbox in self._outboxes():
                await outbox.close()
            failure = self._failure or ConnectionLost("the client is closed")
            _give_up(self._node_answers, failure)
            _give_up(self._application_answers, failure)
            while isinstance(failure, Superseded) and not self._inbox.empty():
                self._inbox.get_nowait()
            await self._inbox.put(None)

    async def _acknowledge_for_ever(self) -> None:
        """Whenever it is due, tell the core how many entries were received, and learn how many it has applied."""
        while True:
            await self._acknowledging.wait()
            self._acknowledging.clear()
            exchanged = False
            with suppress(grpc.aio.AioRpcError):  # The streams find out the reason.
                exchanged = await self._exchange_counts()
            await asyncio.sleep(ACKNOWLEDGE_PAUSE_S if exchanged else ACKNOWLEDGE_AGAIN_S)
            if not exchanged:
                self._acknowledging.set()

    async def _exchange_counts(self) -> bool:
        """Exchange counts; return whether they were those of one core."""
        progress = self._progress
        nodes = progress[StreamKind.NODE].received
        applications = progress[StreamKind.APPLICATION].received
        allocations = progress[StreamKind.ALLOCATION].received
        epochs = {each.epoch for each in progress.values()}
        if len(epochs) > 1 or "" in epochs:
            return False  # One stream has switched to another core already; the others follow.
        stub = manager_pb2_grpc.ManagerServiceStub(self._open_channel())
        received = manager_pb2.StreamCounts(nodes=nodes, applications=applications, allocations=allocations)
        request = manager_pb2.AcknowledgeRequest(rm_id=self.rm_id, epoch=min(epochs), received=received)
        with ending_with_status():
            answer = await stub.Acknowledge(request, metadata=self._metadata, timeout=CALL_TIMEOUT_S)
        if self._progress is not progress or {each.epoch for each in progress.values()} != epochs:
            return True
        for kind, was, applied in (
            (StreamKind.NODE, nodes, answer.applied.nodes),
            (StreamKind.APPLICATION, applications, answer.applied.applications),
            (StreamKind.ALLOCATION, allocations, answer.applied.allocations),
        ):
            await progress[kind].note_acknowledged(was, applied)
        return True

    def _make_streams(self) -> tuple[DuplexStream[Any, Any, Any], ...]:
        channel = self._open_channel()
        scheduler = si_pb2_grpc.SchedulerStub(channel)

        async def connected() -> None:
            await channel.find_leader(self._reconnect_s)

        return (
            DuplexStream(
                StreamKind.NODE,
                start=lambda: scheduler.UpdateNode(metadata=self._list_marks(StreamKind.NODE)),
                bind=si.NodeRequest(rmID=self.rm_id),
                encode=lambda batch: si.NodeRequest(rmID=self.rm_id, nodes=batch),
                outbox=self._nodes,
                deliver=self._receive_nodes,
                reopened=partial(self._announce_stream, StreamKind.NODE),
                progress=self._progress[StreamKind.NODE],
                connected=connected,
                ended=channel.note_leader,
            ),
            DuplexStream(
                StreamKind.APPLICATION,
                start=lambda: scheduler.UpdateApplication(metadata=self._list_marks(StreamKind.APPLICATION)),
                bind=si.ApplicationRequest(rmID=self.rm_id),
                encode=self._encode_applications,
                outbox=self._applications,
                deliver=self._receive_applications,
                reopened=partial(self._announce_stream, StreamKind.APPLICATION),
                progress=self._progress[StreamKind.APPLICATION],
                connected=connected,
                ended=channel.note_leader,
            ),
            DuplexStream(
                StreamKind.ALLOCATION,
                start=lambda: scheduler.UpdateAllocation(metadata=self._list_marks(StreamKind.ALLOCATION)),
                bind=si.AllocationRequest(rmID=self.rm_id),
                encode=self._encode_allocations,
                outbox=self._allocations,
                deliver=self._receive_allocations,
                reopened=partial(self._announce_stream, StreamKind.ALLOCATION),
                progress=self._progress[StreamKind.ALLOCATION],
                connected=connected,
                ended=channel.note_leader,
            ),
        )

    def _list_marks(self, kind: StreamKind) -> tuple[tuple[str, str], ...]:
        return (*self._metadata, *self._progress[kind].list_marks())

    async def _announce_stream(self, kind: StreamKind) -> None:
        await self._inbox.put((StreamReopened(kind, exact=bool(self._progress[kind].epoch)),))

    def _encode_applications(self, batch: Sequence[ApplicationEntry]) -> si.ApplicationRequest:
        return si.ApplicationRequest(
            rmID=self.rm_id,
            new=[entry for entry in batch if isinstance(entry, si.AddApplicationRequest)],
            remove=[entry for entry in batch if isinstance(entry, si.RemoveApplicationRequest)],
        )

    def _encode_allocations(self, batch: Sequence[AllocationEntry]) -> si.AllocationRequest:
        return si.AllocationRequest(
            rmID=self.rm_id,
            allocations=[entry for entry in batch if isinstance(entry, si.Allocation)],
            asks=[entry for entry in batch if isinstance(entry, si.AllocationAsk)],
            releases=si.AllocationReleasesRequest(
                allocationAsksToRelease=[e for e in batch if isinstance(e, si.AllocationAskRelease)],
                allocationsToRelease=[e for e in batch if isinstance(e, si.AllocationRelease)],
            ),
        )

    async def _receive_nodes(self, response: si.NodeResponse) -> None:
        updates = tuple(node_updates(response))
        for update in updates:
            if isinstance(update, NodeAccepted | NodeRejected):
                _resolve_answer(self._node_answers, update.node_id, update)
        await self._inbox.put(updates)

    async def _receive_applications(self, response: si.ApplicationResponse) -> None:
        updates = tuple(application_updates(response))
        for update in updates:
            if isinstance(update, ApplicationAccepted | ApplicationRejected):
                _resolve_answer(self._application_answers, update.application_id, update)
        await self._inbox.put(updates)

    async def _receive_allocations(self, response: si.AllocationResponse) -> None:
        await self._inbox.put(tuple(allocation_updates(response)))

    async def _discard_updates(self) -> None:
        while self._readers == 0:
            if await self._inbox.get() is None:
                # A later reader has to find the end as well.
                self._inbox.put_nowait(None)
                return


def _expect_answer(answers: dict[str, asyncio.Future[Answer]], key: str) -> asyncio.Future[Answer]:
    """Returns the future of the answer for *key*. Further calls for the same key get the same future until it is
    answered."""
    return answers.setdefault(key, asyncio.get_running_loop().create_future())


def _resolve_answer(answers: dict[str, asyncio.Future[Answer]], key: str, answer: Answer) -> None:
    if (waiting := answers.pop(key, None)) is not None and not waiting.done():
        waiting.set_result(answer)


def _give_up(answers: dict[str, asyncio.Future[Answer]], failure: ShimClientError) -> None:
    for waiting in answers.values():
        if not waiting.done():
            waiting.set_exception(failure)


async def _call_patiently(call: Callable[..., Awaitable[Answer]]) -> Answer:
    """Returns the answer to *call*. The call is repeated as long as the core refuses it as too busy and says how long
    to wait.

    Raises the error of the last try if there is no time for another one.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + CALL_TIMEOUT_S
    while True:
        try:
            with ending_with_status():
                return await call(timeout=ends - loop.time())
        except grpc.aio.AioRpcError as error:
            delay_s = read_retry_delay(error.code(), error.trailing_metadata())
            if delay_s is None or loop.time() + delay_s >= ends:
                raise
        await asyncio.sleep(delay_s)


def _call_failed(call: str, error: grpc.aio.AioRpcError) -> CallFailed:
    kind = NotSupported if error.code() is grpc.StatusCode.UNIMPLEMENTED else CallFailed
    return kind(call, error.code(), error.details() or "")
