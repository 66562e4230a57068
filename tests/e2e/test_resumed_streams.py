"""Streams that are opened with ``kornel-resume``, from the client's side, at a core without a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from kornel.core.service.streams import resuming
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import manager_pb2, manager_pb2_grpc
from tests.e2e.harness import (
    CONFIG,
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    keys,
    node_request,
    running_core,
)
from tests.patience import PATIENCE_S

SESSION = ("kornel-session", "one")


async def register(core: Core, session: str = "one") -> str:
    """Registers a manager. Returns the epoch that the core names."""
    call = core.scheduler.RegisterResourceManager(
        si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG),
        timeout=PATIENCE_S,
        metadata=(("kornel-session", session),),
    )
    await call
    return str(dict(await call.initial_metadata())["kornel-resume"])


async def prepare(core: Core) -> str:
    """Registers a manager that has a node and an application. Returns the epoch."""
    epoch = await register(core)
    async with Conversation.open(core.scheduler.UpdateNode(metadata=(SESSION,))) as nodes:
        await nodes.send(node_request(create("n1", vcore=10**9)))
        await nodes.receive()
    async with Conversation.open(core.scheduler.UpdateApplication(metadata=(SESSION,))) as applications:
        await applications.send(application_request("app"))
        await applications.receive()
    return epoch


@asynccontextmanager
async def resumed(core: Core, said: str, session: tuple[str, str] = SESSION) -> AsyncIterator[Conversation]:
    """A stream of allocations that is opened with *said*, and bound."""
    call = core.scheduler.UpdateAllocation(metadata=(session, ("kornel-resume", said)))
    async with Conversation.open(call) as stream:
        await stream.send(si.AllocationRequest(rmID="rm-1"))
        yield stream


async def greeting(stream: Conversation) -> str:
    """Returns what the core says first."""
    marks: Any = await asyncio.wait_for(stream.call.initial_metadata(), PATIENCE_S)
    return str(dict(marks)["kornel-resume"])


async def placed(stream: Conversation, count: int) -> list[str]:
    """Returns the keys of the next *count* entries, all of which are placements."""
    return keys(await stream.entries(count))


async def test_a_stream_goes_on_behind_what_was_received() -> None:
    """Whatever the client says it has, up to what was sent, the rest comes once; and it learns what was applied."""
    async with running_core() as core:
        epoch = await prepare(core)
        async with resumed(core, f"{epoch}/0") as first:
            assert await greeting(first) == f"{epoch}/0"
            for number in range(4):
                await first.send(allocation_request(ask(f"ask-{number}", vcore=1)))
                assert await placed(first, 1) == [f"ask-{number}"]
        # The client has lost the last two messages, although the transport had taken them.
        async with resumed(core, f"{epoch}/2") as second:
            assert await greeting(second) == f"{epoch}/4"
            await second.send(allocation_request(ask("ask-4", vcore=1)))
            assert await placed(second, 3) == ["ask-2", "ask-3", "ask-4"]
        async with resumed(core, f"{epoch}/5") as third:
            assert await greeting(third) == f"{epoch}/5"
            await third.send(allocation_request(ask("ask-5", vcore=1)))
            assert await placed(third, 1) == ["ask-5"]


async def test_what_was_acknowledged_is_not_kept() -> None:
    """An acknowledgement says what was applied, and lets the core forget what was received."""
    async with running_core() as core:
        epoch = await prepare(core)
        async with resumed(core, f"{epoch}/0") as stream:
            await stream.send(allocation_request(*(ask(f"ask-{number}", vcore=1) for number in range(3))))
            await placed(stream, 3)
            stub: Any = manager_pb2_grpc.ManagerServiceStub(core.channel)
            received = manager_pb2.StreamCounts(allocations=3)
            answer = await stub.Acknowledge(
                manager_pb2.AcknowledgeRequest(rm_id="rm-1", epoch=epoch, received=received), metadata=(SESSION,)
            )
            assert answer.applied == manager_pb2.StreamCounts(allocations=3)
        async with resumed(core, f"{epoch}/0") as again:
            code, details = await again.end()
            assert (code, details.partition(":")[0]) == (grpc.StatusCode.FAILED_PRECONDITION, "resync-required")


async def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has missed more than the core keeps has to register again, and is told so."""
    monkeypatch.setattr("kornel.core.service.streams.streams.KEPT_BYTES", 300)
    assert resuming.KEPT_BYTES > 300
    async with running_core() as core:
        epoch = await prepare(core)
        async with resumed(core, f"{epoch}/0") as stream:
            for number in range(8):
                await stream.send(allocation_request(ask(f"ask-{number}", vcore=1)))
                await placed(stream, 1)
        async with resumed(core, f"{epoch}/7") as late:
            assert await placed(late, 1) == ["ask-7"]
        async with resumed(core, f"{epoch}/1") as too_late:
            code, details = await too_late.end()
            assert (code, details.partition(":")[0]) == (grpc.StatusCode.FAILED_PRECONDITION, "resync-required")


