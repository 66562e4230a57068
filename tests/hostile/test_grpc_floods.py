"""Floods and bombs on the gRPC port: frames, headers, messages, watches, and readers that never read."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2

from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2
from tests.e2e import raw_http2 as h2
from tests.e2e.harness import application_request, resource
from tests.hostile.attacked import AttackedCore, attacked_core

ALLOCATION: Final = "/si.v1.Scheduler/UpdateAllocation"
GREETING: Final = h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0)
PRIORITY: Final = 0x2
OPTIONS: Final = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]

SECONDS: Final = 3.0
"""How long a flood lasts, unless the core ends it."""
MOST_BYTES: Final = 1 << 30


def call(number: int) -> bytes:
    return h2.frame(h2.HEADERS, h2.END_HEADERS, number, h2.headers(ALLOCATION))


def integer(number: int, bits: int) -> bytes:
    """As HPACK writes it after flags of 0."""
    most = (1 << bits) - 1
    return bytes([number]) if number < most else bytes([most]) + varint(number - most)


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def each(frames: Callable[[int], bytes]) -> Iterator[bytes]:
    """*frames* for each number that a client's stream may have, a hundred streams at a time."""
    for first in itertools.count(3, 200):
        yield b"".join(frames(number) for number in range(first, first + 200, 2))


BLOCK: Final = b"\x00\x01x\x7e" + b"y" * 126
"""One header that is remembered nowhere."""
KEPT: Final = b"\x40\x01b" + integer(4_000, 7) + b"z" * 4_000
"""One header that is remembered, and named again by a single byte."""

FLOODS: Final[dict[str, tuple[bytes, Callable[[], Iterable[bytes]]]]] = {
    "settings": (b"", lambda: itertools.repeat(h2.frame(h2.SETTINGS, 0, 0) * 2_000)),
    "long settings": (
        b"",
        lambda: itertools.repeat(h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 1, 0) * 2_000) * 10),
    ),
    "window updates": (call(1), lambda: itertools.repeat(h2.frame(h2.WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * 2_000)),
    "priorities": (b"", lambda: itertools.repeat(h2.frame(PRIORITY, 0, 1, b"\0\0\0\0\1") * 2_000)),
    "frames of no kind": (b"", lambda: itertools.repeat(h2.frame(0x77, 0, 0, b"x" * 16_000) * 50)),
    "empty data": (call(1), lambda: itertools.repeat(h2.frame(h2.DATA, 0, 1) * 2_000)),
    "headers without end": (
        h2.frame(h2.HEADERS, 0, 1, h2.headers(ALLOCATION)),
        lambda: itertools.repeat(h2.frame(h2.CONTINUATION, 0, 1, BLOCK * 120) * 20),
    ),
    "empty continuations": (
        h2.frame(h2.HEADERS, 0, 1, h2.headers(ALLOCATION)),
        lambda: itertools.repeat(h2.frame(h2.CONTINUATION, 0, 1) * 2_000),
    ),
    "headers to remember, without end": (
        h2.frame(h2.HEADERS, 0, 1, h2.headers(ALLOCATION)),
        lambda: (
            h2.frame(
                h2.CONTINUATION, 0, 1, b"".join(b"\x40\x08%08d\x64" % (n * 130 + i) + b"y" * 100 for i in range(130))
            )
            for n in itertools.count()
        ),
    ),
    "one header without end": (
        h2.frame(h2.HEADERS, 0, 1, h2.headers(ALLOCATION) + b"\x00\x01x" + integer(1 << 28, 7)),
        lambda: itertools.repeat(h2.frame(h2.CONTINUATION, 0, 1, b"y" * 16_000) * 50),
    ),
    "trailers without end": (
        call(1) + h2.frame(h2.HEADERS, h2.END_STREAM, 1),
        lambda: itertools.repeat(h2.frame(h2.CONTINUATION, 0, 1, BLOCK * 120) * 20),
    ),
    "calls": (b"", lambda: each(call)),
    "calls with long headers": (
        b"",
        lambda: each(lambda n: h2.frame(h2.HEADERS, h2.END_HEADERS, n, h2.headers(ALLOCATION) + BLOCK * 50)),
    ),
    "calls dropped at once": (
        b"",
        lambda: each(lambda n: call(n) + h2.frame(h2.RST_STREAM, 0, n, b"\0\0\0\x08")),
    ),
}


