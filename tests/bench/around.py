"""What a core executes around its decisions for one ask, in bytecode instructions: the measure that no machine changes.

Everything outside the engine is there, put together as in the process: the streams read what a shim sends and write
what it gets, the task of the partition takes its turns, observers count and keep events, a journal is written
(``written``), and so is the history. Only gRPC is left out, which calls us once for a message. Counted is our own code
in all threads of the process; what the engine executes is :mod:`tests.bench.opcodes`' to count, except for the events
that it records. What C does in between (protobuf, orjson, zlib) takes no instructions here.

``python -m tests.bench.around`` prints the counts as JSON, ``--record`` makes them the baseline of this version of
Python, ``--functions`` prints what each function takes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Protocol

from google.protobuf.message import Message

import kornel.core
from kornel.core.domain.commands import RegisterManager
from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.database.choices import JournalSync
from kornel.core.journal.database.settings import journal_settings
from kornel.core.journal.journal import Journal
from kornel.core.process.history import chosen_history
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SystemClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.lookups import GroupLookups
from kornel.core.service.services.scheduler_service import SchedulerService
from kornel.core.state.options import EngineOptions
from kornel.shim_mock.load.workload import Workload
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM
from tests.bench.counted import CountedBench
from tests.bench.placing import P1, P2_FLAT

WARM_UP, SAMPLE = 1_000, 1_000
"""Asks; after the warm-up every application runs something, unless it has a single ask."""

SMALL = {
    "P1": replace(P1, nodes=300),
    "P2 flat": replace(P2_FLAT, nodes=300),
    "P2 an ask each": replace(P2_FLAT, nodes=300, applications=(WARM_UP + SAMPLE) // P2_FLAT.queues[0]),
}
"""The workloads; in the last, each ask is the first of its application, which changes its state twice."""

CORE: Final = str(Path(kornel.core.__file__).parent) + os.sep
ENGINE: Final = tuple(
    f"{CORE}{part}{os.sep}" for part in ("engine", "state", "model", "policies", "preemption", "laws")
)
EVENTS: Final = f"{CORE}state{os.sep}history{os.sep}"
VALUES: Final = f"{CORE}domain{os.sep}"
"""Values are of the engine where the engine calls them."""

PARTS: Final = (
    (
        "reading",
        (
            "service/wire/scheduler_wire.py",
            "service/calls/wire_pieces.py",
            "service/calls/plain_asks.py",
            "service/calls/rpc.py",
            "service/calls/request_lengths.py",
        ),
    ),
    ("answering", ("service/streams/streams.py", "service/wire/message_bytes.py")),
    (
        "turns",
        (
            "service/runner/runner.py",
            "service/runner/effect_delivery.py",
            "service/runner/callback_link.py",
            "service/machine/loop_time.py",
            "service/machine/garbage.py",
            "service/callbacks/callback_",
        ),
    ),
    ("events", ("state/history/", "service/events/event_", "service/callbacks/event_feed.py")),
    (
        "counting",
        (
            "metrics/",
            "rest/",
            "service/managers/health.py",
            "service/events/refusals.py",
            "service/metrics/durations.py",
        ),
    ),
    ("history", ("archive/", "process/history.py")),
    ("journal", ("journal/",)),
)
"""The parts by what the files are called whose functions belong to them; all others are in ``the rest``."""
WRITING: Final = (
    "Encoder.",
    "list_key",
    "SchedulerService._write",
    "SchedulerService._send",
    "SchedulerService._split",
)
"""Functions that answer, in files that read."""


class Counting:
    """Counts what the process executes around its engine, in all threads that begin after it."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._counters: list[Counter[CodeType]] = []
        self._wanted: dict[CodeType, bool] = {}
        threading.settrace(self._trace)

    def begin(self) -> None:
        """Count from zero, in this thread too."""
        for counter in self._counters:
            counter.clear()
        sys.settrace(self._trace)

    def pause(self) -> None:
        """Count in this thread no more; others go on."""
        sys.settrace(None)

    def end(self) -> Counter[CodeType]:
        """Returns the counts of all threads by function, and counts no more."""
        threading.settrace(None)  # type: ignore[arg-type]
        return sum(self._counters, Counter[CodeType]())

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            name = code.co_filename
            wanted = name.startswith(CORE) and (name.startswith(EVENTS) or not name.startswith(ENGINE))
            self._wanted[code] = wanted
        if not wanted or (code.co_filename.startswith(VALUES) and _is_called_by_engine(frame)):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        count = getattr(self._local, "count", None)
        if count is None:
            count = self._local.count = self._make_counter()
        return count

    def _make_counter(self) -> Callable[[FrameType, str, Any], Any]:
        counter: Counter[CodeType] = Counter()  # One for each thread, as two would lose what they add at once.
        self._counters.append(counter)

        def count(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                counter[frame.f_code] += 1
            return count

        return count


def _is_called_by_engine(frame: FrameType) -> bool:
    caller = frame.f_back
    return caller is not None and caller.f_code.co_filename.startswith(ENGINE)


class Shim:
    """One stream of a shim that is connected to a core in its own process: both what it sends and where it reads."""

    def __init__(self, answer_type: type[Message]) -> None:
        self._answer_type = answer_type
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    def invocation_metadata(self) -> None:
        """It has none."""

    def peer(self) -> str:
        """The address that it calls from."""
        return "ipv4:127.0.0.1:1"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (raw := await self._requests.get()) is not None:
            yield raw

    async def write(self, raw: bytes) -> None:
        """Gets an answer."""
        self._answers.put_nowait(raw)

    def end(self) -> None:
        """Sends no more."""
        self._requests.put_nowait(None)

    async def send(self, raws: Iterable[bytes], expected: int, entries: str) -> None:
        """Sends *raws*, until so many *entries* have come in answer."""
        for raw in raws:
            self._requests.put_nowait(raw)
        while expected > 0:
            answer = self._answer_type.FromString(await self._answers.get())
            expected -= len(getattr(answer, entries))


class Watching(Protocol):
    """Watches what a core does while it places the sample."""

    def begin(self) -> None:
        """Watch from here on."""

    def pause(self) -> None:
        """All asks of the sample are placed; what is left of it is written."""

    def end(self) -> Counter[CodeType]:
        """Returns what was seen by function, and watches no more."""
        ...


async def watch(workload: Workload, scratch: Path, counting: Watching) -> Counter[CodeType]:
    """Returns what *counting* sees of the sample of *workload*: all messages of asks but the first, whose asks warm up
    a core that keeps its files in *scratch*."""
    logger, clock = build_logger(LogFormat.JSON, LogLevel.ERROR), SystemClock()
    settings = journal_settings(str(scratch / "journal.db"), JournalSync.WRITTEN)
    assert settings is not None
    journal = Journal.open(
        settings, Beginning("bench", False, EngineOptions(None, 10)), now_ns=clock.now_ns, logger=logger
    )
    history = chosen_history(str(scratch / "history.db"), [], address="127.0.0.1:1")
    metrics = ServiceMetrics()
    server = KornelServer(
        journal.first.engine,
        ServerSettings(address="127.0.0.1:0", version="bench", history=history),
        clock=clock,
        metrics=metrics,
        logger=logger,
        garbage=GarbageKeeper(),
        journal=journal,
    )
    managers = server.managers
    lookups = GroupLookups({}, managers.reader.resolver_of, clock=clock, metrics=metrics, logger=logger)
    service = SchedulerService(managers, lookups=lookups, metrics=metrics, logger=logger, clock=clock)
    streams = {
        name: (Shim(answers), service.handlers()[name].stream_stream)
        for name, answers in (
            ("UpdateNode", si.NodeResponse),
            ("UpdateApplication", si.ApplicationResponse),
            ("UpdateAllocation", si.AllocationResponse),
        )
    }
    server.history.start(lambda problem: None)
    journal.start()
    managers.start()
    await managers.register(RegisterManager(RM, workload.config))
    calls = [asyncio.create_task(serve(shim, shim)) for shim, serve in streams.values()]
    nodes, applications, asks = (shim for shim, _ in streams.values())
    infos, new = workload.node_infos(), workload.application_requests()
    await nodes.send([si.NodeRequest(rmID=RM, nodes=infos).SerializeToString()], len(infos), "accepted")
    await applications.send([si.ApplicationRequest(rmID=RM, new=new).SerializeToString()], len(new), "accepted")
    before, *sample = [message.SerializeToString() for message in workload.ask_messages(RM)]
    await asks.send([before], workload.batch, "new")
    await _settle(server, journal)
    counting.begin()
    await asks.send(sample, workload.asks - workload.batch, "new")
    counting.pause()
    await _settle(server, journal)
    counted = counting.end()
    for shim, _ in streams.values():
        shim.end()
    await managers.stop()
    managers.finish_streams(ConnectionError("the end"))
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await lookups.close()
    await managers.close()
    journal.close(5.0)
    server.history.close(5.0)
    return counted


async def _settle(server: KornelServer, journal: Journal) -> None:
    """Returns when all that was decided is in the journal and in the history's spool."""
    while True:
        kept, written = server.history.status(), journal.status()
        assert kept is not None
        if not kept.queued and written.last_durable == written.last_record and server.managers.asleep:
            return
        await asyncio.sleep(0.05)


def by_function(workload: Workload) -> Counter[CodeType]:
    """Instructions for all asks of the sample by function."""
    workload = replace(workload, asks=WARM_UP + SAMPLE, batch=SAMPLE)
    gc.collect()
    gc.disable()  # Or what is found now and then would be finalized, and counted, wherever that happens.
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return asyncio.run(watch(workload, Path(scratch), Counting()))
    finally:
        gc.enable()


def part_of(code: CodeType) -> str:
    """The part that the function of *code* belongs to."""
    name = code.co_filename.removeprefix(CORE).replace(os.sep, "/")
    if code.co_qualname.startswith(WRITING):
        return "answering"
    for part, files in PARTS:
        if name.startswith(files):
            return part
    return "reading" if name == "service/services/scheduler_service.py" else "the rest"


def per_ask(workload: Workload) -> dict[str, float]:
    """Instructions per ask by part, and in all."""
    parts: Counter[str] = Counter()
    for code, number in by_function(workload).items():
        parts[part_of(code)] += number
    return {**{part: number / SAMPLE for part, number in sorted(parts.items())}, "all": parts.total() / SAMPLE}


def functions_table(workload: Workload, least: float = 2.0) -> str:
    """The functions that take *least* instructions per ask or more, those that take most first."""
    found = by_function(workload).most_common()
    return "\n".join(
        f"{number / SAMPLE:8.1f}  {part_of(code):<10} {Path(code.co_filename).stem}.{code.co_qualname}"
        for code, number in found
        if number / SAMPLE >= least
    )


BENCH: Final = CountedBench("around", SMALL, per_ask, functions_table)


if __name__ == "__main__":
    BENCH.run_command(__doc__)
