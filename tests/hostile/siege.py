"""A core under load for as long as you like, with hostile neighbours: ``make siege MINUTES=60``.

A shim places asks on 5,000 nodes and releases them again as fast as the core takes them, over 100 leaves as P2 does.
Meanwhile the attacks of the suite take turns on connections of their own. Each minute one line tells memory, rate, the
longest answer about health, and what the core's collector of cycles has found. At the end it prints by how much memory
grew for each million asks and each thousand attacks. It fails when memory does not stay flat, an answer takes too long
or the collector meets something that it cannot free.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import operator
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from kornel.shim_mock.load.sending import CHANNEL_OPTIONS, LoadError, Sender
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import application, flat_queues, node_infos
from tests.e2e.harness import resource
from tests.hostile.attacked import MEMORY_MIB, AttackedCore, attacked_core
from tests.hostile.test_grpc_floods import EMPTY, FLOODS, GREETING, OPTIONS, connected, end_of, nested, pour

LEAVES: Final = 100
NODES: Final = 5_000
ASKS: Final = 10_000
"""Of one burst, all released again before the next one."""
BATCH: Final = 500
PAUSE_S: Final = 2.0
"""Between two attacks: neighbours, not a war."""
HEALTH_S: Final = 2.0
"""Of the longest answer: core, shim, attackers and probe share a machine here."""
WARM_UP: Final = 1
"""Minutes whose memory does not count: caches fill, and the first burst has every ask at once."""
SETTLED: Final = 10
"""Minutes after which nothing with a bound grows any more: the ring of events, the spool and the history's queue are
full."""
SAMPLE_S: Final = 0.5
"""Between two looks at the memory. Of a minute the least counts: in between an attack holds some MiB."""
FEWEST_MINUTES: Final = 5
MIB_PER_MILLION_ASKS: Final = 0.5
MIB_PER_THOUSAND_ATTACKS: Final = 8.0
"""By how much memory may grow, the two together. When every call left a kilobyte, it was 1.9 or 38."""

LAST_WORDS: Final = 20_000
"""Characters of the core's log that are shown when its load has failed."""


@dataclass
class Minute:
    """What one minute showed."""

    memory_mib: float
    """The least of it."""
    allocations: int
    health_s: float
    attacks: int
    garbage: Garbage
    queued: int = 0
    """Entries of the history that wait in memory: at most 64 MiB, more and less as the machine has time."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What the collector of the core has done since the core began, all generations together."""

    collections: int
    collected: int
    uncollectable: int

    def __sub__(self, before: Garbage) -> Garbage:
        return Garbage(
            self.collections - before.collections,
            self.collected - before.collected,
            self.uncollectable - before.uncollectable,
        )


@dataclass
class Siege:
    """One core, its load and its neighbours."""

    core: AttackedCore
    ending: threading.Event = field(default_factory=threading.Event)
    allocations: int = 0
    attacks: int = 0
    failed: str = ""

    async def load(self) -> None:
        """Place and release, again and again."""
        async with grpc.aio.insecure_channel(self.core.address, options=CHANNEL_OPTIONS) as channel:
            sender = Sender(channel, "rm-1")
            await sender.register(flat_queues(LEAVES))
            await sender.report_nodes(node_infos(NODES, si.NodeInfo.CREATE))
            await sender.add_applications([application(f"app-{leaf}", f"root.q{leaf}") for leaf in range(LEAVES)])
            # As any shim does: without a stream the states of its applications would wait for one, a million of them.
            states = sender.stub.UpdateApplication()
            await states.write(si.ApplicationRequest(rmID="rm-1"))
            reading = asyncio.create_task(drain(states))
            for burst in itertools.count():
                if self.ending.is_set():
                    states.cancel()
                    await asyncio.wait([reading])
                    return
                if reading.done():
                    raise LoadError(f"the stream of applications ended: {await states.code()}")
                placed = await sender.place_asks(list(asks(burst)))
                self.allocations += len(placed.latencies_ms)
                async with sender.allocations() as stream:
                    for message in releases(burst):
                        await stream.write(message)
                    left = ASKS
                    while left:
                        response: Any = await stream.read()
                        if response is grpc.aio.EOF:
                            raise LoadError("the stream ended while allocations were released")
                        left -= len(response.released)

    def load_in_thread(self) -> None:
        try:
            asyncio.run(self.load())
        except Exception as error:  # noqa: BLE001 - whatever ends the load ends the siege
            self.failed = f"{time.strftime('%H:%M:%S')} {error!r}"
            self.ending.set()

    def attack(self) -> None:
        """One attack after the other, from the list and from its beginning again."""
        for attack in itertools.cycle(attacks(self.core)):
            with suppress(OSError, grpc.RpcError):
                attack()
            self.attacks += 1
            if self.ending.wait(PAUSE_S):
                return


