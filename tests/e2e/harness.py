"""A core served on a loopback port inside the test's own event loop, and a shim's side of the conversation.

Time is a :class:`ManualClock`: delays pass when a test says so. Waiting is always for a condition; a test that would
wait for ever is ended by the limit of :func:`tests.waiting.until`, never by a sleep that was too short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.core.engine.engine import Engine
from kornel.core.journal.journal import Journal
from kornel.core.journal.standby import Standby
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.sources import Sources
from kornel.core.service.runner.engine_port import EnginePort
from kornel.shim_client.call_status import StatusKeeper
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.patience import PATIENCE_S
from tests.waiting import until

ROUND_TRIPS: Final = 3
QUIET_MOMENTS: Final = 3
TURNS: Final = 5
MOMENT_S: Final = 0.005
"""After so many round trips, and turns of the event loop behind each with a moment for other threads, nothing more
comes while the clock stands. A turn without a moment costs a tenth of one with it."""

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
"""


@dataclass
class Core:
    """A serving core and a channel to it."""

    server: KornelServer
    clock: ManualClock
    metrics: ServiceMetrics
    channel: grpc.aio.Channel
    address: str

    @property
    def scheduler(self) -> si_pb2_grpc.SchedulerAsyncStub:
        return si_pb2_grpc.SchedulerStub(self.channel)

    async def register(self, rm_id: str = "rm-1", config: str = CONFIG) -> None:
        await self.scheduler.RegisterResourceManager(
            si.RegisterResourceManagerRequest(rmID=rm_id, config=config), timeout=PATIENCE_S
        )

    def raw(self, method: str) -> Any:
        """A bidirectional call that sends and receives bytes."""
        return self.channel.stream_stream(f"/si.v1.Scheduler/{method}")()

    async def settle(self) -> None:
        """Let everything that can happen without time passing happen."""
        check: Any = HealthStub(self.channel).Check  # type: ignore[attr-defined]
        for _ in range(ROUND_TRIPS):
            # However busy the machine is, the answer comes behind everything that is on its way over this connection.
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                await check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
            for _ in range(QUIET_MOMENTS):
                await self.step()

    async def step(self) -> None:
        """A few turns: enough for what falls due at a time, not for what clients are told."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await asyncio.sleep(MOMENT_S)

    async def serves(self) -> None:
        """Fails unless a node can be created and its answer read on a stream of its own."""
        await self.register()
        async with Conversation.open(self.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(create("probe")))
            assert (await nodes.receive()).accepted[0].nodeID == "probe"


@asynccontextmanager
async def running_core(
    engine: EnginePort | None = None,
    sources: Sources | None = None,
    tracing: Any = None,
    clock: ManualClock | None = None,
    journal: Journal | None = None,
    standby: Standby | None = None,
    alone: bool = True,
    garbage: GarbageKeeper | None = None,
    **settings: Any,
) -> AsyncIterator[Core]:
    """A core that serves *engine*, by default the real one, or that of *journal* or *standby*. Checks at the end that
    nothing of it is left over, if it is *alone*: another one that runs longer has tasks of its own."""
    before = asyncio.all_tasks()
    metrics = ServiceMetrics()
    clock = clock or ManualClock()
    if journal is not None:
        engine, clock = journal.first.engine, ManualClock(journal.last_ns)
    if standby is not None:
        engine = standby.engine
    server = KornelServer(
        Engine() if engine is None else engine,
        # On a busy machine, streams take longer to end by themselves than a core in service would wait for them.
        ServerSettings(**{"address": "127.0.0.1:0", "version": "test", "grace_s": PATIENCE_S, **settings}),
        clock=clock,
        metrics=metrics,
        logger=build_logger(LogFormat.CONSOLE, LogLevel.WARNING),
        garbage=garbage or GarbageKeeper(enabled=False),
        sources=sources,
        tracing=tracing,
        make_engine=Engine if journal is None and standby is None else None,
        journal=journal,
        standby=standby,
    )
    address = await server.start()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            yield Core(server, clock, metrics, channel, address)
    except BaseException:
        # A server that nobody stops complains after its loop has ended, and takes the report of the failure with it.
        await server.stop()
        raise
    await until(lambda: metrics.live_streams == 0, "streams to end with their channel")
    await server.stop()
    # A fixture is finished by another task than the one that began it.
    if alone:
        await until(lambda: not asyncio.all_tasks() - before - {asyncio.current_task()}, "tasks of the core to end")


class ManualTimeouts:
    """Stands for ``asyncio`` in a module that is tested: its timeouts run out when the test says so, and only then."""

    def __init__(self) -> None:
        self._begun: list[asyncio.Timeout] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def timeout(self, _seconds: float) -> asyncio.Timeout:
        """Returns a timeout that waits for :meth:`run_out`."""
        begun = asyncio.timeout(None)
        self._begun.append(begun)
        return begun

    async def wait_for(self, awaitable: Awaitable[Any], seconds: float) -> Any:
        """Returns what *awaitable* returns."""
        async with self.timeout(seconds):
            return await awaitable

    def run_out(self) -> None:
        """Ends everything that is being waited for."""
        for begun in self._begun:
            with suppress(RuntimeError):  # It is over.
                begun.reschedule(0)


@dataclass
class Conversation:
    """One stream, from the shim's side."""

    call: Any
    got: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._status = StatusKeeper(self.call)
        # After a failed write ``call.read`` gives no more responses, and so gRPC tells no status; this goes on.
        self._responses = aiter(self.call)

    @classmethod
    @asynccontextmanager
    async def open(cls, call: Any) -> AsyncIterator[Conversation]:
        """*call*, cancelled at the end if it is still open."""
        try:
            yield cls(call)
        finally:
            call.cancel()

    async def send(self, *requests: Any) -> None:
        """Sends *requests*. If the core has ended the stream before it reads them, :meth:`end` says how, and
        :meth:`receive` fails."""
        for request in requests:
            if self.call.done():
                return
            with suppress(grpc.aio.AioRpcError):
                # Before Python 3.12, wait_for takes no notice of a cancellation when the result has just come.
                async with asyncio.timeout(PATIENCE_S):
                    await self.call.write(request)

    async def receive(self) -> Any:
        """The next response. Fails if there is none."""
        async with asyncio.timeout(PATIENCE_S):
            response = await self._read()
        assert response is not grpc.aio.EOF, f"the stream ended: {self.call}"
        self.got.append(response)
        return response

    async def entries(self, count: int) -> list[Any]:
        """At least *count* entries of any list, message borders left out."""
        found: list[Any] = []
        while len(found) < count:
            response = await self.receive()
            found += [entry for _, values in response.ListFields() for entry in values]
        return found

    async def half_close(self) -> None:
        await self.call.done_writing()

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ends, and the text that comes with it; responses before the end are kept in ``got``.

        gRPC tells nobody how a stream has ended who has not read all of its responses.
        """
        try:
            while (response := await asyncio.wait_for(self._read(), PATIENCE_S)) is not grpc.aio.EOF:
                self.got.append(response)
        except grpc.aio.AioRpcError:
            pass
        code, details, _ = await asyncio.wait_for(self._status.wait_for_status(), PATIENCE_S)
        return code, details

    async def silent(self, core: Core) -> bool:
        """Whether no response comes although everything that can happen now has happened."""
        reading = asyncio.create_task(self._read())
        await core.settle()
        quiet = not reading.done()
        if quiet:
            # The stream is of no use after this: a read that is given up ends the call.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return quiet

    async def _read(self) -> Any:
        return await anext(self._responses, grpc.aio.EOF)


class Streams(NamedTuple):
    """The three streams of a shim."""

    nodes: Conversation
    applications: Conversation
    allocations: Conversation


@asynccontextmanager
async def open_streams(core: Core) -> AsyncIterator[Streams]:
    """Streams on which nothing has been said yet."""
    async with (
        Conversation.open(core.scheduler.UpdateNode()) as nodes,
        Conversation.open(core.scheduler.UpdateApplication()) as applications,
        Conversation.open(core.scheduler.UpdateAllocation()) as allocations,
    ):
        yield Streams(nodes, applications, allocations)


@asynccontextmanager
async def working_streams(core: Core) -> AsyncIterator[Streams]:
    """Streams of a shim that has a node, n1, and an application, app."""
    async with open_streams(core) as streams:
        await streams.nodes.send(node_request(create("n1")))
        await streams.nodes.receive()
        await streams.applications.send(application_request("app"))
        await streams.applications.receive()
        yield streams


def resource(**amounts: int) -> si.Resource:
    return si.Resource(resources={name: si.Quantity(value=amount) for name, amount in amounts.items()})


def create(node_id: str, partition: str | None = None, **capacity: int) -> si.NodeInfo:
    """Creation of a node of 10 vcore and 10 memory unless told otherwise."""
    attributes = {} if partition is None else {"si/node-partition": partition}
    return si.NodeInfo(
        nodeID=node_id,
        action=si.NodeInfo.CREATE,
        attributes=attributes,
        schedulableResource=resource(**(capacity or {"vcore": 10_000, "memory": 10})),
    )


def node_request(*nodes: si.NodeInfo, rm_id: str = "rm-1") -> si.NodeRequest:
    return si.NodeRequest(rmID=rm_id, nodes=nodes)


def application_request(
    *application_ids: str, partition: str = "", rm_id: str = "rm-1", queue: str = "root.a"
) -> si.ApplicationRequest:
    added = [
        si.AddApplicationRequest(
            applicationID=application_id,
            queueName=queue,
            partitionName=partition,
            ugi=si.UserGroupInformation(user="ann", groups=["staff"]),
        )
        for application_id in application_ids
    ]
    return si.ApplicationRequest(rmID=rm_id, new=added)


def ask(key: str, application_id: str = "app", partition: str = "", **amounts: int) -> si.Allocation:
    """An ask of 1000 vcore unless told otherwise."""
    return si.Allocation(
        allocationKey=key,
        applicationID=application_id,
        partitionName=partition,
        resourcePerAlloc=resource(**(amounts or {"vcore": 1_000})),
    )


def allocation_request(*allocations: si.Allocation, rm_id: str = "rm-1") -> si.AllocationRequest:
    return si.AllocationRequest(rmID=rm_id, allocations=allocations)


def release_request(*releases: si.AllocationRelease, rm_id: str = "rm-1") -> si.AllocationRequest:
    return si.AllocationRequest(rmID=rm_id, releases=si.AllocationReleasesRequest(allocationsToRelease=releases))


def keys(entries: Iterable[Any]) -> list[str]:
    return [entry.allocationKey for entry in entries]
