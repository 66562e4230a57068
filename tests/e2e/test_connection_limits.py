"""What callers may have open, and how far ahead of the core a connection may be, with limits small enough to reach."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.core.service.calls import admission
from kornel.core.service.calls.admission import CallLimits, Refusal
from kornel.core.service.connections import connections
from kornel.core.service.connections.connections import Cause, ConnectionLimits
from kornel.core.service.connections.limits import CONFIGURATION_LIMIT, NAME_LIMIT, QUESTION_LIMIT
from kornel.core.service.machine.own_sockets import OwnSockets, host_and_port
from kornel.si.v1 import si_pb2 as si
from tests.e2e import raw_http2 as h2
from tests.e2e.harness import CONFIG, Conversation, Core, create, node_request, running_core
from tests.e2e.test_transport import refused
from tests.patience import PATIENCE_S
from tests.waiting import until

Code = grpc.StatusCode


async def healthy(core: Core) -> bool:
    health: Any = HealthStub(core.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def comes_back(core: Core) -> None:
    """Returns once the core says that it is healthy, over another connection if this one is cut meanwhile."""

    async def is_healthy() -> bool:
        with suppress(grpc.aio.AioRpcError):
            return await healthy(core)
        return False

    await until(is_healthy, "the core to be healthy")


async def test_a_connection_with_its_share_of_calls_gets_no_other_one() -> None:
    """Its calls are refused; a connection that has few is served all the same."""
    async with running_core(calls=CallLimits(calls=20, host_calls=8)) as core, AsyncExitStack() as open_:
        await core.register()
        streams: list[Conversation] = []
        async with grpc.aio.insecure_channel(core.address, options=[("grpc.use_local_subchannel_pool", 1)]) as greedy:
            for number in range(1, 13):
                call = greedy.stream_stream("/si.v1.Scheduler/UpdateNode")()
                stream = await open_.enter_async_context(Conversation.open(call))
                streams.append(stream)
                await until(lambda: core.server.admission.open == number or call.done(), "an answer")  # noqa: B023
                await stream.send(si.NodeRequest(rmID="rm-1").SerializeToString())
            assert [(await stream.end())[0] for stream in streams[-4:]] == [Code.RESOURCE_EXHAUSTED] * 4
            assert not any(stream.call.done() for stream in streams[:-4])
            assert await healthy(core)
            await core.serves()


async def test_who_says_nothing_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest call whose request has not come is ended for that of another connection."""
    monkeypatch.setattr(admission, "SILENT_S", 0.0)
    monkeypatch.setattr(admission, "_SHARE", 1)
    async with AsyncExitStack() as open_:
        core = await open_.enter_async_context(running_core(calls=CallLimits(calls=2, host_calls=2)))
        options = [("grpc.use_local_subchannel_pool", 1)]
        silent = await open_.enter_async_context(grpc.aio.insecure_channel(core.address, options=options))
        calls = [silent.stream_stream("/si.v1.Scheduler/UpdateNode")() for _ in range(2)]
        await until(lambda: core.server.admission.open == 2, "both to be open")
        assert await healthy(core)
        # Which of the two came first is gRPC's business.
        await until(lambda: any(call.done() for call in calls), "one of them to be ended")
        ended, left = sorted(calls, key=lambda call: not call.done())
        assert await ended.code() is Code.RESOURCE_EXHAUSTED
        assert not left.done()
        left.cancel()


