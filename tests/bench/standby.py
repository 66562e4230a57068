"""How far a standby is behind a leader that places 15,000 asks a second, and how soon one that begins meanwhile is.

Leader and standby are processes on a PostgreSQL server of their own. The lag is what the standby says of itself beside
each answer, and what somebody sees who knows what the leader told its shim: for how long the standby has not shown an
allocation that the shim knew when the answer came. Whoever asks the standby is a process of its own as well.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from operator import itemgetter

import grpc.aio

from kornel.core.service.managers.standing import BEHIND_KEY
from kornel.shim_mock.load.sending import Placed, Sender
from kornel.v1 import status_pb2, status_pb2_grpc
from tests.bench import processes
from tests.bench.core_process import RM, serve
from tests.bench.placing import P2_FLAT, connection, run, set_up, undisturbed
from tests.bench.table import Row, quantile
from tests.postgres import Postgres, programs, server

RATE = 15_000
MOST_MS = 250.0
EACH_S = 0.01
PAUSE_S = 0.05
WORKLOAD = replace(P2_FLAT, asks=15 * RATE, node_cores=512, node_gib=2_048, batch=round(RATE * EACH_S))
"""Fifteen seconds, for which the nodes have room."""


@dataclass(frozen=True, slots=True)
class Look:
    """An answer of the standby. Times are those of the machine's monotonic clock."""

    answered_s: float
    allocations: int
    said_ms: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The lag while asks were placed, answer by answer. ``processor``: shares of a processor, of leader and standby."""

    rate: float
    said_ms: list[float]
    seen_ms: list[float]
    processor: tuple[float, float]


async def _place_paced(sender: Sender) -> Placed:
    """Sends the asks of the workload in equal steps, until all are placed."""
    with undisturbed():
        return await sender.place_asks(list(WORKLOAD.ask_messages(RM)), each_s=EACH_S)


def lag_ms(placed: Placed, look: Look) -> float:
    """Returns for how long the shim has known something that the standby did not show in *look*."""
    at = bisect_right(placed.heard, look.allocations, key=itemgetter(1))
    return max(0.0, look.answered_s - placed.heard[at][0]) * 1e3 if at < len(placed.heard) else 0.0


@asynccontextmanager
async def _observed(address: str) -> AsyncIterator[list[Look]]:
    """Has the core at *address* asked; the answers are there at the end."""
    looks: list[Look] = []
    observer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.standby", address,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
    )  # fmt: skip
    assert observer.stdin is not None, "it was started with a pipe"
    assert observer.stdout is not None, "it was started with a pipe"
    await observer.stdout.readline()
    yield looks
    observer.stdin.close()
    looks += [Look(*look) for look in json.loads(await observer.stdout.readline())]
    await observer.wait()


async def observe(address: str) -> None:
    """Asks the core at *address* until stdin ends, and prints the answers."""
    looks: list[tuple[float, int, float]] = []
    async with grpc.aio.insecure_channel(address) as channel:
        await _look(channel)
        print("ready", flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not ended.done():
            look = await _look(channel)
            looks.append((look.answered_s, look.allocations, look.said_ms))
            await asyncio.sleep(PAUSE_S)
    print(json.dumps(looks), flush=True)


async def _look(channel: grpc.aio.Channel) -> Look:
    stub: status_pb2_grpc.StatusServiceAsyncStub = status_pb2_grpc.StatusServiceStub(channel)
    call = stub.GetStatus(status_pb2.GetStatusRequest())
    answer = await call
    answered_s = time.perf_counter()
    behind = dict(await call.trailing_metadata() or ())[BEHIND_KEY]
    return Look(answered_s, sum(each.allocation_count for each in answer.partitions), float(behind))


async def _follow(journal: str) -> Measurement:
    """A standby that was there from the beginning."""
    options = serve(history=False, journal=journal)
    async with (
        processes.serving("kornel", *options) as (leading, leader),
        processes.serving("kornel", *options) as (following, standby),
        connection(leading) as channel,
    ):
        sender = Sender(channel, RM)
        await set_up(sender, WORKLOAD)
        async with _observed(following) as looks:
            before = processes.processor_s(leader), processes.processor_s(standby)
            placed = await _place_paced(sender)
            after = processes.processor_s(leader), processes.processor_s(standby)
    during = [look for look in looks if placed.heard[0][0] <= look.answered_s <= placed.heard[-1][0]]
    return Measurement(
        placed.rate,
        [look.said_ms for look in during],
        [lag_ms(placed, look) for look in during],
        ((after[0] - before[0]) / placed.took_s, (after[1] - before[1]) / placed.took_s),
    )


async def _begin_late(journal: str) -> tuple[float, float]:
    """A standby that begins with nothing after a third of the asks. Returns the seconds from the start of its process
    until it was close behind, and the rate of the leader."""
    options = serve(history=False, journal=journal)
    async with processes.serving("kornel", *options) as (leading, _), connection(leading) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, WORKLOAD)
        placing = asyncio.create_task(_place_paced(sender))
        await asyncio.sleep(WORKLOAD.asks / RATE / 3)
        began = time.perf_counter()
        async with (
            processes.serving("kornel", *options) as (following, _),
            grpc.aio.insecure_channel(following) as asked,
        ):
            while (look := await _look(asked)).said_ms > MOST_MS:  # noqa: ASYNC110 - asked over the wire
                await asyncio.sleep(PAUSE_S)
            placed = await placing
    return look.answered_s - began, placed.rate


def p13(runs: int, *, quick: bool) -> Iterator[Row]:
    """The lag of a standby under load."""
    if programs() is None:
        print("P13  left out: PostgreSQL is not installed", flush=True)
        return
    with server() as database:
        found = [run(_follow(_empty(database))) for _ in range(runs)]
        for percent, most in ((50, None), (99, MOST_MS), (100, None)):
            for what, of in (("says", "said_ms"), ("shows", "seen_ms")):
                values = [quantile(getattr(each, of), percent / 100) for each in found]
                yield Row(
                    "P13", f"{RATE:,} asks/s, the lag that a standby {what}, p{percent}", "ms", values, most, True
                )
        yield Row("P13", "asks placed meanwhile", "/s", [each.rate for each in found])
        yield Row("P13", "the leader's share of a processor", "%", [100 * each.processor[0] for each in found])
        yield Row("P13", "the standby's share of a processor", "%", [100 * each.processor[1] for each in found])
        if not quick:
            late = [run(_begin_late(_empty(database))) for _ in range(runs)]
            yield Row(
                "P13", "a standby that begins meanwhile is close behind after", "s", [took_s for took_s, _ in late]
            )
            yield Row("P13", "asks placed while a standby begins", "/s", [rate for _, rate in late])


def _empty(database: Postgres) -> str:
    database.clear()
    return database.url


if __name__ == "__main__":
    asyncio.run(observe(sys.argv[1]))
