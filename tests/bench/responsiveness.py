"""How long others wait while the core places P2: a health check, a stream with little to say, a page over HTTP.

Whoever waits runs in a process of its own, so that the burst's client does not make it wait. The core's event loop
is watched from inside, see ``watched_core``.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kornel.shim_mock.load.sending import Sender
from kornel.shim_mock.load.workload import Workload
from kornel.si.v1 import si_pb2, si_pb2_grpc
from tests.bench import processes
from tests.bench.core_process import RM, serve
from tests.bench.placing import P2_FLAT, connection, run, set_up, undisturbed
from tests.bench.table import Row, quantile
from tests.ports import reserve_port

PAUSE_S = 0.001
REST_PATH = "/ws/v1/partitions"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Milliseconds of each call while the burst lasted, and its rate of allocations per second.

    *late_ms*: how much later than asked for the caller itself got the processor back; no fault of the core.
    *stall_ms*: turns of the core's event loop, in wall time and in processor time.
    """

    late_ms: list[float]
    health_ms: list[float]
    stream_ms: list[float]
    rest_ms: list[float]
    stall_ms: list[float]
    stall_processor_ms: list[float]
    allocations_per_s: float


async def _measure(workload: Workload) -> Measurement:
    with tempfile.TemporaryDirectory() as scratch:
        stalls = Path(scratch, "stalls")
        rest = f"127.0.0.1:{reserve_port()}"
        async with (
            processes.serving("tests.bench.watched_core", str(stalls), *serve(rest=rest)) as (address, pid),
            connection(address) as channel,
        ):
            sender = Sender(channel, RM)
            await set_up(sender, workload)
            prober = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench.responsiveness", address, rest,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26,
            )  # fmt: skip
            assert prober.stdin is not None, "the prober was started with a pipe"
            assert prober.stdout is not None, "the prober was started with a pipe"
            await prober.stdout.readline()
            messages = list(workload.ask_messages(RM))
            os.kill(pid, signal.SIGUSR1)
            with undisturbed():
                rate = (await sender.place_asks(messages)).rate
            os.kill(pid, signal.SIGUSR2)
            prober.stdin.close()
            line = await prober.stdout.readline()
            status = await prober.wait()
            if not line:
                raise RuntimeError(f"the prober ended with status {status} before it said what its calls took")
            found = json.loads(line)
            seen = json.loads(await asyncio.to_thread(_written, stalls))
            return Measurement(
                found["late"], found["health"], found["stream"], found["rest"], seen["wall"], seen["processor"], rate
            )


def _written(file: Path) -> str:
    """What the watch wrote; waits for it."""
    deadline = time.monotonic() + 10
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the core did not say how long it stalled")
        time.sleep(0.01)
    return file.read_text()


def probe(address: str, rest: str) -> None:
    """Call again and again until stdin ends; then print what each call took."""
    found: dict[str, list[float]] = {"late": [], "health": [], "stream": [], "rest": []}

    async def calls() -> None:
        host, _, port = rest.partition(":")
        async with grpc.aio.insecure_channel(address) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            nodes = si_pb2_grpc.SchedulerStub(channel).UpdateNode()
            reader, writer = await asyncio.open_connection(host, int(port))
            await health.Check(health_pb2.HealthCheckRequest())
            print("ready", flush=True)
            ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            while not ended.done():
                began = time.perf_counter()
                await health.Check(health_pb2.HealthCheckRequest())
                found["health"].append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                name = f"probe-{len(found['stream'])}"
                info = si_pb2.NodeInfo(nodeID=name, action=si_pb2.NodeInfo.CREATE_DRAIN)
                await nodes.write(si_pb2.NodeRequest(rmID=RM, nodes=[info]))
                await nodes.read()
                found["stream"].append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                await _get(reader, writer, host)
                found["rest"].append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                await asyncio.sleep(PAUSE_S)
                found["late"].append((time.perf_counter() - began - PAUSE_S) * 1e3)
            # Told before anything is closed: what goes wrong then must not lose it.
            print(json.dumps(found), flush=True)
            writer.close()
            await nodes.done_writing()

    asyncio.run(calls())


async def _get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    """One request on a connection that stays open. Raises ``RuntimeError`` unless it is answered well."""
    writer.write(f"GET {REST_PATH} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


def rows(runs: int, *, quick: bool) -> Iterator[Row]:
    """Nobody waits long while P2 is placed."""
    workload = Workload(asks=10_000) if quick else P2_FLAT
    results = [run(_measure(workload)) for _ in range(runs)]

    def row(what: str, of: Callable[[Measurement], Sequence[float]], share: float, most: float | None) -> Row:
        values = [quantile(of(result), share) for result in results]
        return Row("P2", f"meanwhile: {what}", "ms", values, most, at_most=True)

    yield row("health check p99", lambda m: m.health_ms, 0.99, 50)
    yield row("REST, GET partitions p99", lambda m: m.rest_ms, 0.99, 50)
    yield row("one node on its own stream p99", lambda m: m.stream_ms, 0.99, 50)
    yield row("longest stall of the event loop, processor time", lambda m: m.stall_processor_ms, 1, 20)
    yield row("longest stall of the event loop, wall time", lambda m: m.stall_ms, 1, 20)
    yield row("the caller itself was late by, longest", lambda m: m.late_ms, 1, None)


if __name__ == "__main__":
    faulthandler.enable()  # A prober crashed once, inside gRPC, and nobody could say where.
    probe(sys.argv[1], sys.argv[2])
