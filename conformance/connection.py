"""The connection to a core: streams, requests, and expectations of its answers.

It is based on two ideas. *Entries, not messages*: :meth:`Connection.expect` compares the next entries of each stream
with the expected ones, in order within a stream, because the contract promises no order across streams. *Fences*: to
show that the core does not answer, the kit sends requests that must be refused without any effect, and expects nothing
before their refusals (:meth:`Connection.expect_silence`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from kornel.conformance import configs, entries, messages
from kornel.conformance.clock import Clock
from kornel.conformance.entries import Entry, Kind, Want
from kornel.conformance.outcome import Mismatch, check
from kornel.conformance.stream import AnyStream, Stream
from kornel.shim_client.credentials import NO_CREDENTIALS, Credentials
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc

RM: Final = "conformance-1"
"""The contract's rm-1. No real RM has this name, so a core that serves a real RM refuses the kit and is not
disturbed."""

PROBE_APP: Final = "conformance-probe"
FENCE: Final = "conformance-fence"

RESUME_KEY: Final = "kornel-resume"

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
CALL_TIMEOUT_S: Final = 10.0

NodeStream = Stream[si.NodeRequest, si.NodeResponse]
ApplicationStream = Stream[si.ApplicationRequest, si.ApplicationResponse]
AllocationStream = Stream[si.AllocationRequest, si.AllocationResponse]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    deadline_s   the seconds that an expected entry may take
    settle_s     the seconds of silence in which :meth:`Connection.expect_silence` waits for an entry too many
    credentials  the credentials for the core
    restart      the command that kills the core and starts it again; empty: there is none
    any_reason   a refusal may give another reason than the contract's token
    """

    deadline_s: float = 5.0
    settle_s: float = 0.1
    credentials: Credentials = NO_CREDENTIALS
    restart: str = ""
    any_reason: bool = False


