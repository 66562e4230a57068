"""P1, P2 and P3: asks placed end to end over gRPC beside a bare echo of them, and by the engine alone."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio

from kornel.core.domain.commands import RegisterManager, UpdateAllocations
from kornel.core.domain.effects import Allocated
from kornel.core.engine.engine import Engine
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.runner.intake_queue import ENTRIES_PER_TURN
from kornel.core.service.runner.runner import SLICE_BUDGET
from kornel.core.service.wire.scheduler_wire import Decoder
from kornel.shared.event_loop import loop_factory
from kornel.shim_mock.load.sending import CHANNEL_OPTIONS, Placed, Sender
from kornel.shim_mock.load.workload import Workload
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM, running_core
from tests.bench.echo import running_echo
from tests.bench.processes import apart, processor_s
from tests.bench.table import Row

P1 = Workload(asks=10_000, queues=(2,), applications=1, sizes=1, application_order="fifo")
P1_LARGE = replace(P1, nodes=10_000, asks=50_000)
P2_FLAT = Workload()
P2_NESTED = replace(P2_FLAT, queues=(10, 10))
P3 = replace(P2_FLAT, node_order="binpacking")


async def set_up(sender: Sender, workload: Workload) -> None:
    """Everything of *workload* but its asks."""
    await sender.register(workload.config)
    await sender.report_nodes(workload.node_infos())
    await sender.add_applications(workload.application_requests())


async def over_core(workload: Workload, journal: str = "") -> Placed:
    """*workload* over gRPC, by a core of its own, which keeps a journal at *journal*; empty: none."""
    return (await measure_burst(workload, journal=journal)).placed


@dataclass(frozen=True, slots=True)
class Burst:
    """*registered*: applications per second. *core_us*: processor time of the core for each ask."""

    placed: Placed
    registered: float
    core_us: float


async def measure_burst(workload: Workload, *, history: bool = True, journal: str = "", sync: str = "full") -> Burst:
    """*workload* over gRPC, by a core of its own; see :func:`over_core`. *sync*: what its decisions wait for."""
    served = running_core(history=history, journal=journal, sync=sync)
    async with served as (address, pid), connection(address) as channel:
        sender = Sender(channel, RM)
        await sender.register(workload.config)
        await sender.report_nodes(workload.node_infos())
        applications = workload.application_requests()
        began = time.perf_counter()
        await sender.add_applications(applications)
        registered = len(applications) / (time.perf_counter() - began)
        messages = list(workload.ask_messages(RM))
        with undisturbed():
            used_s = processor_s(pid)
            placed = await sender.place_asks(messages)
            used_s = processor_s(pid) - used_s
    return Burst(placed, registered, used_s / workload.asks * 1e6)


async def over_echo(messages: Sequence[si.AllocationRequest]) -> Placed:
    """*messages* answered at once."""
    async with running_echo() as address, connection(address) as channel:
        with undisturbed():
            return await Sender(channel, RM).place_asks(messages)


def connection(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS))


def run(coroutine: Any) -> Any:
    """What *coroutine* returns, on the event loop that the core uses too."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(coroutine)


