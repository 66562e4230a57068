"""Among several cores a client finds the one that leads, and follows when another takes over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kornel.cli.client.channels import choose_address
from kornel.cli.client.connection import Connection
from kornel.shim_client import ConnectionLost, CoreUnreachable, ShimClient, StreamReopened, leader
from kornel.shim_client.leader import EPOCH_KEY, LEADER_KEY, SCHEDULER, LeaderChannel, split_addresses
from kornel.shim_client.progress import RESUME_KEY
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import manager_pb2, manager_pb2_grpc
from tests.patience import PATIENCE_S
from tests.waiting import until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class SmallCore(si_pb2_grpc.SchedulerServicer, health_pb2_grpc.HealthServicer, manager_pb2_grpc.ManagerServiceServicer):
    """A core that leads or stands by, as a test says. ``names``: the address that it gives while it stands by.
    ``silent``: it takes calls without an answer, ``unanswered`` of them so far, by their names."""

    def __init__(self, *, leads: bool, names: str = "") -> None:
        self.leads = leads
        self.names = names
        self.silent = False
        self.unanswered: Counter[str] = Counter()
        self.checks = 0
        self.registrations = 0
        self.streams = 0
        self.acknowledgements = 0
        self.epoch = 1
        self.address = ""

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        assert request.service == SCHEDULER
        self.checks += 1
        await self._keep_silent("Check")
        if self.leads:
            context.set_trailing_metadata(((EPOCH_KEY, str(self.epoch)),))
        return health_pb2.HealthCheckResponse(status=SERVING if self.leads else NOT_SERVING)

    async def RegisterResourceManager(self, request: Any, context: Any) -> si.RegisterResourceManagerResponse:
        await self._check(context)
        await self._keep_silent("Register")
        self.registrations += 1
        await context.send_initial_metadata(((RESUME_KEY, f"epoch-{self.epoch}"),))
        return si.RegisterResourceManagerResponse()

    async def Acknowledge(self, request: Any, context: Any) -> manager_pb2.AcknowledgeResponse:
        await self._keep_silent("Acknowledge")
        self.acknowledgements += 1
        return manager_pb2.AcknowledgeResponse()

    async def UnregisterResourceManager(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def UpdateAllocation(self, requests: Any, context: Any) -> None:
        await self._check(context)
        self.streams += 1
        await context.send_initial_metadata(((RESUME_KEY, f"epoch-{self.epoch}/0"),))
        async for _ in requests:
            await self._check(context)

    async def UpdateNode(self, requests: Any, context: Any) -> None:
        await self.UpdateAllocation(requests, context)

    async def UpdateApplication(self, requests: Any, context: Any) -> None:
        await self.UpdateAllocation(requests, context)

    async def _keep_silent(self, call: str) -> None:
        self.unanswered[call] += self.silent
        while self.silent:  # noqa: ASYNC110 - the test decides
            await asyncio.sleep(0.01)

    async def _check(self, context: Any) -> None:
        if not self.leads:
            named = ((LEADER_KEY, self.names),) if self.names else ()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this core stands by", named)


@asynccontextmanager
async def served(core: SmallCore) -> AsyncIterator[SmallCore]:
    """*core* at an address of its own."""
    server = grpc.aio.server()
    si_pb2_grpc.add_SchedulerServicer_to_server(core, server)
    health_pb2_grpc.add_HealthServicer_to_server(core, server)
    manager_pb2_grpc.add_ManagerServiceServicer_to_server(core, server)
    core.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield core
    finally:
        await server.stop(0)


def test_addresses_are_separated_by_commas() -> None:
    """Spaces and repetitions do not matter."""
    assert split_addresses("a:1") == ("a:1",)
    assert split_addresses(" a:1, b:2 ,a:1,") == ("a:1", "b:2")


async def test_the_one_that_leads_is_chosen_wherever_it_stands() -> None:
    """Also where another address does not answer at all."""
    async with served(SmallCore(leads=False)) as standby, served(SmallCore(leads=True)) as leading:
        for order in ((standby.address, leading.address), (leading.address, standby.address)):
            async with ShimClient(",".join(("127.0.0.1:1", *order)), "rm-1") as client:
                await client.register()
        assert (leading.registrations, standby.registrations) == (2, 0)
        assert await asyncio.to_thread(choose_address, Connection(), f"{standby.address},{leading.address}") == (
            leading.address
        )
        assert await asyncio.to_thread(choose_address, Connection(), f"127.0.0.1:1,{standby.address}") == (
            standby.address
        )
        assert await asyncio.to_thread(choose_address, Connection(), "127.0.0.1:1") == "127.0.0.1:1"


async def test_a_standby_names_the_leader() -> None:
    """A client that knows one address alone gets to the leader all the same."""
    async with served(SmallCore(leads=True)) as leading, served(SmallCore(leads=False)) as standby:
        standby.names = leading.address
        async with ShimClient(standby.address, "rm-1") as client, asyncio.timeout(PATIENCE_S):
            await client.register()
            while leading.streams < 3:  # noqa: ASYNC110 - the core counts
                await asyncio.sleep(0.01)
        assert (leading.registrations, standby.registrations) == (1, 0)


async def test_only_so_many_named_addresses_are_remembered() -> None:
    """Cores that are replaced often name a new address each time. The caller's own stay, and the leader's."""
    async with served(SmallCore(leads=True)) as leading:
        channel = LeaderChannel(("127.0.0.1:1", "127.0.0.1:2"), grpc.aio.insecure_channel)
        channel.note_leader(((LEADER_KEY, leading.address),))
        await channel.find_leader(PATIENCE_S)
        for number in range(100):
            assert channel.note_leader(((LEADER_KEY, f"127.0.0.1:{10 + number}"),))
            if number % 10 == 9:
                await channel._look(channel._addresses, 10**9)
        assert channel._addresses[:2] == ["127.0.0.1:1", "127.0.0.1:2"]
        assert {leading.address, "127.0.0.1:109"} <= set(channel._addresses)
        assert len(channel._addresses) == 2 + leader.MOST_NAMED
        assert set(channel._channels) <= set(channel._addresses)
        assert channel.address == leading.address
        await channel.close()


async def test_nobody_leads() -> None:
    """A client waits as long as it may, and says what it waited for."""
    async with served(SmallCore(leads=False)) as one, served(SmallCore(leads=False)) as two:
        addresses = f"{one.address},{two.address}"
        with pytest.raises(CoreUnreachable, match=one.address):
            await ShimClient(addresses, "rm-1", connect_s=0.3).connect()
        channel = LeaderChannel(split_addresses(addresses), grpc.aio.insecure_channel)
        with pytest.raises(ConnectionLost, match="no core leads at"):
            await channel.find_leader(0.3)
        waiting = asyncio.create_task(channel.find_leader(PATIENCE_S))
        two.leads = True
        await waiting
        assert channel.address == two.address
        await channel.close()


async def test_streams_follow_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the core that led says nothing at all any more: that another one leads is reason enough."""
    monkeypatch.setattr(leader, "WATCH_S", 0.02)
    async with served(SmallCore(leads=True)) as one, served(SmallCore(leads=False)) as two:
        async with ShimClient(f"{one.address},{two.address}", "rm-1") as client, asyncio.timeout(PATIENCE_S):
            await client.register()
            while one.streams < 3:  # noqa: ASYNC110 - the core counts
                await asyncio.sleep(0.01)
            # The first one keeps its streams open, and says still that it leads, as one does that has slept.
            two.leads, two.epoch = True, 2
            reopened = 0
            async for update in client.updates():
                reopened += isinstance(update, StreamReopened)
                if reopened == 3:
                    break
            while two.streams < 3:  # noqa: ASYNC110 - the core counts
                await asyncio.sleep(0.01)
        assert two.registrations == 0


