"""A core whose time only moves when a caller says so: kornel.v1.TestClockService."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import test_clock_pb2, test_clock_pb2_grpc
from tests.e2e.harness import (
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    release_request,
    running_core,
)
from tests.e2e.test_command import kornel, serving
from tests.patience import PATIENCE_S

Code = grpc.StatusCode
SERVICE = "kornel.v1.TestClockService"
DAY_NS = 24 * 3600 * SECOND_NS


@pytest.fixture
async def steered() -> AsyncIterator[Core]:
    """A core that serves its clock, with rm-1 registered."""
    async with running_core(test_clock=True) as core:
        await core.register()
        yield core


async def advance(core: Core, by_ns: int, *, until_told: bool = False) -> int:
    """Time after moving on by *by_ns*."""
    stub = test_clock_pb2_grpc.TestClockServiceStub(core.channel)
    request = test_clock_pb2.AdvanceClockRequest(by_ns=by_ns, until_told=until_told)
    answer = await stub.AdvanceClock(request, timeout=4 * PATIENCE_S)
    return int(answer.now_ns)


async def refusal(core: Core, by_ns: int) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await advance(core, by_ns)
    return caught.value.code()


async def finished_application(core: Core, applications: Conversation) -> None:
    """Application "app" has just lost its only allocation: it is Completing."""
    async with (
        Conversation.open(core.scheduler.UpdateNode()) as nodes,
        Conversation.open(core.scheduler.UpdateAllocation()) as allocations,
    ):
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        await applications.send(application_request("app"))
        await applications.receive()
        await allocations.send(allocation_request(ask("k")))
        await allocations.receive()
        release = si.AllocationRelease(applicationID="app", allocationKey="k", terminationType=si.STOPPED_BY_RM)
        await allocations.send(release_request(release))
        await allocations.receive()
    states = await applications.entries(3)
    assert [entry.state for entry in states] == ["Accepted", "Running", "Completing"]


async def test_what_falls_due_is_done_when_the_call_returns(steered: Core) -> None:
    """Thirty seconds complete an idle application, 29.999999999 do not (scheduling.md 11.3)."""
    async with Conversation.open(steered.scheduler.UpdateApplication()) as applications:
        await finished_application(steered, applications)
        start_ns = await advance(steered, 0)
        sent = steered.metrics.entries_sent
        await advance(steered, 30 * SECOND_NS - 1)
        await steered.settle()
        assert (steered.metrics.entries_sent, steered.metrics.queued_entries) == (sent, 0)
        assert await advance(steered, 1) == start_ns + 30 * SECOND_NS
        (updated,) = await applications.entries(1)
        assert (updated.state, updated.stateTransitionTimestamp) == ("Completed", start_ns + 30 * SECOND_NS)


async def test_every_timer_on_the_way_sees_its_own_time(steered: Core) -> None:
    """One step over several timers gives the same timestamps as many small ones (cases 134 and 136)."""
    async with Conversation.open(steered.scheduler.UpdateApplication()) as applications:
        await finished_application(steered, applications)
        start_ns = await advance(steered, 0)
        await advance(steered, 3 * DAY_NS + 31 * SECOND_NS)
        updated = await applications.entries(2)
    assert [(entry.state, entry.stateTransitionTimestamp - start_ns) for entry in updated] == [
        ("Completed", 30 * SECOND_NS),
        ("Expired", 30 * SECOND_NS + 3 * DAY_NS),
    ]


async def test_the_clock_stops_when_the_core_speaks(steered: Core) -> None:
    """With until_told it stands at the first timer that tells the shim something, and then at the next."""
    async with Conversation.open(steered.scheduler.UpdateApplication()) as applications:
        await finished_application(steered, applications)
        start_ns = await advance(steered, 0)
        stops = [await advance(steered, 9 * DAY_NS, until_told=True) - start_ns for _ in range(3)]
        updated = await applications.entries(2)
    assert stops == [30 * SECOND_NS, 30 * SECOND_NS + 3 * DAY_NS, 30 * SECOND_NS + 12 * DAY_NS]
    assert [entry.stateTransitionTimestamp - start_ns for entry in updated] == stops[:2]


async def test_timers_closer_than_a_millisecond_keep_apart(steered: Core) -> None:
    """Two applications that end 1 ns apart complete 1 ns apart."""
    async with Conversation.open(steered.scheduler.UpdateApplication()) as applications:
        await finished_application(steered, applications)
        await advance(steered, 1)
        await applications.send(application_request("late"))
        await applications.receive()
        async with Conversation.open(steered.scheduler.UpdateAllocation()) as allocations:
            await allocations.send(allocation_request(ask("k2", "late")))
            await allocations.receive()
            await allocations.send(
                release_request(
                    si.AllocationRelease(applicationID="late", allocationKey="k2", terminationType=si.STOPPED_BY_RM)
                )
            )
            await allocations.receive()
        await applications.entries(3)
        await advance(steered, 60 * SECOND_NS)
        first, second = await applications.entries(2)
    assert (first.applicationID, second.applicationID) == ("app", "late")
    assert second.stateTransitionTimestamp - first.stateTransitionTimestamp == 1


async def test_callers_take_turns(steered: Core) -> None:
    """Concurrent callers each get their whole step; together they move the clock by the sum."""
    start_ns = await advance(steered, 0)
    steps = [n * SECOND_NS for n in range(1, 6)]
    ends = sorted(await asyncio.gather(*(advance(steered, step) for step in steps)))
    assert ends[-1] == start_ns + sum(steps)
    gaps = [after - before for before, after in zip([start_ns, *ends], ends, strict=False)]
    assert sorted(gaps) == steps


@pytest.mark.parametrize("by_ns", [-1, -(2**63), 2**63 - 1])
async def test_impossible_steps_are_refused(steered: Core, by_ns: int) -> None:
    """Going back, or beyond what a timestamp can carry, is INVALID_ARGUMENT and moves nothing."""
    before = await advance(steered, 0)
    assert await refusal(steered, by_ns) is Code.INVALID_ARGUMENT
    assert await advance(steered, 0) == before


async def test_a_caller_that_leaves_lets_the_next_one_in(steered: Core) -> None:
    """A call that is cancelled half-way does not keep the clock."""
    stub = test_clock_pb2_grpc.TestClockServiceStub(steered.channel)
    long = stub.AdvanceClock(test_clock_pb2.AdvanceClockRequest(by_ns=100_000 * DAY_NS // 1000))
    await steered.settle()
    long.cancel()
    before = await advance(steered, 0)
    assert await advance(steered, SECOND_NS) == before + SECOND_NS


@pytest.mark.parametrize("served", [False, True])
async def test_it_is_there_only_when_asked_for(served: bool) -> None:
    """Without the flag the service does not exist: not by call, by reflection, or by health."""
    async with running_core(test_clock=served) as core:

        def listed() -> set[str]:
            with grpc.insecure_channel(core.address) as channel:
                return set(ProtoReflectionDescriptorDatabase(channel).get_services())

        assert (SERVICE in await asyncio.to_thread(listed)) is served
        check: Any = HealthStub(core.channel).Check  # type: ignore[attr-defined]
        if served:
            answer = await check(health_pb2.HealthCheckRequest(service=SERVICE))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            await advance(core, 0)
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await check(health_pb2.HealthCheckRequest(service=SERVICE))
            assert caught.value.code() is Code.NOT_FOUND
            assert await refusal(core, 0) is Code.UNIMPLEMENTED


def test_the_command_serves_it_on_this_machine(tmp_path: Path) -> None:
    """`--test-clock` starts at the real time and stands still."""
    began_ns = time.time_ns()
    with serving(tmp_path, "--test-clock") as (_, address), grpc.insecure_channel(address) as channel:
        stub = test_clock_pb2_grpc.TestClockServiceStub(channel)
        first = stub.AdvanceClock(test_clock_pb2.AdvanceClockRequest(), timeout=PATIENCE_S).now_ns
        assert began_ns <= first <= time.time_ns()
        assert stub.AdvanceClock(test_clock_pb2.AdvanceClockRequest(by_ns=7), timeout=PATIENCE_S).now_ns == first + 7


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.1.2.3:0"])
def test_the_command_serves_it_to_nobody_else(address: str) -> None:
    """Other machines must not move the clock: such an address is refused with exit status 2."""
    result = kornel("serve", "--test-clock", "--grpc", address)
    assert result.returncode == 2
    assert "loopback" in result.stderr
    assert address in result.stderr