async def test_a_silent_stream_of_a_resource_manager_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have nothing to say for hours, while strangers of its address open as many calls as they get."""
    monkeypatch.setattr(admission, "SILENT_S", 0.0)
    monkeypatch.setattr(admission, "_SHARE", 1)
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with running_core(calls=CallLimits(calls=4, host_calls=4)) as core, AsyncExitStack() as open_:
        await core.register()
        applications = await open_.enter_async_context(Conversation.open(core.scheduler.UpdateApplication()))
        await until(lambda: core.server.admission.open == 1, "the stream of the resource manager to be open")
        strangers = []
        for _ in range(6):
            channel = await open_.enter_async_context(grpc.aio.insecure_channel(core.address, options=options))
            strangers.append(channel.stream_stream("/grpc.health.v1.Health/Watch")())
            # The first fill what there is, and each of the others takes the place of one.
            await until(lambda: core.server.admission.open == min(4, 1 + len(strangers)), "the call to be open")
            ended = max(0, len(strangers) - 3)
            await until(lambda: sum(call.done() for call in strangers) == ended, "one to give way")  # noqa: B023
        assert not applications.call.done()
        await applications.send(si.ApplicationRequest(rmID="rm-1"))
        await applications.half_close()
        assert (await applications.end())[0] is Code.OK


@pytest.mark.parametrize(
    ("method", "most"),
    [
        ("/grpc.health.v1.Health/Check", NAME_LIMIT),
        ("/kornel.v1.StatusService/GetStatus", QUESTION_LIMIT),
        ("/kornel.v1.ConfigurationService/ValidateConfiguration", CONFIGURATION_LIMIT),
    ],
)
async def test_requests_of_one_message_are_bounded(method: str, most: int) -> None:
    """By what they are for: a question is short, a configuration is not."""
    async with running_core() as core:
        call: Any = core.channel.unary_unary(method)
        code, details = await refused(call(bytes(most + 1), timeout=PATIENCE_S))
        assert (code, f"at most {most:,}" in details) == (Code.RESOURCE_EXHAUSTED, True)
        assert await healthy(core)
        looks = core.server.connections._round
        await until(lambda: core.server.connections._round > looks + 20, "the keeper to look again")
        assert not core.server.connections.cuts, "what was read and refused is not ahead any more"


async def test_a_stranger_far_ahead_is_cut() -> None:
    """In the middle of a message that would be lawful; the resource manager's own connection goes on."""
    limits = ConnectionLimits(silent_bytes=10_000, stranger_bytes=40_000)
    async with running_core(connections=limits) as core:
        await core.register()
        async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(*(create(f"n{number}") for number in range(2_000))))
            assert len(await nodes.entries(2_000)) == 2_000
            with socket.create_connection(("127.0.0.1", int(core.address.rpartition(":")[2]))) as stranger:
                stranger.sendall(
                    h2.PREFACE
                    + h2.frame(h2.SETTINGS, 0, 0)
                    + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers("/si.v1.Scheduler/UpdateNode"))
                    + h2.frame(h2.DATA, 0, 1, struct.pack(">BI", 0, 1 << 20) + bytes(15_000))
                    + h2.frame(h2.DATA, 0, 1, bytes(16_000)) * 3
                )
                stranger.settimeout(PATIENCE_S)
                await asyncio.to_thread(drained, stranger)
            await until(lambda: core.server.connections.cut == 1, "the connection to be counted")
            await nodes.send(node_request(create("still")))
            assert (await nodes.receive()).accepted[0].nodeID == "still"


async def test_a_connection_without_a_call_is_cut_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENT_S", 0.1)
    async with running_core(connections=ConnectionLimits(silent_bytes=10_000)) as core:
        with socket.create_connection(("127.0.0.1", int(core.address.rpartition(":")[2]))) as stranger:
            stranger.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(0x77, 0, 0, bytes(16_000)))
            stranger.settimeout(PATIENCE_S)
            await asyncio.to_thread(drained, stranger)
        assert await healthy(core)


async def test_connections_of_one_address_are_counted() -> None:
    """As many are left as may be, once newcomers had their moment; whoever is cut without a call comes back."""
    async with running_core(connections=ConnectionLimits(host_connections=3)) as core:
        assert await healthy(core)
        await until(lambda: core.server.connections.open == 1, "the first connection to be seen")
        port = int(core.address.rpartition(":")[2])
        more = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        keeper = core.server.connections
        await until(lambda: keeper.cut >= 4 and keeper.open == 3, "four of them to be cut, more if one has come back")
        await comes_back(core)
        for connection in more:
            connection.close()


async def test_idle_connections_lock_nobody_out() -> None:
    """Several addresses have opened all there may be, and say nothing; newcomers and resource managers are served."""
    limits = ConnectionLimits(connections=8, host_connections=4)
    async with running_core(connections=limits) as core, AsyncExitStack() as open_:
        await core.register()
        host, _, port = core.address.rpartition(":")
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            for _ in range(4):
                idle = socket.create_connection((host, int(port)), source_address=(source, 0))
                open_.enter_context(idle).sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0))
        await until(lambda: core.server.connections.cut == 5, "those beyond the limit to be cut")
        for _ in range(6):
            await answers_a_newcomer(core)
        await core.serves()


async def test_idle_connections_lock_nobody_of_their_address_out() -> None:
    limits = ConnectionLimits(host_connections=4)
    async with running_core(connections=limits) as core, AsyncExitStack() as open_:
        await core.register()
        host, _, port = core.address.rpartition(":")
        for _ in range(4):
            idle = socket.create_connection((host, int(port)))
            open_.enter_context(idle).sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0))
        await until(lambda: core.server.connections.cut == 1, "the one beyond the limit to be cut")
        for _ in range(6):
            await answers_a_newcomer(core)
        await core.serves()