def connected(core: AttackedCore) -> socket.socket:
    host, _, port = core.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=1)


def pour(connection: socket.socket, pieces: Iterable[bytes]) -> int:
    """Send *pieces*, reading nothing, until the core hangs up or takes no more. The bytes sent."""
    sent, deadline = 0, time.monotonic() + SECONDS
    with suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
            if sent > MOST_BYTES or time.monotonic() > deadline:
                break
    return sent


@pytest.mark.parametrize("name", FLOODS)
def test_floods_of_frames(core: AttackedCore, name: str) -> None:
    """Whatever frames come without end, they cost little and end soon, one connection after the other."""
    first, pieces = FLOODS[name]
    with core.attack(), ExitStack() as held:
        # Headers of a client that confirms no settings are kept, up to 16 MiB, until it is cut; glibc keeps the room.
        for _ in range(1 if "headers" in name else 3):
            connection = held.enter_context(connected(core))
            with suppress(OSError):
                connection.sendall(GREETING + first)
            pour(connection, pieces())


def test_pings(core: AttackedCore) -> None:
    """A ping costs gRPC thirty microseconds, so a flood of them costs more processor time than other bytes."""
    with core.attack(processor_s=4), connected(core) as connection:
        connection.sendall(GREETING)
        pour(connection, itertools.repeat(h2.frame(h2.PING, 0, 0, b"x" * 8) * 2_000))


BOMBS: Final = {
    "long headers": (KEPT, 14_000),
    "headers within the limit": (KEPT, 1_000),
    "empty headers": (b"\x40\x01b\x00", 60_000),
    "many empty headers": (b"\x40\x01b\x00", 480_000),
    "headers without end": (b"\x40\x01b\x00", 0),
}
"""A header to be kept, and how often each call names it again; 0: one call, without end."""


def bombs(kind: str) -> Iterator[bytes]:
    """Calls whose headers mean up to four thousand times their bytes, and take 64 bytes of memory for each of one."""
    first, times = BOMBS[kind]
    if not times:
        yield h2.frame(h2.HEADERS, 0, 1, h2.headers(ALLOCATION) + first)
        yield from itertools.repeat(h2.frame(h2.CONTINUATION, 0, 1, b"\xbe" * 16_000))
    yield h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers(ALLOCATION) + first)
    for number in itertools.count(3, 2):
        block = h2.headers(ALLOCATION) + b"\xbe" * times
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        kinds = [h2.HEADERS] + [h2.CONTINUATION] * (len(pieces) - 1)
        ends = [0] * (len(pieces) - 1) + [h2.END_HEADERS]
        yield b"".join(h2.frame(*each[:2], number, each[2]) for each in zip(kinds, ends, pieces, strict=True))


def put_up_with(attack: Any, connections: int) -> Any:
    """The bounds of headers that unfold: what gRPC has written out before anybody can look cannot be had smaller."""
    if connections == 1:
        return attack(memory_mib=192, health_s=2.5, processor_s=3)
    return attack(memory_mib=768, health_s=10.5, processor_s=6)


@pytest.mark.parametrize("kind", BOMBS)
def test_headers_that_unfold(core: AttackedCore, kind: str) -> None:
    """By a client that confirms no settings, which may do so for five seconds: its connection is cut."""
    with put_up_with(core.attack, connections=1), connected(core) as connection:
        connection.sendall(GREETING)
        assert pour(connection, bombs(kind)) < 16 << 20