async def drain(stream: Any) -> None:
    """Read *stream* to its end."""
    with suppress(grpc.RpcError, asyncio.CancelledError):
        async for _ in stream:
            pass


def asks(burst: int) -> Iterator[si.AllocationRequest]:
    size = resource(vcore=1_000, memory=1 << 30)
    for start in range(0, ASKS, BATCH):
        allocations = [
            si.Allocation(allocationKey=f"{burst}-{n}", applicationID=f"app-{n % LEAVES}", resourcePerAlloc=size)
            for n in range(start, start + BATCH)
        ]
        yield si.AllocationRequest(rmID="rm-1", allocations=allocations)


def releases(burst: int) -> Iterator[si.AllocationRequest]:
    for start in range(0, ASKS, BATCH):
        released = [
            si.AllocationRelease(
                allocationKey=f"{burst}-{n}", applicationID=f"app-{n % LEAVES}", terminationType=si.STOPPED_BY_RM
            )
            for n in range(start, start + BATCH)
        ]
        yield si.AllocationRequest(rmID="rm-1", releases=si.AllocationReleasesRequest(allocationsToRelease=released))


def attacks(core: AttackedCore) -> list[Callable[[], None]]:
    """Everything of the suite that needs no core of its own. Streams of the shim's own name would take its answers."""

    def flood(name: str) -> None:
        first, pieces = FLOODS[name]
        with connected(core) as connection:
            connection.sendall(GREETING + first)
            pour(connection, pieces())

    def send(method: str, raw: bytes) -> None:
        with grpc.insecure_channel(core.address, OPTIONS) as channel:
            end_of(channel, method, raw)

    floods = [lambda name=name: flood(name) for name in FLOODS]
    bombs = [lambda method=method, entry=entry: send(method, entry * 1_000_000) for method, entry in EMPTY.values()]
    towers = [lambda method=method: send(method, nested(10_000)) for method, _ in EMPTY.values()]
    return [*floods, *bombs, *towers]  # type: ignore[list-item]


class Counts(NamedTuple):
    """What the metrics of a core say of its collector, how many MiB the C library has handed out, and how many entries
    of the history wait in memory."""

    garbage: Garbage
    native_mib: float
    queued: int


def read_counts(core: AttackedCore) -> Counts:
    """Read the metrics of *core*."""
    with urllib.request.urlopen(f"http://{core.http}/ws/v1/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()

    def count(series: str) -> int:
        return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series)))

    garbage = Garbage(
        count("python_gc_collections_total{"),
        count("python_gc_objects_collected_total{"),
        count("python_gc_objects_uncollectable_total{"),
    )
    native_mib = count('kornel_native_memory_bytes{state="used"}') / 2**20
    return Counts(garbage, native_mib, count("kornel_history_queue_entries "))


def watch(siege: Siege, minutes: int) -> list[Minute]:
    """Print a line each minute until time is up or the load has failed."""
    found: list[Minute] = []
    garbage = read_counts(siege.core).garbage
    for number in range(1, minutes + 1):
        asked, placed, attacked = time.monotonic(), siege.allocations, siege.attacks
        least_mib = least_memory(siege)
        longest = max((took for began, took in list(siege.core.probes) if began >= asked), default=0.0)
        before, (garbage, native_mib, queued) = garbage, read_counts(siege.core)
        asks, attacks = siege.allocations - placed, siege.attacks - attacked
        minute = Minute(least_mib, asks, longest, attacks, garbage - before, queued)
        found.append(minute)
        print(
            f"minute {number:3}: {minute.memory_mib:6.1f} MiB ({native_mib:.1f} of C), {queued:,} entries queued,"
            f" {minute.allocations / 60:7,.0f} allocations/s,"
            f" longest health answer {minute.health_s * 1e3:5.0f} ms, {minute.attacks} attacks,"
            f" {minute.garbage.collected:,} objects of cycles freed in {minute.garbage.collections} collections,"
            f" {minute.garbage.uncollectable} not to be freed",
            flush=True,
        )
        if number % 10 == 0 and (growth := growth_of(found)):
            print(growth, flush=True)
        if siege.failed:
            break
    return found


def least_memory(siege: Siege) -> float:
    """The least memory that the core holds within a minute."""
    deadline, least_mib = time.monotonic() + 60, siege.core.memory_mib()
    while time.monotonic() < deadline and not siege.ending.wait(SAMPLE_S):
        least_mib = min(least_mib, siege.core.memory_mib())
    return least_mib


