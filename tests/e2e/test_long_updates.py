"""A configuration that comes into force step by step, and everything that may happen between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.engine.engine import Engine
from kornel.core.service.runner import engine_driver
from kornel.v1 import admin_pb2, configuration_pb2, explain_pb2, manager_pb2
from kornel.v1.admin_pb2_grpc import AdminServiceStub
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.explain_pb2_grpc import ExplainServiceStub
from kornel.v1.manager_pb2_grpc import ManagerServiceStub
from kornel.v1.status_pb2 import GetStatusRequest, GetStatusResponse
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import (
    CONFIG,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    open_streams,
    running_core,
)
from tests.patience import PATIENCE_S
from tests.waiting import until

MANY = CONFIG + "".join(f"          - {{name: q{number}}}\n" for number in range(50))
LIMITED = MANY.replace("}\n", ", resources: {max: {vcore: 1}}}\n")

FINISHED = -1


class Held:
    """The update under way, which goes on when the test says so."""

    def __init__(self) -> None:
        self.steps = 0
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()


@pytest.fixture
async def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Every step lets others have their turn, and half way the update stops until it is told to go on."""
    held = Held()
    sleep, in_steps = asyncio.sleep, Engine.update_in_steps

    def count_steps(engine: Engine, command: UpdateConfiguration, now_ns: int) -> Any:
        held.steps = 0
        steps = in_steps(engine, command, now_ns)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                held.steps = FINISHED
                return end.value
            held.steps += 1
            yield

    async def pause(delay: float) -> None:
        if held.steps == 300 and not held.go_on.is_set():
            held.held.set()
            await held.go_on.wait()
        await sleep(delay)

    monkeypatch.setattr(engine_driver, "STEP_S", 0.0)
    monkeypatch.setattr(Engine, "update_in_steps", count_steps)

    class Pausing:
        def __getattr__(self, name: str) -> Any:
            return pause if name == "sleep" else getattr(asyncio, name)

    monkeypatch.setattr(engine_driver, "asyncio", Pausing())
    return held


@pytest.fixture
async def core(held: Held) -> AsyncIterator[Core]:
    async with running_core() as core:
        await core.register(config=MANY)
        yield core


def update(core: Core, text: str) -> Any:
    request = configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=text)
    return ConfigurationServiceStub(core.channel).UpdateConfiguration(request, timeout=PATIENCE_S)


async def status(core: Core) -> GetStatusResponse:
    request = GetStatusRequest(audit=True)
    return await StatusServiceStub(core.channel).GetStatus(request, timeout=PATIENCE_S)


async def test_what_comes_meanwhile_is_decided_under_the_new_configuration(core: Core, held: Held) -> None:
    """Asks and applications wait; scrapes and lists are answered; questions and status wait for the end."""
    async with open_streams(core) as (nodes, applications, allocations):
        await nodes.send(node_request(create("n1", vcore=10)))
        await nodes.receive()
        updating = asyncio.ensure_future(update(core, LIMITED))
        await asyncio.wait_for(held.held.wait(), PATIENCE_S)
        await applications.send(application_request("app", queue="root.q7"))
        await allocations.send(allocation_request(ask("t1", vcore=1), ask("t2", vcore=1)))
        assert core.server.metrics.render().count(b"yunikorn_queue") > 1
        what_if = explain_pb2.WhatIfRequest(ask=explain_pb2.SupposedAsk(queue="root.q7", resources={"vcore": 1}))
        asking = asyncio.ensure_future(ExplainServiceStub(core.channel).WhatIf(what_if, timeout=PATIENCE_S))
        looking = asyncio.ensure_future(status(core))
        drain = admin_pb2.DrainNodeRequest(node_id="n1")
        draining = asyncio.ensure_future(AdminServiceStub(core.channel).DrainNode(drain, timeout=PATIENCE_S))
        await core.settle()
        assert not any(task.done() for task in (updating, asking, looking, draining))
        held.go_on.set()
        assert (await updating).version == 2
        assert (await applications.receive()).accepted[0].applicationID == "app"
        await asking
        assert (await draining).changed
        assert [part.invariant_violations for part in (await looking).partitions] == [0]
        now = await status(core)
        assert [part.invariant_violations for part in now.partitions] == [0]
        assert now.configuration_version == 2


async def test_whoever_brought_it_and_goes_away_leaves_it_whole(core: Core, held: Held) -> None:
    updating = asyncio.ensure_future(update(core, LIMITED))
    await asyncio.wait_for(held.held.wait(), PATIENCE_S)
    updating.cancel()
    unregister = manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1")
    manager = ManagerServiceStub(core.channel)
    ending = asyncio.ensure_future(manager.UnregisterResourceManager(unregister, timeout=PATIENCE_S))
    await core.settle()
    assert not ending.done()
    held.go_on.set()
    await ending
    await core.register(config=MANY)
    assert [part.invariant_violations for part in (await status(core)).partitions] == [0]


async def test_a_rollback_waits_for_the_update_before_it(core: Core, held: Held) -> None:
    updating = asyncio.ensure_future(update(core, LIMITED))
    await asyncio.wait_for(held.held.wait(), PATIENCE_S)
    request = configuration_pb2.RollbackConfigurationRequest(version=1)
    rolling = asyncio.ensure_future(
        ConfigurationServiceStub(core.channel).RollbackConfiguration(request, timeout=PATIENCE_S)
    )
    await core.settle()
    assert not rolling.done()
    held.go_on.set()
    assert (await updating).version == 2
    assert (await rolling).version == 3
    text = await ConfigurationServiceStub(core.channel).GetConfiguration(
        configuration_pb2.GetConfigurationRequest(), timeout=PATIENCE_S
    )
    assert text.config == MANY


async def test_a_core_that_ends_meanwhile_finishes_the_update(core: Core, held: Held) -> None:
    updating = asyncio.ensure_future(update(core, LIMITED))
    await asyncio.wait_for(held.held.wait(), PATIENCE_S)
    stopping = asyncio.ensure_future(core.server.stop())
    await core.settle()
    held.go_on.set()
    await stopping
    await until(updating.done, "the caller to be answered")
    assert updating.exception() is None or isinstance(updating.exception(), grpc.aio.AioRpcError)
    assert held.steps == FINISHED
