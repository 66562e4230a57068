"""What a case works with: a connection to the core under test, words for what an RM does, and ways to look.

Two ideas carry it. *Entries, not messages*: :meth:`Bench.expect` compares the next entries of each stream with the
wanted ones, in order within a stream, since nothing is promised across streams. *Fences*: "no answer" is shown by
sending requests that must be refused without any effect, and seeing nothing before the refusals
(:meth:`Bench.silence`).

What cannot be seen on the wire is measured with asks (:meth:`Bench.expect_free`), or read from ``kornel.v1`` where the
core serves it (:meth:`Bench.expect_used` and its like). Where it does not, the case goes on and carries a note.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio
from kornel.v1 import configuration_pb2, configuration_pb2_grpc, status_pb2, status_pb2_grpc
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc

from conformance import configs, entries, messages
from conformance.clock import Clock
from conformance.entries import Entry, Kind, Want
from conformance.outcome import Mismatch, Skipped, check
from conformance.stream import AnyStream, Stream

RM: Final = "conformance-1"
"""The contract's rm-1. No real RM has this name, so a core that serves one refuses the kit and comes to no harm."""

OTHER_RM: Final = "conformance-2"

PARTITION: Final = f"[{RM}]default"

PROBE_APP: Final = "conformance-probe"
_FENCE: Final = "conformance-fence"

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
CALL_TIMEOUT_S: Final = 10.0

NodeStream = Stream[si.NodeRequest, si.NodeResponse]
ApplicationStream = Stream[si.ApplicationRequest, si.ApplicationResponse]
AllocationStream = Stream[si.AllocationRequest, si.AllocationResponse]