async def test_a_search_goes_on_when_another_one_finds_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks a core that no longer answers when that connection is closed, because another core leads."""
    monkeypatch.setattr(leader, "WATCH_S", 0.02)
    monkeypatch.setattr(leader, "ASKED_S", PATIENCE_S)
    async with served(SmallCore(leads=True)) as one, served(SmallCore(leads=False)) as two:
        channel = LeaderChannel((one.address, two.address), grpc.aio.insecure_channel)
        await channel.find_leader(PATIENCE_S)
        one.silent = True
        searching = asyncio.create_task(channel.find_leader(PATIENCE_S))
        await until(lambda: one.unanswered["Check"], "the search to ask the core that is silent")
        before = two.checks
        await until(lambda: two.checks >= before + 3, "the other core to have said that it stands by")
        two.leads, two.epoch = True, 2
        await asyncio.wait([searching], timeout=PATIENCE_S)
        assert not searching.cancelled()
        await searching
        assert channel.address == two.address
        await channel.close()
        one.silent = False


async def test_calls_fail_when_another_core_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for the core that led is not cancelled, and acknowledgements go to the new leader."""
    monkeypatch.setattr(leader, "WATCH_S", 0.02)
    async with served(SmallCore(leads=True)) as one, served(SmallCore(leads=False)) as two:
        async with ShimClient(f"{one.address},{two.address}", "rm-1") as client:
            await client.register()
            await until(lambda: one.streams == 3, "the streams to be open")
            one.silent = True
            client._acknowledging.set()
            registering = asyncio.create_task(client.register())
            await until(lambda: one.unanswered["Register"] and one.unanswered["Acknowledge"], "both calls")
            two.leads, two.epoch = True, 2
            await asyncio.wait([registering], timeout=PATIENCE_S)
            assert not registering.cancelled()
            assert isinstance(registering.exception(), CoreUnreachable)
            await until(lambda: two.streams == 3, "the streams to be open at the other core")
            await until(lambda: two.acknowledgements, "an acknowledgement at the other core")
        one.silent = False