@pytest.mark.parametrize("sources", [("127.0.0.2", "127.0.0.3"), ("127.0.0.1", "127.0.0.1")], ids=["others", "its own"])
async def test_connections_with_a_call_each_lock_nobody_out(sources: Sequence[str]) -> None:
    """Strangers hold a call on each connection that there may be; newcomers and the resource manager are served."""
    limits = ConnectionLimits(connections=8, host_connections=8 if sources[0] == "127.0.0.1" else 4)
    async with running_core(connections=limits) as core, AsyncExitStack() as open_:
        await core.register()
        host, _, port = core.address.rpartition(":")
        watch = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers("/grpc.health.v1.Health/Watch"))
        for source in sources:
            for _ in range(4):
                stranger = socket.create_connection((host, int(port)), source_address=(source, 0))
                open_.enter_context(stranger)
                stranger.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.SETTINGS, 1, 0) + watch)
                stranger.sendall(h2.frame(h2.DATA, 0, 1, struct.pack(">BI", 0, 0)))
        await until(lambda: core.server.admission.open == 8, "all their calls to be open")
        for _ in range(6):
            await answers_a_newcomer(core)
        await core.serves()


async def answers_a_newcomer(core: Core) -> None:
    """Fails unless a client that has just connected is told that the core is healthy."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(core.address, options=options) as channel:
        health: Any = HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_connections_to_a_socket_file_are_counted(tmp_path: Path) -> None:
    """The newest of one process are cut; bytes are not counted there, so nobody is cut for those."""
    path = tmp_path / "core.sock"
    async with running_core(address=f"unix:{path}", connections=ConnectionLimits(host_connections=3)) as core:
        assert await healthy(core)
        await until(lambda: core.server.connections.open == 1, "the first connection to be seen")
        more = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        for connection in more:
            connection.connect(str(path))
        await until(lambda: core.server.connections.cuts == {Cause.MANY: 4}, "four of them to be cut")
        assert await healthy(core)
        for connection in more:
            connection.close()
        await core.register()
        await core.serves()
        await until(lambda: core.server.connections.open == 1, "the others to be forgotten")
        assert core.server.connections.cut == 4


async def test_memory_that_grows_by_headers_is_noticed_before_the_call_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes stand for many headers, in a block that does not end; a connection beside it goes on."""
    monkeypatch.setattr(connections, "UNPROVEN_BYTES", 1_000)
    async with running_core(connections=ConnectionLimits(unfolded_bytes=2 << 20)) as core:
        assert await healthy(core)
        with socket.create_connection(("127.0.0.1", int(core.address.rpartition(":")[2]))) as stranger:
            block = h2.headers("/si.v1.Scheduler/UpdateNode") + b"\x40\x01b\x00" + b"\xbe" * 8_000
            stranger.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.HEADERS, 0, 1, block))
            # 88 KB are too little to be cut for, if they did not take some 6 MB.
            stranger.sendall(h2.frame(h2.CONTINUATION, 0, 1, b"\xbe" * 16_000) * 5)
            stranger.settimeout(PATIENCE_S)
            await asyncio.to_thread(drained, stranger)
        await until(lambda: core.server.connections.cuts == {Cause.HEADERS: 1}, "the connection to be counted")
        assert await healthy(core)


async def test_a_connection_sends_little_ahead_until_it_is_a_managers() -> None:
    """What the system has taken is read even after the connection was cut."""
    async with running_core() as core:
        sockets = OwnSockets(core.address)

        def windows() -> list[int]:
            sizes = []
            for descriptor, _ in sockets.connections():
                with socket.socket(fileno=os.dup(descriptor)) as copy:
                    sizes.append(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP))
            return sizes

        assert await healthy(core)
        await until(lambda: windows() == [connections.UNPROVEN_WINDOW], "the connection to be held back")
        await core.register("rm-1")
        await until(lambda: windows()[0] > 4 * connections.UNPROVEN_WINDOW, "the manager's to be let go")


async def test_a_keeper_that_is_held_up_cuts_nobody_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds may pass between two lines of its look, while another thread has the interpreter."""
    passing = itertools.count(1_000.0, 1.0)
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: next(passing)))
    keeper = connections.ConnectionKeeper(ConnectionLimits(), structlog.get_logger())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        keeper._sockets, keeper._calm_bytes = OwnSockets(f"{host}:{port}"), keeper._memory.used_bytes()
        with socket.create_connection((host, port)) as client, listener.accept()[0]:
            keeper.begin_call(":".join(map(str, client.getsockname())))
            for _ in range(3):
                client.sendall(bytes(30_000))
                keeper._check_connections()
    assert not keeper.cuts


async def test_headers_within_the_limit_are_taken_every_time() -> None:
    """A token of a user with many groups has 12 KB. gRPC refuses such headers by chance unless it is told not to."""
    async with running_core() as core:
        for number in range(40):
            token = f"Bearer {number}" + "x" * 12_000
            request = health_pb2.HealthCheckRequest()
            check: Any = HealthStub(core.channel).Check  # type: ignore[attr-defined]
            await check(request, metadata=(("authorization", token),), timeout=PATIENCE_S)


async def test_a_service_that_is_not_ours_refuses_too_long_requests_as_ours_do() -> None:
    """Reflection is gRPC's own, which answers an error that it does not know with UNKNOWN and its text."""
    async with running_core() as core:
        ask: Any = core.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        call = ask(iter([bytes(QUESTION_LIMIT + 1)]), timeout=PATIENCE_S)
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "takes at most" in await call.details()