@pytest.mark.parametrize("kind", BOMBS)
def test_headers_that_unfold_over_many_connections(core: AttackedCore, kind: str) -> None:
    def attack() -> None:
        with suppress(OSError), connected(core) as connection:
            connection.sendall(GREETING)
            pour(connection, bombs(kind))

    with put_up_with(core.attack, connections=16):
        attackers = [threading.Thread(target=attack) for _ in range(16)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()


EMPTY: Final = {
    "allocations": (ALLOCATION, b"\x22\x00"),
    "asks": (ALLOCATION, b"\x0a\x00"),
    "releases": (ALLOCATION, b"\x12\x02\x0a\x00"),
    "applications": ("/si.v1.Scheduler/UpdateApplication", b"\x0a\x00"),
    "removals": ("/si.v1.Scheduler/UpdateApplication", b"\x12\x00"),
    "nodes": ("/si.v1.Scheduler/UpdateNode", b"\x0a\x00"),
    "answers": ("/kornel.v1.CallbackService/Attach", b"\x12\x00"),
    "settings of a manager": ("/si.v1.Scheduler/RegisterResourceManager", b"\x32\x00"),
    "settings": ("/kornel.v1.ConfigurationService/UpdateConfiguration", b"\x2a\x00"),
    "filters": ("/kornel.v1.EventService/WatchEvents", b"\x0a\x00"),
    "questions": ("/kornel.v1.StatusService/GetStatus", b"\x0a\x00"),
    "what-ifs": ("/kornel.v1.ExplainService/WhatIf", b"\x0a\x00"),
    "lists": ("/kornel.v1.ReadService/ListApplications", b"\x0a\x00"),
    "histories": ("/kornel.v1.HistoryService/ListEvents", b"\x0a\x00"),
    "drains": ("/kornel.v1.AdminService/DrainNode", b"\x0a\x00"),
    "ends": ("/kornel.v1.ManagerService/UnregisterResourceManager", b"\x0a\x00"),
    "healths": ("/grpc.health.v1.Health/Check", b"\x0a\x00"),
    "reflections": ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"\x0a\x00"),
}


def end_of(
    channel: grpc.Channel,
    method: str,
    *requests: bytes,
    timeout_s: float = 30,
    metadata: Sequence[tuple[str, str]] = (),
) -> grpc.StatusCode:
    """How a call of *method* ends that sends *requests*; what it is answered is thrown away."""
    stream: Any = channel.stream_stream(method)
    calling = stream(iter(requests), timeout=timeout_s, metadata=metadata)
    with suppress(grpc.RpcError):
        for _ in calling:
            pass
    code: grpc.StatusCode = calling.code()
    return code