@pytest.mark.parametrize(
    ("said", "session", "code"),
    [
        ("of-nobody.0/0", SESSION, grpc.StatusCode.FAILED_PRECONDITION),
        ("{epoch}/1", SESSION, grpc.StatusCode.FAILED_PRECONDITION),
        ("{token}.77/0", SESSION, grpc.StatusCode.FAILED_PRECONDITION),
        ("{epoch}", SESSION, grpc.StatusCode.INVALID_ARGUMENT),
        ("{epoch}/-1", SESSION, grpc.StatusCode.INVALID_ARGUMENT),
        ("{epoch}/0", ("x-nothing", "y"), grpc.StatusCode.INVALID_ARGUMENT),
        ("{epoch}/0", ("kornel-session", "two"), grpc.StatusCode.ABORTED),
    ],
)
async def test_a_stream_that_cannot_go_on_is_refused(
    said: str, session: tuple[str, str], code: grpc.StatusCode
) -> None:
    """A client that was never where it says it was does not get other entries instead."""
    async with running_core() as core:
        epoch = await prepare(core)
        token = epoch.partition(".")[0]
        async with resumed(core, said.format(epoch=epoch, token=token), session) as stream:
            assert (await stream.end())[0] is code


async def test_another_registration_begins_another_epoch() -> None:
    """Counts are of one registration; one that is over is known no more."""
    async with running_core() as core:
        before = await prepare(core)
        after = await register(core)
        assert after != before
        async with resumed(core, f"{before}/0") as old:
            assert (await old.end())[0] is grpc.StatusCode.FAILED_PRECONDITION
        async with resumed(core, f"{after}/0") as new:
            assert await greeting(new) == f"{after}/0"


async def test_the_stream_of_the_same_kind_that_was_open_ends() -> None:
    """A client that opens a stream again gets everything there, although the core has not noticed the break yet."""
    async with running_core() as core:
        epoch = await prepare(core)
        async with resumed(core, f"{epoch}/0") as first:
            await first.send(allocation_request(ask("ask-0", vcore=1)))
            assert await placed(first, 1) == ["ask-0"]
            async with resumed(core, f"{epoch}/0") as second:
                assert await placed(second, 1) == ["ask-0"]
                code, details = await first.end()
                assert (code, details.partition(":")[0]) == (grpc.StatusCode.ABORTED, "replaced")


async def test_a_stream_that_does_not_ask_is_served_as_ever() -> None:
    """Without the metadata a stream is not greeted, and gets what no other stream has taken."""
    async with running_core() as core:
        epoch = await prepare(core)
        async with resumed(core, f"{epoch}/0") as first:
            await first.send(allocation_request(ask("ask-0", vcore=1)))
            await placed(first, 1)
        async with Conversation.open(core.scheduler.UpdateAllocation(metadata=(SESSION,))) as plain:
            await plain.send(allocation_request(ask("ask-1", vcore=1)))
            assert await placed(plain, 1) == ["ask-1"]
            marks: Any = await plain.call.initial_metadata()
            assert "kornel-resume" not in dict(marks or ())