@contextmanager
def undisturbed() -> Iterator[None]:
    """The client's own garbage is collected before and after, not while it measures."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def end_to_end(number: str, what: str, workload: Workload, runs: int, target: float) -> Row:
    """Allocations per second over gRPC, each run beside its echo."""
    rates, ceilings = [], []
    for _ in range(runs):
        ceilings.append(run(over_echo(list(workload.ask_messages(RM)))).rate)
        rates.append(run(over_core(workload)).rate)
    return Row(number, f"{what}, over gRPC", "/s", rates, target, ceilings=ceilings)


def ready_engine(workload: Workload, configuration: str = "") -> tuple[Engine, Decoder]:
    """An engine that knows everything of *workload* but its asks, and what read the messages."""
    engine, decoder = Engine(), Decoder()
    engine.apply(RegisterManager(RM, configuration or workload.config), 0)
    infos = workload.node_infos()
    for start in range(0, len(infos), 1_000):
        for nodes in decoder.node_commands(si.NodeRequest(rmID=RM, nodes=infos[start : start + 1_000])):
            engine.apply(nodes, 0)
    added = si.ApplicationRequest(rmID=RM, new=workload.application_requests())
    for applications in decoder.application_commands(added):
        engine.apply(applications, 0)
    return engine, decoder


def commands(workload: Workload, decoder: Decoder) -> Iterator[UpdateAllocations]:
    """The asks of *workload* as the engine gets them."""
    for message in workload.ask_messages(RM):
        yield from decoder.allocation_commands(message)


def engine_seconds(workload: Workload) -> float:
    """Processor time of taking in and placing all asks, turn by turn and with the collector as in the service."""
    engine, decoder = ready_engine(workload)
    garbage = GarbageKeeper()
    garbage.start()
    return drive(engine, commands(workload, decoder), garbage, workload.asks)


def drive(engine: Engine, asks: Iterable[UpdateAllocations], garbage: GarbageKeeper, expected: int) -> float:
    """Processor time of placing *asks*, reading them not included. Raises ``AssertionError`` unless all are placed."""
    took, placed, entries = 0.0, 0, 0
    for command in asks:
        began = time.process_time()
        engine.apply(command, 1)
        entries += len(command.allocations)
        more = True
        if entries >= ENTRIES_PER_TURN:
            garbage.count_stored(entries)
            entries = 0
            placed += _allocated(engine.cycle(1, SLICE_BUDGET).effects)
        took += time.process_time() - began
    more = True
    while more:
        began = time.process_time()
        result = engine.cycle(1, SLICE_BUDGET)
        took += time.process_time() - began
        placed += _allocated(result.effects)
        more = result.more
    if placed != expected:
        raise AssertionError(f"{placed} of {expected} asks were placed")
    return took


def _allocated(effects: Iterable[object]) -> int:
    return sum(isinstance(effect, Allocated) for effect in effects)


def engine_alone(number: str, what: str, workload: Workload, runs: int, target: float | None) -> Row:
    """Allocations per second of processor time, each run in an interpreter of its own."""
    rates = [workload.asks / apart(engine_seconds, workload) for _ in range(runs)]
    return Row(number, f"{what}, engine alone", "/s", rates, target)


def p1(runs: int, *, quick: bool) -> Iterator[Row]:
    """Equal asks in two queues."""
    yield end_to_end("P1", "5,000 nodes, 10,000 equal asks, 2 queues", P1, runs, 40_000)
    if not quick:
        yield end_to_end("P1", "10,000 nodes, 50,000 equal asks, 2 queues", P1_LARGE, runs, 40_000)


def p2(runs: int, *, quick: bool) -> Iterator[Row]:
    """128 sizes, 100 leaves with 10 applications each, flat and nested."""
    asks = 10_000 if quick else P2_FLAT.asks
    flat, nested = replace(P2_FLAT, asks=asks), replace(P2_NESTED, asks=asks)
    what = f"5,000 nodes, {asks:,} asks, 100 leaves"
    rows = [
        end_to_end("P2", f"{what} flat", flat, runs, 30_000),
        end_to_end("P2", f"{what} nested 10 x 10", nested, runs, 30_000),
    ]
    yield from rows
    apart_by = [100 * abs(a / b - 1) for a, b in zip(rows[0].values, rows[1].values, strict=True)]
    yield Row("P2", "flat and nested differ by", "%", apart_by, 20, at_most=True)
    yield engine_alone("P2", f"{what} flat", flat, runs, 60_000)
    yield engine_alone("P2", f"{what} nested 10 x 10", nested, runs, 60_000)


def p3(runs: int, *, quick: bool) -> Iterator[Row]:
    """P2 with bin packing."""
    workload = replace(P3, asks=10_000) if quick else P3
    what = f"P2 flat with binpacking, {workload.asks:,} asks"
    yield end_to_end("P3", what, workload, runs, 25_000)
    yield engine_alone("P3", what, workload, runs, None)