@pytest.mark.parametrize("name", EMPTY)
def test_ten_million_empty_entries(core: AttackedCore, name: str) -> None:
    """20 MB of them by somebody who is no resource manager."""
    method, entry = EMPTY[name]
    raw = entry * (20_000_000 // len(entry))
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(refused_bytes=len(raw)):
        assert end_of(channel, method, raw) is not grpc.StatusCode.OK


@pytest.mark.parametrize("name", ["allocations", "asks", "releases", "applications", "removals", "nodes", "answers"])
def test_as_many_empty_entries_as_a_stranger_may_send(core: AttackedCore, name: str) -> None:
    """3 MB, which arrive whole: counted and refused, or read and refused one by one."""
    method, entry = EMPTY[name]
    raw = entry * (3_000_000 // len(entry))
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(refused_bytes=len(raw)):
        assert end_of(channel, method, raw) is not grpc.StatusCode.OK


def test_ten_million_empty_entries_by_the_manager(core: AttackedCore) -> None:
    """Whose stream was accepted may send messages of 64 MiB: they cost what they weigh, three times, and no more."""
    name = si.AllocationRequest(rmID="rm-1").SerializeToString()
    raw = name + b"\x22\x00" * 19_000_000
    with grpc.insecure_channel(core.address, OPTIONS) as channel:

        def requests() -> Iterator[bytes]:
            yield name
            core.serves_bystander(allocations=False)
            yield raw

        with core.attack(refused_bytes=len(raw), memory_mib=128, health_s=0.5):
            stream: Any = channel.stream_stream(ALLOCATION)
            calling = stream(requests(), timeout=30)
            with suppress(grpc.RpcError):
                list(calling)
            assert calling.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def nested(depth: int, tag: int = 1) -> bytes:
    raw = b""
    for _ in range(depth):
        raw = bytes([tag << 3 | 2]) + varint(len(raw)) + raw
    return raw


@pytest.mark.parametrize("name", EMPTY)
def test_deep_nesting(core: AttackedCore, name: str) -> None:
    """A message in a message, 10,000 deep; and groups, which no interface has, as deep."""
    method, _ = EMPTY[name]
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack():
        for tag in (1, 2, 4, 15):
            end_of(channel, method, nested(10_000, tag), timeout_s=1)  # Some are watches, and stay open.
        end_of(channel, method, b"\x7b" * 30_000, timeout_s=1)
        end_of(channel, method, b"\x7b" * 100_000, timeout_s=1)


NUMBERS: Final = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1)


def test_extremes_of_every_number(core: AttackedCore) -> None:
    """Sizes, priorities, times and counts at both ends of what a field holds."""
    rm_id = "rm-1"
    clipped = [max(-(2**31), min(2**31 - 1, number)) for number in NUMBERS]
    allocations = si.AllocationRequest(
        rmID=rm_id,
        allocations=[
            si.Allocation(
                allocationKey=f"extreme-{number}-{small}",
                applicationID="app",
                priority=small,
                resourcePerAlloc=resource(vcore=number),
                allocationTags={"creationTime": str(number)},
            )
            for number in NUMBERS
            for small in clipped
        ],
        asks=[
            si.AllocationAsk(
                allocationKey=f"older-{number}",
                applicationID="app",
                maxAllocations=number,
                priority=number,
                resourceAsk=resource(vcore=2**62),
            )
            for number in clipped
        ],
    )
    nodes = si.NodeRequest(
        rmID=rm_id,
        nodes=[
            si.NodeInfo(nodeID=f"extreme-{n}", action=n % 7, schedulableResource=resource(vcore=n)) for n in NUMBERS
        ],  # type: ignore[arg-type]
    )
    applications = application_request("extreme")
    applications.new[0].executionTimeoutMilliSeconds = 2**63 - 1
    answers = [
        callback_pb2.AttachRequest(subscription=callback_pb2.Subscription(rm_id=rm_id, timeout_ms=number))
        for number in NUMBERS
    ]
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(processor_s=3):
        end_of(channel, "/si.v1.Scheduler/UpdateNode", nodes.SerializeToString())
        end_of(channel, "/si.v1.Scheduler/UpdateApplication", applications.SerializeToString())
        end_of(channel, ALLOCATION, allocations.SerializeToString())
        for answer in answers:
            end_of(channel, "/kornel.v1.CallbackService/Attach", answer.SerializeToString())


def test_asks_that_mean_ten_thousand(core: AttackedCore) -> None:
    """Two hundred asks of 10,000 allocations each: a few are taken, the others are refused."""
    asks = [
        si.AllocationAsk(
            allocationKey=f"many-{number}",
            applicationID="app",
            maxAllocations=10_000,
            resourceAsk=resource(vcore=2**40),
        )
        for number in range(200)
    ]
    raw = si.AllocationRequest(rmID="rm-1", asks=asks).SerializeToString()
    # Ten thousand allocations are made in one go.
    with grpc.insecure_channel(core.address, OPTIONS) as channel, core.attack(processor_s=5, health_s=1.0):
        assert end_of(channel, ALLOCATION, raw) is grpc.StatusCode.OK


def test_messages_that_never_end(core: AttackedCore) -> None:
    """Forty streams, each in the middle of a message of 64 MiB."""
    numbers = range(1, 81, 2)
    prefix = struct.pack(">BI", 0, (64 << 20) - 8)
    with core.attack(), ExitStack() as held:
        for _ in range(8):
            connection = held.enter_context(connected(core))
            with suppress(OSError):
                connection.sendall(GREETING + b"".join(call(number) for number in numbers))
                connection.sendall(b"".join(h2.frame(h2.DATA, 0, number, prefix) for number in numbers))
            window = 65_535 - len(prefix) * len(numbers)
            pour(connection, (h2.frame(h2.DATA, 0, number, bytes(window // 50)) for number in numbers))


def test_connections_and_streams_that_say_nothing(core: AttackedCore) -> None:
    """100 connections with 200 streams each: more than are let in, and none of them is heard of again."""
    # A health check waits behind the 2,048 calls that 64 connections may begin at once, each of which is refused.
    with core.attack(processor_s=4, health_s=1.0), ExitStack() as held:
        for _ in range(100):
            with suppress(OSError):
                connection = held.enter_context(connected(core))
                connection.sendall(GREETING + b"".join(call(number) for number in range(1, 401, 2)))


def test_health_watches_with_long_names(core: AttackedCore) -> None:
    """2,000 watches of services with names of 50 KB."""
    with core.attack(processor_s=4), ExitStack() as held:
        for number in range(10):
            channel = held.enter_context(grpc.insecure_channel(core.address, OPTIONS))
            watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
            watches = []
            for turn in range(200):
                request = health_pb2.HealthCheckRequest(service=f"{number}-{turn}-{'x' * 50_000}")
                watches.append(watch(request.SerializeToString(), timeout=30))
            for watching in watches:
                with suppress(grpc.RpcError):
                    next(watching)
                assert watching.code() is not grpc.StatusCode.OK


def test_readers_that_never_read(core: AttackedCore) -> None:
    """Watches and dumps whose answers nobody takes: each is held up by itself."""

    def question(number: int, method: str) -> bytes:
        return h2.frame(h2.HEADERS, h2.END_HEADERS, number, h2.headers(method)) + h2.frame(
            h2.DATA, h2.END_STREAM, number, h2.message(b"")
        )

    methods = (
        "/grpc.health.v1.Health/Watch",
        "/kornel.v1.StatusService/GetStateDump",
        "/kornel.v1.StatusService/GetStatus",
        "/kornel.v1.EventService/WatchEvents",
        "/kornel.v1.ReadService/ListApplications",
    )
    with core.attack(processor_s=4), ExitStack() as held:
        for method in methods:
            connection = held.enter_context(connected(core))
            with suppress(OSError):
                connection.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
                connection.sendall(b"".join(question(number, method) for number in range(1, 181, 2)))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core that asks who calls; its bystander shows a token."""
    directory: Path = tmp_path_factory.mktemp("guarded")
    policy = directory / "security.yaml"
    policy.write_text("rules:\n  - who: [anonymous]\n    permissions: [read]\n", encoding="utf-8")
    with attacked_core(directory, "--security", str(policy), rest="off", open_=False) as attacked:
        yield attacked


def test_nothing_of_a_stranger_is_read(guarded: AttackedCore) -> None:
    """38 MB by somebody without a name are refused by who sends them, before any of it was read."""
    raw = b"\x22\x00" * 19_000_000
    before = guarded.memory_mib()
    with grpc.insecure_channel(guarded.address, OPTIONS) as channel:
        for method in (ALLOCATION, "/si.v1.Scheduler/UpdateNode", "/kornel.v1.CallbackService/Attach"):
            assert end_of(channel, method, raw) is grpc.StatusCode.UNAUTHENTICATED
    assert guarded.memory_mib() < before + 32