@dataclass(frozen=True, slots=True)
class Growth:
    """How the memory grew in the minutes after *SETTLED*, along the line that fits them best once what the queue of
    the history explains is taken off."""

    mib: float
    error_mib: float
    """The standard error of *mib*."""
    million_asks: float
    thousand_attacks: float

    @property
    def allowed_mib(self) -> float:
        return MIB_PER_MILLION_ASKS * self.million_asks + MIB_PER_THOUSAND_ATTACKS * self.thousand_attacks

    @property
    def is_too_much(self) -> bool:
        """Whether it is more than allowed, and not by chance."""
        return self.mib - 2 * self.error_mib > self.allowed_mib

    def __str__(self) -> str:
        return (
            f"{self.mib:+.1f} MiB (± {2 * self.error_mib:.1f}) over {self.million_asks:.2f} million asks and"
            f" {self.thousand_attacks * 1e3:.0f} attacks after minute {SETTLED}:"
            f" {self.mib / self.million_asks:+.2f} MiB a million asks if asks alone do it,"
            f" {self.mib / self.thousand_attacks:+.1f} MiB a thousand attacks if attacks alone do"
        )


def unexplained(values: list[float], cause: list[float]) -> list[float]:
    """What is left of *values* after what a line through *cause* explains."""
    if max(cause) - min(cause) < 1:
        mean = statistics.mean(values)
        return [value - mean for value in values]
    slope, intercept = statistics.linear_regression(cause, values)
    return [value - intercept - slope * each for value, each in zip(values, cause, strict=True)]


def growth_of(found: list[Minute]) -> Growth | None:
    """The growth after the settling; ``None``: there are too few minutes to tell."""
    settled = found[SETTLED:]
    after = settled[1:]
    if len(after) < FEWEST_MINUTES or not (any(m.allocations for m in after) and any(m.attacks for m in after)):
        return None
    queued = [float(minute.queued) for minute in settled]
    minutes = unexplained(list(map(float, range(len(settled)))), queued)
    memory = unexplained([minute.memory_mib for minute in settled], queued)
    spread = sum(number * number for number in minutes)
    if spread < 1:
        return None  # The queue has grown as evenly as time has passed, so nothing can be told apart.
    slope = sum(map(operator.mul, minutes, memory)) / spread
    squares = sum((mib - slope * number) ** 2 for number, mib in zip(minutes, memory, strict=True))
    error = math.sqrt(squares / (len(settled) - 3) / spread)
    return Growth(
        slope * len(after),
        error * len(after),
        sum(minute.allocations for minute in after) / 1e6,
        sum(minute.attacks for minute in after) / 1e3,
    )


def looks_through_everything(logged: Path) -> Iterator[dict[str, object]]:
    """Yields the records of full collections in the log of the core."""
    with logged.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if "memory nobody accounted for" in line)


def judge(found: list[Minute], failed: str) -> list[str]:
    """What is wrong with it."""
    wrong = [f"the load ended: {failed}"] if failed else []
    settled = [minute.memory_mib for minute in found[WARM_UP:]]
    if settled and max(settled) > settled[0] + MEMORY_MIB:
        wrong.append(f"memory grew from {settled[0]:.0f} to {max(settled):.0f} MiB")
    growth = growth_of(found)
    if growth is not None and growth.is_too_much:
        wrong.append(f"memory grew by {growth}; allowed were {growth.allowed_mib:.1f} MiB")
    longest = max((minute.health_s for minute in found), default=0.0)
    if longest > HEALTH_S:
        wrong.append(f"an answer about health took {longest:.1f} s")
    uncollectable = sum(minute.garbage.uncollectable for minute in found)
    if uncollectable:
        wrong.append(f"the collector met {uncollectable} objects that it could not free")
    if any(not minute.allocations for minute in found):
        wrong.append("nothing was placed for a minute")
    return wrong


def besieged_core(directory: Path) -> AbstractContextManager[AttackedCore]:
    """Serve a core whose history, which it writes as any other does, goes with *directory*."""
    return attacked_core(directory, "--log-level", "info", "--history", str(directory / "history.db"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=60)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as directory, besieged_core(Path(directory)) as core:
        siege = Siege(core)
        threads = [threading.Thread(target=work) for work in (siege.load_in_thread, siege.attack)]
        for thread in threads:
            thread.start()
        found = watch(siege, minutes)
        siege.ending.set()
        for thread in threads:
            thread.join()
        print(growth_of(found) or "too few minutes to tell how memory grows", flush=True)
        for record in looks_through_everything(Path(directory) / "log"):
            print(f"everything looked through: {record['freed_objects']:,} objects freed in {record['took_ms']} ms")
        if siege.failed:
            print((Path(directory) / "log").read_text(encoding="utf-8")[-LAST_WORDS:])
    wrong = judge(found, siege.failed)
    print("\n".join(wrong) or "flat")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