class Connection:
    """The connection of one program that acts for *rm*."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, settings: Settings, *, rm: str = RM) -> None:
        self.clock: Final = clock
        self.rm: Final = rm
        self.notes: Final[list[str]] = []
        """Remarks for the report about what could not be checked."""
        self.settings: Final = settings
        self._scheduler = si_pb2_grpc.SchedulerStub(channel)
        self._opened: list[AnyStream] = []
        self._nodes: NodeStream | None = None
        self._applications: ApplicationStream | None = None
        self._allocations: AllocationStream | None = None
        self._fences = 0
        self.epoch = ""
        """The epoch that the core named with the registration; empty: it named none."""
        self.sent: Final = {"node": 0, "application": 0, "allocation": 0}
        """The number of entries that were sent on the streams of each kind."""
        self.marks: Final[dict[str, tuple[tuple[str, str], ...]]] = {"node": (), "application": (), "allocation": ()}
        """The metadata with which the streams of each kind are opened."""

    @property
    def nodes(self) -> NodeStream:
        """The node stream that was opened last."""
        assert self._nodes is not None, "the case has not registered"
        return self._nodes

    @property
    def applications(self) -> ApplicationStream:
        """The application stream that was opened last."""
        assert self._applications is not None, "the case has not registered"
        return self._applications

    @property
    def allocations(self) -> AllocationStream:
        """The allocation stream that was opened last."""
        assert self._allocations is not None, "the case has not registered"
        return self._allocations

    def open_nodes(self) -> NodeStream:
        """Returns another node stream, which is not bound yet."""
        self._nodes = Stream(
            "node", self._scheduler.UpdateNode(metadata=self.marks["node"]), entries.node_entries, _of_no_probe
        )
        self._opened.append(self._nodes)
        return self._nodes

    def open_applications(self) -> ApplicationStream:
        """Returns another application stream, which is not bound yet."""
        self._applications = Stream(
            "application",
            self._scheduler.UpdateApplication(metadata=self.marks["application"]),
            entries.application_entries,
            _of_probe_app,
        )
        self._opened.append(self._applications)
        return self._applications

    def open_allocations(self) -> AllocationStream:
        """Returns another allocation stream, which is not bound yet."""
        self._allocations = Stream(
            "allocation",
            self._scheduler.UpdateAllocation(metadata=self.marks["allocation"]),
            entries.allocation_entries,
            _of_probe_allocation,
        )
        self._opened.append(self._allocations)
        return self._allocations

    async def open_streams(self) -> None:
        """Open the three streams and return when the core has bound them."""
        await self.open_nodes().send(si.NodeRequest(rmID=self.rm))
        await self.open_applications().send(si.ApplicationRequest(rmID=self.rm))
        await self.open_allocations().send(si.AllocationRequest(rmID=self.rm))
        strays = await self._pass_fence()
        expect_nothing(strays)

    async def close(self) -> None:
        """End all streams."""
        for stream in self._opened:
            await stream.close()
        self._opened.clear()

    async def expect_end(self, stream: AnyStream, code: grpc.StatusCode) -> None:
        """Expect the core to end *stream* with *code*."""
        got = await stream.wait_for_end(self.settings.deadline_s)
        check(got is code, f"expected the {stream.name} stream to end with {code.name}, got {got.name}")

    async def register(
        self,
        config: str = configs.BASIC,
        *,
        rm: str | None = None,
        extra: Mapping[str, str] | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> si.RegisterResourceManagerResponse:
        """Register without opening a stream."""
        request = si.RegisterResourceManagerRequest(
            rmID=self.rm if rm is None else rm,
            version="conformance",
            policyGroup="queues",
            config=config,
            extraConfig=extra or {},
        )
        call = self._scheduler.RegisterResourceManager(request, timeout=self.settings.deadline_s, metadata=metadata)
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Mismatch(
                    f"expected an answer to the registration, but none came within {self.settings.deadline_s:g} s"
                ) from None
            raise
        self.epoch = str(dict(await call.initial_metadata() or ()).get(RESUME_KEY, ""))
        return response

    async def expect_refusal(self, call: Awaitable[object], code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        """Expect *call* to fail with *code*; returns the error."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            check(error.code() is code, f"expected {code.name}, got {error.code().name}: {error.details()}")
            return error
        raise Mismatch(f"expected the call to fail with {code.name}, but it succeeded")

    async def send_nodes(self, *nodes: si.NodeInfo) -> None:
        """Send entries about nodes in one request."""
        self.sent["node"] += len(nodes)
        await self.nodes.send(si.NodeRequest(rmID=self.rm, nodes=nodes))

    async def send_applications(
        self, *add: si.AddApplicationRequest, remove: Sequence[str] = (), partition: str = ""
    ) -> None:
        """Send additions, and removals, of applications in one request."""
        gone = [si.RemoveApplicationRequest(applicationID=app, partitionName=partition) for app in remove]
        self.sent["application"] += len(add) + len(gone)
        await self.applications.send(si.ApplicationRequest(rmID=self.rm, new=add, remove=gone))

    async def send(self, *allocations: si.Allocation, releases: Sequence[si.AllocationRelease] = ()) -> None:
        """Send asks, allocations and releases in one request."""
        body = si.AllocationReleasesRequest(allocationsToRelease=releases) if releases else None
        self.sent["allocation"] += len(allocations) + len(releases)
        await self.allocations.send(si.AllocationRequest(rmID=self.rm, allocations=allocations, releases=body))

    async def send_asks(self, *asks: si.AllocationAsk) -> None:
        """Send asks of the older generation."""
        await self.allocations.send(si.AllocationRequest(rmID=self.rm, asks=asks))

    async def expect(self, *wants: Want) -> list[Entry]:
        """Expect the next entries of each stream to match those of *wants* for that stream, in order, and return them
        in the order of *wants*."""
        found: list[Entry] = []
        for want in wants:
            got = await self._stream_of(want).inbox.take_entry(self.settings.deadline_s, str(want))
            if not self._matches_want(want, got):
                raise Mismatch(f"expected {want}, got {got}{reason_of(got)}")
            found.append(got)
        return found

    async def expect_set(self, *wants: Want) -> list[Entry]:
        """Expect entries as :meth:`expect` does, but in any order, where the contract leaves the order open."""
        missing = list(wants)
        found: list[tuple[Want, Entry]] = []
        while missing:
            hope = " and ".join(str(want) for want in missing)
            got = await self._stream_of(missing[0]).inbox.take_entry(self.settings.deadline_s, hope)
            match = next((want for want in missing if self._matches_want(want, got)), None)
            if match is None:
                raise Mismatch(f"expected {hope}, got {got}{reason_of(got)}")
            missing.remove(match)
            found.append((match, got))
        return [next(got for match, got in found if match is want) for want in wants]

    async def expect_one_of(self, *wants: Want) -> Entry:
        """Expect the next entry to match one of *wants*, which all belong to the same stream, and return the entry."""
        hope = " or ".join(str(want) for want in wants)
        got = await self._stream_of(wants[0]).inbox.take_entry(self.settings.deadline_s, hope)
        if not any(self._matches_want(want, got) for want in wants):
            raise Mismatch(f"expected {hope}, got {got}{reason_of(got)}")
        return got

    async def expect_silence(self) -> None:
        """Expect that no entry is unread on any stream, and that no further entry arrives.

        The kit sends a request that must be refused on each of the three streams. When the refusal arrives, the core
        has handled everything sent on that stream before, and would have answered it. The refusal does not show that a
        scheduling cycle has run since, nor what other streams have handled; so the kit waits a moment and sends another
        one.
        """
        strays = await self._pass_fence()
        await asyncio.sleep(self.settings.settle_s)
        strays += await self._pass_fence()
        expect_nothing(strays)

    async def expect_silence_after(self, seconds: float) -> None:
        """Let time pass and expect silence; if the clock cannot wait that long, the case gets a note instead.

        Use this for rules in which time is only a side issue; a case about time declares ``waits_s``.
        """
        if self.clock.patience_s < seconds:
            self.notes.append(f"not checked: what arrives within {seconds:g} s")
            return
        await self.clock.advance_time(seconds)
        await self.expect_silence()

    async def expect_nothing_unread(self) -> None:
        """Expect that no entry is unread on any stream, without sending anything. Use it for a program that was
        replaced."""
        await asyncio.sleep(self.settings.settle_s)
        for stream in (self.nodes, self.applications, self.allocations):
            check(not len(stream.inbox), f"expected nothing more on the {stream.name} stream of the first program")

    async def read_until_quiet(self) -> list[Entry]:
        """Returns the entries that arrived before a fence on any stream. Use it for rules that allow several
        outcomes."""
        strays = await self._pass_fence()
        await asyncio.sleep(self.settings.settle_s)
        return strays + await self._pass_fence()

    def _matches_want(self, want: Want, got: Entry) -> bool:
        return want.matches_entry(got, any_reason=self.settings.any_reason)

    def _stream_of(self, want: Want) -> AnyStream:
        if want.kind in (Kind.NODE_ACCEPTED, Kind.NODE_REJECTED):
            return self.nodes
        if want.kind in (Kind.APP_ACCEPTED, Kind.APP_REJECTED, Kind.APP_UPDATED):
            return self.applications
        return self.allocations

    async def _pass_fence(self) -> list[Entry]:
        """Send a request to each stream that must be refused without effect, and return what came before the
        refusals."""
        self._fences += 1
        mark = f"{FENCE}-{self._fences}"
        nowhere = {messages.PARTITION_ATTRIBUTE: FENCE}
        await self.send_nodes(messages.node_info(mark, attributes=nowhere))
        await self.send_applications(messages.application(mark, partition=FENCE))
        await self.send(messages.allocation(mark, app=mark))
        strays: list[Entry] = []
        marks = (
            (self.nodes, Want(Kind.NODE_REJECTED, mark)),
            (self.applications, Want(Kind.APP_REJECTED, mark)),
            (self.allocations, Want(Kind.REJECTED, mark)),
        )
        for stream, want in marks:
            while True:
                entry = await stream.inbox.take_entry(
                    self.settings.deadline_s, f"the refusal of {mark} ({stream.name})"
                )
                if want.matches_entry(entry):
                    break
                strays.append(entry)
        return strays


def _of_no_probe(_: Entry) -> bool:
    return False


def _of_probe_app(entry: Entry) -> bool:
    return entry.key.startswith(PROBE_APP)


def _of_probe_allocation(entry: Entry) -> bool:
    return entry.application.startswith(PROBE_APP)


def expect_nothing(strays: Sequence[Entry]) -> None:
    if strays:
        raise Mismatch("expected nothing, got " + ", ".join(f"{entry}{reason_of(entry)}" for entry in strays))


def reason_of(entry: Entry) -> str:
    reason: str = getattr(entry.message, "reason", "")
    return f" ({reason})" if reason else ""
