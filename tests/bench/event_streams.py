"""What clients that follow all events cost a core under full load.

The core serves in this process, and more happens in it than it may tell while it is busy: so this is the most that its
followers can cost it. They live in a process of their own, each with a connection of its own, and read bytes without
looking at them, but for one that counts. Quoted is the processor time of the core, its threads for the network
included, as a part of one processor.

Rates with and without followers are measured as well. They say little where the followers share their processors with
the core: its work takes longer beside theirs, whatever it sends them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc.aio

from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.service.events.event_streams import Budget
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.shim_mock.load.sending import CHANNEL_OPTIONS
from kornel.si.v1 import si_pb2
from kornel.v1 import events_pb2 as pb
from tests.bench import core_process, end_to_end
from tests.bench.core_process import RM
from tests.bench.report import Figure, show

METHOD = "/kornel.v1.EventService/WatchEvents"
FOLLOWERS = 100
SECONDS = 6
EVENTS_PER_S = 40_000
MOST_PERCENT = 5.0
LIMITS = {"event.maxStreams": "1000", "event.maxStreamsPerHost": "1000"}
WORKLOAD = end_to_end.Workload(nodes=10_000, asks=150_000)


async def _cost(followers: int) -> tuple[float, float]:
    """Percent of a processor that *followers* cost, and events a second that one of them got."""
    server = KornelServer(
        Engine(),
        ServerSettings(address="127.0.0.1:0", version="bench"),
        clock=ManualClock(),
        metrics=ServiceMetrics(),
        logger=build_logger(LogFormat.JSON, LogLevel.ERROR),
        garbage=GarbageKeeper(enabled=False),
    )
    address = await server.start()
    server.events.follow_settings(LIMITS)
    server.events.places.budget = Budget(time.perf_counter)  # As if the core was busy all the time.
    try:
        alone_s = await _happen(server)
        async with _following(address, followers) as process:
            beside_s = await _happen(server)
            told = await _stopped(process)
    finally:
        await server.stop()
    return (beside_s - alone_s) / SECONDS * 100, told / SECONDS


async def _happen(server: KornelServer) -> float:
    """Events as of a busy core, a slice's worth at a time. Processor seconds that this takes."""
    sizes = [Resources({"vcore": vcore, "memory": 1 << 30}) for vcore in (500, 1_000, 2_000)]
    before_s, began = time.process_time(), time.perf_counter()
    number = 0
    while (passed_s := time.perf_counter() - began) < SECONDS:
        now_ns = time.time_ns()
        due = int(passed_s * EVENTS_PER_S)
        happened = range(number, due)
        server.events.observe(
            [EventRecorded(2, f"app-{at % 7}", f"ask-{at}", 2, 200, now_ns, sizes[at % 3], "") for at in happened]
        )
        number = due
        await asyncio.sleep(0.01)
    return time.process_time() - before_s


async def _rate(workload: end_to_end.Workload, followers: int) -> float:
    """Allocations per second of a core with *followers*."""
    async with AsyncExitStack() as stack:
        stub, address, pid = await stack.enter_async_context(core_process.connected())
        config = core_process.flat_queues(workload.queues)
        await stub.RegisterResourceManager(
            si_pb2.RegisterResourceManagerRequest(rmID=RM, config=config, extraConfig=LIMITS)
        )
        infos = core_process.node_infos(workload.nodes, si_pb2.NodeInfo.CREATE)
        nodes_per_s = await core_process.report_nodes(stub, infos, workload.batch)
        await core_process.add_applications(
            stub, (core_process.application(f"app-{number}", f"root.q{number}") for number in range(workload.queues))
        )
        if followers:
            await stack.enter_async_context(_following(address, followers))
        return (await end_to_end.place(stub, workload, nodes_per_s, pid)).allocations_per_s


@asynccontextmanager
async def _following(address: str, count: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process with *count* followers, all of them told that their stream is open."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.event_streams", address, str(count)), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"open"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _stopped(process: asyncio.subprocess.Process) -> int:
    """Events that one of the followers of *process* got."""
    process.send_signal(signal.SIGTERM)
    output, _ = await process.communicate()
    return int(output)


def report(runs: int, followers: int = FOLLOWERS, *, thorough: bool = False) -> bool:
    """Measure and print. Whether following costs as little as it may."""
    costs = [asyncio.run(_cost(followers)) for _ in range(runs)]
    title = f"event streams: {followers} followers of a core in which {EVENTS_PER_S:,} events/s happen, {runs} runs"
    figures = [
        Figure("processor time of the core", "%", [percent for percent, _ in costs], MOST_PERCENT, True, 0),
        Figure("events told to each", "/s", [told for _, told in costs], each_s=0),
    ]
    if thorough:
        for label, count in (("allocations without them", 0), ("allocations with them", followers)):
            rates = [asyncio.run(_rate(WORKLOAD, count)) for _ in range(runs)]
            figures.append(Figure(label, "/s", rates, each_s=0))
    return show(title, figures, "nobody is slowed down by those who watch")


async def _follow(address: str, count: int) -> None:
    """The followers' process: say when all are open, and at SIGTERM how many events one of them got."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(count)]
    request = pb.WatchEventsRequest().SerializeToString()
    calls = [channel.unary_stream(METHOD)(request) for channel in channels]
    for call in calls:
        await call.read()
    print("open", flush=True)
    told = 0

    async def read(number: int) -> None:
        nonlocal told
        while (response := await calls[number].read()) is not grpc.aio.EOF:
            if number == 0:
                told += len(pb.WatchEventsResponse.FromString(response).events)

    readers = [asyncio.create_task(read(number)) for number in range(count)]
    await stopped.wait()
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    print(told, flush=True)


if __name__ == "__main__":
    asyncio.run(_follow(sys.argv[1], int(sys.argv[2])))