class Bench:
    """One connection. A case begins with :meth:`reg`, or with :meth:`fresh` when nobody may be registered."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, *, deadline_s: float, settle_s: float) -> None:
        self.clock: Final = clock
        self.notes: Final[list[str]] = []
        """What could not be looked at, for the report."""
        self._deadline_s = deadline_s
        self._settle_s = settle_s
        self._scheduler = si_pb2_grpc.SchedulerStub(channel)
        self._configuration = configuration_pb2_grpc.ConfigurationServiceStub(channel)
        self._status = status_pb2_grpc.StatusServiceStub(channel)
        self._opened: list[AnyStream] = []
        self._nodes: NodeStream | None = None
        self._applications: ApplicationStream | None = None
        self._allocations: AllocationStream | None = None
        self._fences = 0
        self._probes = 0

    @property
    def nodes(self) -> NodeStream:
        """The node stream opened last."""
        assert self._nodes is not None, "the case has not registered"
        return self._nodes

    @property
    def applications(self) -> ApplicationStream:
        """The application stream opened last."""
        assert self._applications is not None, "the case has not registered"
        return self._applications

    @property
    def allocations(self) -> AllocationStream:
        """The allocation stream opened last."""
        assert self._allocations is not None, "the case has not registered"
        return self._allocations

    def open_nodes(self) -> NodeStream:
        """Another node stream, not bound to anybody yet."""
        self._nodes = Stream("node", self._scheduler.UpdateNode(), entries.node_entries, _of_no_probe)
        self._opened.append(self._nodes)
        return self._nodes

    def open_applications(self) -> ApplicationStream:
        """Another application stream, not bound to anybody yet."""
        self._applications = Stream(
            "application", self._scheduler.UpdateApplication(), entries.application_entries, _of_probe_app
        )
        self._opened.append(self._applications)
        return self._applications

    def open_allocations(self) -> AllocationStream:
        """Another allocation stream, not bound to anybody yet."""
        self._allocations = Stream(
            "allocation", self._scheduler.UpdateAllocation(), entries.allocation_entries, _of_probe_allocation
        )
        self._opened.append(self._allocations)
        return self._allocations

    async def open_streams(self) -> None:
        """Open the three streams and return when the core has bound them."""
        await self.open_nodes().send(si.NodeRequest(rmID=RM))
        await self.open_applications().send(si.ApplicationRequest(rmID=RM))
        await self.open_allocations().send(si.AllocationRequest(rmID=RM))
        strays = await self._fence()
        _nothing(strays)

    async def close(self) -> None:
        """End all streams."""
        for stream in self._opened:
            await stream.close()
        self._opened.clear()

    async def ends(self, stream: AnyStream, code: grpc.StatusCode) -> None:
        """Expect the core to end *stream* with *code*."""
        got = await stream.ended(self._deadline_s)
        check(got is code, f"expected the {stream.name} stream to end with {code.name}, got {got.name}")

    async def register(
        self, config: str = configs.BASIC, *, rm: str = RM, extra: Mapping[str, str] | None = None
    ) -> si.RegisterResourceManagerResponse:
        """Register, and open no stream."""
        request = si.RegisterResourceManagerRequest(
            rmID=rm, version="conformance", policyGroup="queues", config=config, extraConfig=extra or {}
        )
        return await self._scheduler.RegisterResourceManager(request, timeout=CALL_TIMEOUT_S)

    async def reg(self, config: str = configs.BASIC) -> None:
        """The contract's "reg", by default: register and open the three streams."""
        await self.close()
        await self.register(config)
        await self.open_streams()

    async def fresh(self) -> None:
        """Make the core one on which nobody is registered: a failed registration takes the old one away."""
        await self.refused(self.register(configs.UNKNOWN_KEY), grpc.StatusCode.INVALID_ARGUMENT)

    async def update_configuration(
        self, config: str, *, rm: str = RM, extra: Mapping[str, str] | None = None
    ) -> configuration_pb2.UpdateConfigurationResponse:
        """Replace the queue configuration. Raises Skipped on a core that has no such call."""
        request = configuration_pb2.UpdateConfigurationRequest(
            rm_id=rm, policy_group="queues", config=config, extra_config=extra or {}
        )
        try:
            return await self._configuration.UpdateConfiguration(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise Skipped("the core does not serve kornel.v1.ConfigurationService") from None
            raise

    async def refused(self, call: Awaitable[object], code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        """Expect *call* to fail with *code*; returns the error."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            check(error.code() is code, f"expected {code.name}, got {error.code().name}: {error.details()}")
            return error
        raise Mismatch(f"expected the call to fail with {code.name}, but it succeeded")

    async def send_nodes(self, *nodes: si.NodeInfo) -> None:
        await self.nodes.send(si.NodeRequest(rmID=RM, nodes=nodes))

    async def send_applications(
        self, *add: si.AddApplicationRequest, remove: Sequence[str] = (), partition: str = ""
    ) -> None:
        gone = [si.RemoveApplicationRequest(applicationID=app, partitionName=partition) for app in remove]
        await self.applications.send(si.ApplicationRequest(rmID=RM, new=add, remove=gone))

    async def send(self, *allocations: si.Allocation, releases: Sequence[si.AllocationRelease] = ()) -> None:
        """Asks, allocations and releases in one request."""
        body = si.AllocationReleasesRequest(allocationsToRelease=releases) if releases else None
        await self.allocations.send(si.AllocationRequest(rmID=RM, allocations=allocations, releases=body))

    async def send_asks(self, *asks: si.AllocationAsk) -> None:
        """Asks of the older generation."""
        await self.allocations.send(si.AllocationRequest(rmID=RM, asks=asks))

    async def release(self, key: str, termination: int = si.STOPPED_BY_RM, *, app: str = "app") -> None:
        """Release one allocation or ask; an empty *key* means all of *app*."""
        await self.send(releases=[messages.release(key, termination, app=app)])

    async def node(self, node: str, vcore: int = messages.NODE_VCORE) -> None:
        """Create a node and have it accepted."""
        await self.send_nodes(messages.full_node(node, vcore))
        await self.expect(entries.node_accepted(node))

    async def node_action(self, node: str, action: int) -> None:
        """Send an entry with nothing but *action*, which may be a number that the proto does not know."""
        await self.send_nodes(messages.node_info(node, si.NodeInfo.ActionFromRM.ValueType(action)))

    async def app(self, app: str = "app", queue: str = "root.a") -> None:
        """Add an application and have it accepted."""
        await self.send_applications(messages.application(app, queue))
        await self.expect(entries.app_accepted(app))

    async def start(
        self,
        *keys: str,
        app: str = "app",
        vcore: int = messages.ASK_VCORE,
        node: str | None = None,
        policy: tuple[bool, bool] | None = None,
    ) -> list[Entry]:
        """Have the first asks of *app* placed: it is Running afterwards. Returns their ``new`` entries."""
        await self.send(*(messages.allocation(key, vcore, app=app, policy=policy) for key in keys))
        await self.expect(entries.updated(app, "Accepted"), entries.updated(app, "Running"))
        return await self.expect_set(*(entries.new(key, node, app) for key in keys))

    async def ask_and_place(self, key: str, vcore: int = messages.ASK_VCORE, *, app: str = "app") -> Entry:
        """Have another ask of *app*, which runs already, placed."""
        await self.send(messages.allocation(key, vcore, app=app))
        return (await self.expect(entries.new(key, app=app)))[0]

    async def world(self, config: str = configs.BASIC) -> None:
        """Registered, with n1 and app."""
        await self.reg(config)
        await self.node("n1")
        await self.app()

    async def expect(self, *wants: Want) -> list[Entry]:
        """The next entries of each stream are the ones wanted there, in this order. Returns them as wanted."""
        found: list[Entry] = []
        for want in wants:
            got = await self._stream_of(want).inbox.take(self._deadline_s, str(want))
            if not want.matches(got):
                raise Mismatch(f"expected {want}, got {got}{_why(got)}")
            found.append(got)
        return found

    async def expect_set(self, *wants: Want) -> list[Entry]:
        """Like :meth:`expect`, for entries whose order the contract leaves open."""
        missing = list(wants)
        found: list[tuple[Want, Entry]] = []
        while missing:
            hope = " and ".join(str(want) for want in missing)
            got = await self._stream_of(missing[0]).inbox.take(self._deadline_s, hope)
            match = next((want for want in missing if want.matches(got)), None)
            if match is None:
                raise Mismatch(f"expected {hope}, got {got}{_why(got)}")
            missing.remove(match)
            found.append((match, got))
        return [next(got for match, got in found if match is want) for want in wants]

    async def one_of(self, *wants: Want) -> Entry:
        """The next entry is one of these, all of one stream."""
        hope = " or ".join(str(want) for want in wants)
        got = await self._stream_of(wants[0]).inbox.take(self._deadline_s, hope)
        if not any(want.matches(got) for want in wants):
            raise Mismatch(f"expected {hope}, got {got}{_why(got)}")
        return got

    async def silence(self) -> None:
        """Expect nothing unread on any stream, and nothing to come.

        A request that must be refused is sent on each of the three streams. What was sent on a stream before has been
        handled when its refusal is here, so an answer to it would have been seen. It does not show that a scheduling
        cycle has run since, nor what other streams have handled: for those the kit waits a moment and asks once more.
        """
        strays = await self._fence()
        await asyncio.sleep(self._settle_s)
        strays += await self._fence()
        _nothing(strays)

    async def silence_after(self, seconds: float) -> None:
        """Let time pass and expect silence; with a clock that has no such patience the case gets a note instead.

        For rules that only touch on time; a case that is about it has ``waits_s``.
        """
        if self.clock.patience_s < seconds:
            self.notes.append(f"not looked at: what comes within {seconds:g} s")
            return
        await self.clock.advance(seconds)
        await self.silence()

    async def quiet(self) -> list[Entry]:
        """What came up to a fence, on whichever stream: for rules that leave more than one possibility."""
        strays = await self._fence()
        await asyncio.sleep(self._settle_s)
        return strays + await self._fence()

    async def expect_free(self, free: Mapping[str, int]) -> None:
        """Expect each node to have exactly this much vcore free, by filling it up, and no node any more than that.

        A value of 0 or less: nothing fits. Gives everything back. Needs nodes of unlimited other types, nobody waiting
        for room, and a configuration with :data:`conformance.configs.PROBE_QUEUE`.
        """
        self._probes += 1
        app = f"{PROBE_APP}-{self._probes}"
        side = self.allocations.side
        await self.send_applications(messages.application(app, configs.PROBE_QUEUE))
        await self.applications.side.take(self._deadline_s, f"{app} to be accepted")
        filled: list[tuple[int, str]] = []
        for number, amount in enumerate(sorted((a for a in free.values() if a > 0), reverse=True)):
            key = f"{app}-{number}"
            await self.send(messages.allocation(key, amount, app=app))
            got = await side.take(self._deadline_s, f"{amount} vcore to be free on one node of {dict(free)}")
            check(got.kind is Kind.NEW and got.key == key, f"expected new {key}, got {got}{_why(got)}")
            filled.append((amount, got.detail))
        expected = sorted((amount, node) for node, amount in free.items() if amount > 0)
        check(sorted(filled) == expected, f"expected free {expected}, got {sorted(filled)}")
        await self.send(messages.allocation(f"{app}-more", 1, app=app))
        _nothing(await self.quiet())
        check(not len(side), f"expected no more than {dict(free)} to be free, but one more vcore fits")
        await self.send_applications(remove=[app])
        for _ in filled:
            await side.take(self._deadline_s, "what was measured with to be given back")
        _nothing(await self._fence())
        self.applications.side.clear()

    async def expect_total(self, total: Mapping[str, int]) -> None:
        """Expect the partition's capacity to be *total*, types of amount 0 left out."""
        await self._expect_status(lambda core: dict(core.partitions[0].total), dict(total), "total")

    async def expect_counts(self, *, nodes: int, asks: int, allocations: int) -> None:
        """Expect the partition to hold this many of each."""

        def counts(core: status_pb2.GetStatusResponse) -> object:
            here = core.partitions[0]
            return here.node_count, here.pending_ask_count, here.allocation_count

        await self._expect_status(counts, (nodes, asks, allocations), "nodes, asks and allocations")

    async def expect_used(self, queue: str, used: int) -> None:
        """Expect the allocations of *queue* to hold this much vcore."""
        await self._expect_status(lambda core: _queue(core, queue).used.get("vcore", 0), used, f"{queue} used")

    async def expect_pending(self, queue: str, pending: int) -> None:
        """Expect the asks of *queue* to want this much vcore."""
        await self._expect_status(lambda core: _queue(core, queue).pending.get("vcore", 0), pending, f"{queue} pending")

    async def expect_user(self, used: int, user: str = messages.USER) -> None:
        """Expect all applications of *user* together to hold this much vcore."""

        def held(core: status_pb2.GetStatusResponse) -> int:
            return sum(each.used.get("vcore", 0) for each in core.partitions[0].users if each.user == user)

        await self._expect_status(held, used, f"usage of user {user}")

    async def expect_queue(self, queue: str, *, present: bool) -> None:
        """Expect *queue* to exist, or not to."""
        await self._expect_status(
            lambda core: any(each.path == queue for each in core.partitions[0].queues),
            present,
            f"{queue} exists",
        )

    def _stream_of(self, want: Want) -> AnyStream:
        if want.kind in (Kind.NODE_ACCEPTED, Kind.NODE_REJECTED):
            return self.nodes
        if want.kind in (Kind.APP_ACCEPTED, Kind.APP_REJECTED, Kind.APP_UPDATED):
            return self.applications
        return self.allocations

    async def _fence(self) -> list[Entry]:
        """Send a request to each stream that must be refused without effect; what came before the refusals."""
        self._fences += 1
        mark = f"{_FENCE}-{self._fences}"
        nowhere = {messages.PARTITION_ATTRIBUTE: _FENCE}
        await self.send_nodes(messages.node_info(mark, attributes=nowhere))
        await self.send_applications(messages.application(mark, partition=_FENCE))
        await self.send(messages.allocation(mark, app=mark))
        strays: list[Entry] = []
        marks = (
            (self.nodes, Want(Kind.NODE_REJECTED, mark)),
            (self.applications, Want(Kind.APP_REJECTED, mark)),
            (self.allocations, Want(Kind.REJECTED, mark)),
        )
        for stream, want in marks:
            while True:
                entry = await stream.inbox.take(self._deadline_s, f"the refusal of {mark} ({stream.name})")
                if want.matches(entry):
                    break
                strays.append(entry)
        return strays

    async def _expect_status(
        self, look: Callable[[status_pb2.GetStatusResponse], object], wanted: object, what: str
    ) -> None:
        """Expect *look* to find *wanted* soon. A core without the call gets a note instead."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._deadline_s
        while True:
            try:
                core = await self._status.GetStatus(status_pb2.GetStatusRequest(), timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                self.notes.append(f"not looked at, for want of kornel.v1.StatusService: {what}")
                return
            got = look(core)
            if got == wanted:
                return
            if loop.time() > give_up:
                raise Mismatch(f"expected {what} to be {wanted}, got {got}")
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connect(
    address: str, clock: Clock, *, deadline_s: float = 5.0, settle_s: float = 0.1
) -> AsyncIterator[Bench]:
    """A bench at the core at *address*.

    deadline_s  how long an expected entry may take
    settle_s    how long :meth:`Bench.silence` gives scheduling to prove it wrong
    """
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # Cases must not share a connection: closing one would be closing both.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        bench = Bench(channel, clock, deadline_s=deadline_s, settle_s=settle_s)
        try:
            yield bench
        finally:
            await bench.close()


def _of_no_probe(_: Entry) -> bool:
    return False


def _of_probe_app(entry: Entry) -> bool:
    return entry.key.startswith(PROBE_APP)


def _of_probe_allocation(entry: Entry) -> bool:
    return entry.application.startswith(PROBE_APP)


def _queue(core: status_pb2.GetStatusResponse, path: str) -> status_pb2.QueueStatus:
    found = (queue for partition in core.partitions for queue in partition.queues if queue.path == path)
    return next(found, status_pb2.QueueStatus())


def _nothing(strays: Sequence[Entry]) -> None:
    if strays:
        raise Mismatch("expected nothing, got " + ", ".join(f"{entry}{_why(entry)}" for entry in strays))


def _why(entry: Entry) -> str:
    reason: str = getattr(entry.message, "reason", "")
    return f" ({reason})" if reason else ""
