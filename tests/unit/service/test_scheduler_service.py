"""The streams of the scheduler service with a transport that fails when a test wants it to."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kornel.core.domain.commands import RegisterManager
from kornel.core.domain.effects import Effect, NodeAccepted
from kornel.core.process.history import ManagerHistory
from kornel.core.service.callbacks.callback_board import CallbackBoard
from kornel.core.service.configuration.configuring import Configurator
from kornel.core.service.configuration.judging import Judge
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.managers.managers import Lobby, Managers, Place
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.service.services import scheduler_service
from kornel.core.service.services.scheduler_service import SchedulerService
from kornel.core.service.streams.presence import PresenceKeeper
from kornel.core.service.streams.resuming import Kind
from kornel.core.service.streams.streams import Switchboard
from kornel.si.v1 import si_pb2 as si
from tests.patience import PATIENCE_S
from tests.unit.service.fakes import FakeEngine


class FakeContext:
    """Takes *room* messages, then fails like a broken connection."""

    def __init__(self, room: int) -> None:
        self.written: list[bytes] = []
        self._room = room

    def peer(self) -> str:
        return "ipv4:10.0.0.1:4711"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def write(self, raw: bytes) -> None:
        if len(self.written) == self._room:
            raise ConnectionError("gone")
        self.written.append(raw)


class Served:
    """A scheduler service whose calls are made by hand."""

    def __init__(self) -> None:
        self.metrics = ServiceMetrics()
        self.board = Switchboard(self.metrics)
        logger = build_logger(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
        clock = ManualClock()
        self.runner = PartitionRunner(
            FakeEngine(),
            self.board,
            clock=clock,
            metrics=self.metrics,
            logger=logger,
            garbage=GarbageKeeper(enabled=False),
        )
        callbacks = CallbackBoard(clock=clock, metrics=self.metrics, logger=logger)
        configurator = Configurator(
            self.runner,
            clock=clock,
            logger=logger,
            garbage=GarbageKeeper(enabled=False),
            judge=Judge({}, logger=logger),
        )
        managers = Managers(
            Place(self.runner, self.board, callbacks, PresenceKeeper(clock), configurator, print, ManagerHistory(None)),
            lobby=Lobby(Switchboard(self.metrics), callbacks),
            most=1,
            logger=logger,
        )
        lookups = GroupLookups({}, lambda _: "", clock=clock, metrics=self.metrics, logger=logger)
        service = SchedulerService(managers, lookups=lookups, metrics=self.metrics, logger=logger, clock=clock)
        self.update_node: Any = service.handlers()["UpdateNode"].stream_stream


async def bind_and_stay() -> AsyncIterator[bytes]:
    """Requests of a client that binds its stream and then only listens."""
    yield si.NodeRequest(rmID="rm-1").SerializeToString()
    await asyncio.Event().wait()


async def test_what_a_broken_connection_did_not_take_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries whose write failed are kept in order; those of the batch that were sent are not repeated (1.1)."""
    monkeypatch.setattr(scheduler_service, "RESPONSE_LIMIT", 10)
    served = Served()
    running = asyncio.create_task(served.runner.run())
    await served.runner.call(RegisterManager("rm-1"))
    effects: list[Effect] = [NodeAccepted(f"node-{n}") for n in range(4)]
    served.board.deliver_effects(effects)
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(served.update_node(bind_and_stay(), FakeContext(room=1)), PATIENCE_S)
    assert served.metrics.live_streams == 0
    assert served.metrics.streams_broken == 1
    following = served.board.open(Kind.NODE)
    served.board.bind(following, "rm-1")
    batch = served.board.take_batch(following)
    assert batch is not None
    assert batch.entries == effects[1:]
    served.runner.stop()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_a_response_too_large_for_the_transport_goes_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose entries are huge is cut until each message fits, in order and with nothing lost."""
    monkeypatch.setattr(scheduler_service, "RESPONSE_LIMIT", 100)
    served = Served()
    running = asyncio.create_task(served.runner.run())
    await served.runner.call(RegisterManager("rm-1"))
    names = [f"{n}-{'x' * (30 * n)}" for n in range(6)]
    effects: list[Effect] = [NodeAccepted(name) for name in names]
    served.board.deliver_effects(effects)

    async def bind_and_leave() -> AsyncIterator[bytes]:
        yield si.NodeRequest(rmID="rm-1").SerializeToString()

    context = FakeContext(room=100)
    await asyncio.wait_for(served.update_node(bind_and_leave(), context), PATIENCE_S)
    messages = [si.NodeResponse.FromString(raw) for raw in context.written]
    assert [entry.nodeID for message in messages for entry in message.accepted] == names
    assert all(message.ByteSize() <= 100 or len(message.accepted) == 1 for message in messages)
    served.runner.stop()
    await asyncio.wait_for(running, PATIENCE_S)
