"""What a core puts up with: bytes that mean nothing, floods, and clients that come and go by the thousand.

One core in a process of its own serves all these tests, and one shim stays connected to it all the time. After every
attack each of that shim's streams, never reopened, is still answered, and health is SERVING.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from kornel.si.v1 import si_pb2 as si
from tests.e2e import raw_http2 as h2
from tests.e2e.bystander import Bystander
from tests.e2e.harness import Conversation, node_request, release_request
from tests.e2e.test_command import serving
from tests.patience import PATIENCE_S
from tests.prepared import find_program
from tests.waiting import wait_until

OWN_FILES: Final = 3
"""Files that gRPC may open for itself meanwhile; every test leaves more connections behind than that, or none."""
TOLERANCE_MIB: Final = 128
"""What allocators may keep of memory that was freed, or give back: two messages of the largest size, in pieces."""
AROUND_THE_LIMIT: Final = [(60 << 20, grpc.StatusCode.OK), ((64 << 20) + 1, grpc.StatusCode.RESOURCE_EXHAUSTED)]

ALLOCATION = "/si.v1.Scheduler/UpdateAllocation"
NODE = "/si.v1.Scheduler/UpdateNode"
STREAMS = (ALLOCATION, "/si.v1.Scheduler/UpdateApplication", NODE)
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bystander]:
    with serving(tmp_path_factory.mktemp("core"), "--log-level", "error") as (process, address):
        bystander = Bystander(address, find_program(process.pid))
        yield bystander
        assert bystander.status().invariant_violations == 0
        bystander.close()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "Traceback" not in log


@pytest.fixture(autouse=True)
def unharmed(shim: Bystander) -> Iterator[None]:
    """Around each test: the bystander is served before and after, and connections are closed."""
    shim.works()
    open_before = shim.connections()
    yield
    wait_until(
        lambda: shim.connections() <= open_before + OWN_FILES,
        lambda: f"the last {shim.connections() - open_before} connections to be closed",
    )
    # The core has seen the attackers go; a call takes its turn after what that left to be done.
    shim.status()
    shim.works()


def started(path: str = ALLOCATION) -> bytes:
    """A connection whose first stream has just begun a call of *path*."""
    return h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers(path))


def data(payload: bytes, flags: int = h2.END_STREAM) -> bytes:
    return h2.frame(h2.DATA, flags, 1, payload)


ENDED_WELL: Final = b"grpc-status\x010"
"""How the trailers of a call say OK."""

GOOD: Final = si.AllocationRequest(rmID="rm-1").SerializeToString()

BYTES: Final = {
    "nothing at all": b"",
    "a request of an older protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "noise": bytes(range(256)) * 64,
    "half a preface": h2.PREFACE[:10],
    "a preface, then noise": h2.PREFACE + bytes(range(255, -1, -1)) * 16,
    "a frame header cut off": started() + h2.frame(h2.DATA, 0, 1, b"abc")[:5],
    "a frame cut off": started() + h2.frame(h2.DATA, 0, 1, h2.message(GOOD), length=4_000),
    "a frame larger than allowed": started() + h2.frame(h2.DATA, 0, 1, b"", length=(1 << 24) - 1),
    "data on a stream that never began": h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.DATA, 0, 7, b"abc"),
    "headers that are no headers": (
        h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff" * 64)
    ),
    "headers that go on for ever": (
        h2.PREFACE
        + h2.frame(h2.SETTINGS, 0, 0)
        + h2.frame(h2.HEADERS, 0, 1, h2.headers(ALLOCATION))
        + h2.frame(h2.CONTINUATION, 0, 1, b"\x00\x01x\x7e" + b"y" * 126) * 2_000
    ),
    "a message cut off": started() + data(h2.message(GOOD, length=1_000)),
    "a message prefix cut off": started() + data(b"\x00\x00"),
    "a message of 4 GiB": started() + data(h2.message(GOOD, length=0xFFFF_FFFF), flags=0),
    "a compressed message that is not compressed": started() + data(h2.message(GOOD, compressed=1)),
    "a message flag that does not exist": started() + data(h2.message(GOOD, compressed=77)),
    "a call of nothing": started("/") + data(h2.message(GOOD)),
    "a call of an unknown method": started("/si.v1.Scheduler/Nothing") + data(h2.message(GOOD)),
    "a stream that is reset": started() + h2.frame(h2.RST_STREAM, 0, 1, b"\x00\x00\x00\x08"),
    "a window that overflows": started() + h2.frame(h2.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff") * 2,
}


def test_bytes_that_are_no_requests(shim: Bystander) -> None:
    """Whatever comes over a socket, the core refuses it, hangs up on it or waits for more; nothing of it ends well."""
    with ThreadPoolExecutor(len(BYTES)) as attackers:
        heard = dict(zip(BYTES, attackers.map(partial(h2.say, shim.address), BYTES.values()), strict=True))
    # gRPC itself lets a call that ends within a message end as if it had ended before it.
    assert {what for what, answer in heard.items() if ENDED_WELL in answer} <= {
        "a message cut off",
        "a message prefix cut off",
    }


def test_the_raw_client_could_speak_properly(shim: Bystander) -> None:
    """The same bytes without the mistake are a call that ends well: the mistakes are what is refused above."""
    heard = h2.say(shim.address, started() + data(h2.message(GOOD)), patience_s=PATIENCE_S, awaited=ENDED_WELL)
    assert ENDED_WELL in heard


async def test_garbage_on_every_stream_at_once(shim: Bystander) -> None:
    """Bytes that are no message end their own stream INVALID_ARGUMENT, on every kind, dozens at a time."""

    async def one(channel: grpc.aio.Channel, method: str, raw: bytes) -> grpc.StatusCode:
        talk = Conversation(channel.stream_stream(method)())
        await talk.send(raw)
        code, _ = await talk.end()
        return code

    async with grpc.aio.insecure_channel(shim.address) as channel:
        raws = (b"\xff" * 9, b"\x00", b"\x0a\x7fshort", b"\x12\x02\xff\xfe")
        for raw in raws * 6:  # No more at once than a connection may have.
            codes = await asyncio.gather(*(one(channel, method, raw) for method in STREAMS for _ in range(8)))
            assert set(codes) == {grpc.StatusCode.INVALID_ARGUMENT}


@pytest.mark.long
async def test_a_hundred_thousand_tiny_messages(shim: Bystander) -> None:
    """All of them are taken, while the bystander is served; those that mean nothing are counted, one by one."""
    count = 100_000
    before = shim.status().ignored["unknown-key"]
    release = si.AllocationRelease(applicationID="app", allocationKey="z", terminationType=si.TIMEOUT)
    raw = release_request(release).SerializeToString()

    def flood() -> None:
        with grpc.insecure_channel(shim.address) as channel:
            method: Any = channel.stream_stream(ALLOCATION)
            assert list(method(itertools.repeat(raw, count))) == []

    flooding = asyncio.create_task(asyncio.to_thread(flood))
    served = 0
    while not (await asyncio.wait({flooding}, timeout=0.25))[0]:
        await asyncio.to_thread(shim.works, allocations=False)
        served += 1
    await flooding
    assert served > 1
    assert shim.status().ignored["unknown-key"] == before + count


@pytest.mark.parametrize(("size", "code"), AROUND_THE_LIMIT)
def test_messages_around_the_limit(shim: Bystander, size: int, code: grpc.StatusCode) -> None:
    """60 MiB are taken, and more than 64 MiB end their stream."""
    send_large_messages(shim, size, code, 3)


@pytest.mark.long
@pytest.mark.parametrize(("size", "code"), AROUND_THE_LIMIT)
def test_large_messages_do_not_stay_in_memory(shim: Bystander, size: int, code: grpc.StatusCode) -> None:
    """Neither those that are taken nor those that are refused: many take no more memory than a few."""
    send_large_messages(shim, size, code, 3)
    memory_mib = shim.memory_mib()
    send_large_messages(shim, size, code, 9)
    wait_until(
        lambda: shim.memory_mib() <= memory_mib + TOLERANCE_MIB,
        lambda: f"memory to fall from {shim.memory_mib():.0f} to {memory_mib:.0f} MiB",
    )


def send_large_messages(shim: Bystander, size: int, code: grpc.StatusCode, count: int) -> None:
    """Sends *count* messages of *size* bytes, each on a stream of its own, which must end with *code*."""
    padding = bytes([0xD2, 0xFC, 0x0F]) + _varint(size) + bytes(size)
    with grpc.insecure_channel(shim.address, OPTIONS) as channel:
        method: Any = channel.stream_stream(ALLOCATION)
        for _ in range(count):

            def requests() -> Iterator[bytes]:
                # Of somebody unknown nobody takes so much: the stream is bound first.
                yield GOOD
                shim.works(allocations=False)
                yield GOOD + padding

            call = method(requests())
            with suppress(grpc.RpcError):
                assert list(call) == []
            assert call.code() is code


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


async def test_a_thousand_streams_opened_and_dropped(shim: Bystander) -> None:
    """Streams of the same manager that vanish, bound or not, take nothing with them."""
    requests = (GOOD, si.ApplicationRequest(rmID="rm-1").SerializeToString(), node_request().SerializeToString())

    async def one(channel: grpc.aio.Channel, number: int) -> None:
        call: Any = channel.stream_stream(STREAMS[number % 3])()
        # gRPC may refuse more streams of a client that drops so many.
        with suppress(grpc.aio.AioRpcError):
            if number % 4:
                await call.write(requests[number % 3])
            else:
                await call.wait_for_connection()
        call.cancel()

    for batch in range(10):
        async with grpc.aio.insecure_channel(shim.address) as channel:
            await asyncio.gather(*(one(channel, batch * 100 + number) for number in range(100)))
