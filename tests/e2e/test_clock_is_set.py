"""Somebody sets the machine's clock while a core serves: back by an hour, ahead by a day. What lasts is as long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from kornel.core.engine.engine import Engine
from kornel.core.security.static_tokens import digest_of, new_token
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from kornel.v1 import configuration_pb2
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from tests.e2e.harness import (
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    open_streams,
    resource,
    running_core,
)
from tests.e2e.machine_clock import MachineClock
from tests.e2e.preemption_wire import running_shim
from tests.e2e.security.site import Site, bearer, secured
from tests.e2e.security.test_limits import ANN, BOB, OK, POLICY, TOO_MANY, UNKNOWN, read_as
from tests.patience import PATIENCE_S
from tests.preemption_notation import TaskCase, parse
from tests.waiting import until

HOUR_NS = 3_600 * SECOND_NS
STEPS = {"back by an hour": -HOUR_NS, "ahead by a day": 24 * HOUR_NS}
PARTITION = "[rm-1]default"
A_QUARTER = """
partitions:
  - name: default
    preemption: {cycle: {limit: 0.25}}
    queues: [{name: root, submitacl: "*", queues: [{name: v}, {name: a, resources: {guaranteed: {f: 4}}}]}]
"""
"""Of a cluster that the queue a is guaranteed."""
(FULL,) = parse(
    """
case four tasks of one on four nodes
queues  v · a{G=4}
nodes   n1=1 n2=1 n3=1 n4=1
running v: v1 1@n1, v2 1@n2, v3 1@n3, v4 1@n4
"""
)


@pytest.fixture(params=list(STEPS))
def step_ns(request: pytest.FixtureRequest) -> int:
    return STEPS[request.param]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    return MachineClock(monkeypatch)


@pytest.fixture
async def core(clock: MachineClock) -> AsyncIterator[Core]:
    async with running_core(Engine(), clock=clock) as core:
        await core.register()
        yield core


async def test_placeholders_time_out_after_as_long_as_they_were_given(
    core: Core, clock: MachineClock, step_ns: int
) -> None:
    async with open_streams(core) as (nodes, applications, allocations):
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        gang = application_request("app")
        gang.new[0].placeholderAsk.CopyFrom(resource(vcore=2_000))
        gang.new[0].executionTimeoutMilliSeconds = 60_000
        await applications.send(gang)
        await applications.receive()
        first, second = ask("p1"), ask("p2")
        for placeholder in (first, second):
            placeholder.placeholder, placeholder.taskGroupName = True, "g"
        await allocations.send(allocation_request(first))
        assert (await allocations.receive()).new[0].allocationKey == "p1"
        clock.advance(30 * SECOND_NS)
        clock.set_wall(step_ns)
        clock.advance(29 * SECOND_NS)
        await core.settle()
        sent = core.metrics.entries_sent
        clock.advance(2 * SECOND_NS)
        await core.settle()
        assert core.metrics.entries_sent > sent
        released = (await allocations.receive()).released
        assert [(r.allocationKey, r.terminationType) for r in released] == [("p1", si.TIMEOUT)]


async def test_drained_queues_are_cleaned_up_in_time(clock: MachineClock, step_ns: int) -> None:
    engine = Engine()
    async with running_core(engine, clock=clock) as core:
        await core.register()
        state = engine.partition(PARTITION)
        assert state is not None
        text = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: b}]}]}]"
        await ConfigurationServiceStub(core.channel).UpdateConfiguration(
            configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=text), timeout=PATIENCE_S
        )
        assert state.queues["root.a"].draining
        clock.set_wall(step_ns)
        clock.advance(11 * SECOND_NS)
        await core.settle()
        assert "root.a" not in state.queues


async def test_limits_of_the_preemption_cycle_let_go_in_time(clock: MachineClock, step_ns: int) -> None:
    async with running_shim(A_QUARTER, clock=clock) as shim:
        await shim.set_up(FULL)
        for number in range(1, 5):
            await shim.ask(TaskCase("a", f"k{number}", {"f": 1}))
        await shim.lost(1)
        clock.set_wall(step_ns)
        await shim.pass_seconds(0.5)
        assert len(shim.victims()) == 1
        await shim.pass_seconds(0.6)
        await shim.lost(2)


@pytest.fixture
async def site(tmp_path: Path, clock: MachineClock) -> AsyncIterator[Site]:
    expires = datetime.fromtimestamp(clock.wall_ns() / SECOND_NS + 2 * 3_600, UTC).isoformat()
    (tmp_path / "tokens.yaml").write_text(
        f"tokens: [{{name: ann, sha256: {digest_of(ANN)}}},"
        f" {{name: bob, sha256: {digest_of(BOB)}, expires: '{expires}'}}]"
    )
    async with secured(tmp_path, policy=POLICY, clock=clock) as site:
        yield site


async def test_a_lock_out_lasts_as_long_as_it_should(site: Site, clock: MachineClock, step_ns: int) -> None:
    async with site.channel() as channel:
        assert [await read_as(channel, new_token()) for _ in range(6)] == [UNKNOWN] * 5 + [TOO_MANY]
        clock.set_wall(step_ns)
        assert await read_as(channel, new_token()) is TOO_MANY
        assert await read_as(channel, ANN) is OK
        clock.advance(2 * SECOND_NS)
        assert await read_as(channel, new_token()) is UNKNOWN


async def test_a_rate_limit_lets_go_in_time(site: Site, clock: MachineClock, step_ns: int) -> None:
    async with site.channel() as channel:
        assert [await read_as(channel, ANN) for _ in range(6)] == [OK] * 5 + [TOO_MANY]
        clock.set_wall(step_ns)
        assert await read_as(channel, ANN) is TOO_MANY
        clock.advance(SECOND_NS)
        assert await read_as(channel, ANN) is OK


async def test_a_token_expires_by_the_date_on_the_wall(site: Site, clock: MachineClock, step_ns: int) -> None:
    """That somebody else chose: with the clock ahead it is over, and so are the streams that rest on it."""
    async with site.channel() as channel:
        call = SchedulerStub(channel).UpdateNode(metadata=bearer(BOB))
        async with Conversation.open(call) as nodes:
            guard = site.security.guard
            assert guard is not None
            await until(lambda: guard.live_calls == 1, "the stream to be let in")
            clock.set_wall(step_ns)
            clock.advance(61 * SECOND_NS)
            if step_ns < 0:
                assert await read_as(channel, BOB) is OK
            else:
                assert (await nodes.end())[0] is grpc.StatusCode.UNAVAILABLE
                assert await read_as(channel, BOB) is UNKNOWN


async def test_an_ask_is_as_old_as_the_shim_says(clock: MachineClock, step_ns: int) -> None:
    """The shim writes down the wall clock; ten seconds stay ten seconds."""
    engine = Engine()
    async with (
        running_core(engine, clock=clock) as core,
        Conversation.open(core.scheduler.UpdateApplication()) as applications,
        Conversation.open(core.scheduler.UpdateAllocation()) as allocations,
    ):
        await core.register()
        clock.set_wall(step_ns)
        await applications.send(application_request("app"))
        await applications.receive()
        old = ask("k", vcore=20_000)
        old.allocationTags["creationTime"] = str(clock.wall_ns() // SECOND_NS - 10)
        await allocations.send(allocation_request(old))
        await core.settle()
        state = engine.partition(PARTITION)
        assert state is not None
        age_ns = clock.now_ns() - state.requests["k"].created_ns
    assert age_ns == pytest.approx(10 * SECOND_NS, abs=SECOND_NS)