async def test_what_was_refused_is_counted() -> None:
    async with running_core(calls=CallLimits(calls=20, host_calls=20)) as core:
        ask: Any = core.channel.unary_unary("/kornel.v1.StatusService/GetStatus")
        await refused(ask(bytes(QUESTION_LIMIT + 1), timeout=PATIENCE_S))
        await refused(ask(b"\xff", timeout=PATIENCE_S))
        await until(lambda: core.server.admission.open == 0, "the calls to end")
        assert core.server.admission.refused == {Refusal.TOO_MUCH: 1, Refusal.INVALID: 1}
        text = b"".join(core.server.metrics.render_pieces()).decode()
        assert 'kornel_calls_refused_total{reason="too-much"} 1.0' in text
        assert 'kornel_connections_cut_total{reason="headers"} 0.0' in text


async def test_headers_by_a_client_that_confirms_no_settings() -> None:
    """gRPC lets through what it was told to refuse; the connection is cut."""
    async with running_core() as core:
        with socket.create_connection(("127.0.0.1", int(core.address.rpartition(":")[2]))) as stranger:
            kept = b"\x40\x01b\x7f\xa1\x1e" + b"z" * 4_000
            block = h2.headers("/si.v1.Scheduler/UpdateNode") + kept + b"\xbe" * 100
            stranger.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block))
            stranger.settimeout(PATIENCE_S)
            await asyncio.to_thread(drained, stranger)
        assert await healthy(core)


async def test_registering_makes_a_connection_the_managers() -> None:
    """Long requests may follow on it, whenever the next stream begins."""
    async with running_core(connections=ConnectionLimits(stranger_bytes=1 << 20)) as core:
        await core.register(config=CONFIG)
        await until(lambda: core.server.connections.open == 1, "the connection to be seen")
        padded = [create(f"n{number}") for number in range(8)]
        for node in padded:
            node.attributes["padding"] = "x" * 1_000_000
        async with Conversation.open(core.scheduler.UpdateNode()) as nodes:
            await nodes.send(node_request(*padded))
            assert len(await nodes.entries(8)) == 8
        assert core.server.connections.cut == 0


def drained(connection: socket.socket) -> None:
    """Read until the other side hangs up."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1:4711"),
        ("ipv6:%5B::1%5D:80", "::1:80"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:80", "10.0.0.1:80"),
        ("unix:", "unix:"),
    ],
)
def test_names_of_peers(peer: str, name: str) -> None:
    """As the kernel has them, so that a call finds its connection."""
    assert host_and_port(peer) == name


async def test_compressed_requests_are_refused() -> None:
    """A few bytes could stand for many megabytes, which nobody has counted yet."""
    async with (
        running_core() as core,
        grpc.aio.insecure_channel(core.address, compression=grpc.Compression.Gzip) as squeezing,
    ):
        code, details = await refused(
            squeezing.unary_unary("/kornel.v1.StatusService/GetStatus")(bytes(1_000), timeout=PATIENCE_S)
        )
        assert (code, "disabled" in details) == (Code.UNIMPLEMENTED, True)
        assert await healthy(core)


async def test_connections_are_looked_at_only_while_something_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking twenty times a second would be most of what an idle core costs; bytes that come end the rest at once."""
    monkeypatch.setattr(connections, "_others_s", lambda: 0.0)
    monkeypatch.setattr(connections, "RESTING_S", 3_600.0)
    monkeypatch.setattr(connections, "RESTING_PAUSE_S", 60.0)
    monkeypatch.setattr(connections, "NEW_S", 0.0)
    rests = threading.Event()
    wait_resting = connections._Bell.wait_resting

    def rest(bell: connections._Bell, pause_s: float) -> bool:
        rests.set()
        return wait_resting(bell, pause_s)

    monkeypatch.setattr(connections._Bell, "wait_resting", rest)
    keeper = connections.ConnectionKeeper(ConnectionLimits(), structlog.get_logger())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        # Accepted before the keeper rests, which may overlook somebody who connects.
        with socket.create_connection((host, port)) as client, listener.accept()[0]:
            keeper.start(f"{host}:{port}")
            try:
                await until(lambda: keeper.open == 1, "the connection to be seen")
                await until(rests.is_set, "nothing to move")
                for _ in range(3):
                    rests.clear()
                    looks = keeper._round
                    client.sendall(b"x")
                    await until(lambda before=looks: keeper._round > before, "a look")
                    await until(rests.is_set, "nothing to move")
            finally:
                keeper.stop()
