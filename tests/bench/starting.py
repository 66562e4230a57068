"""P17: what a core costs that begins, and one that has nothing to do for a day."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from kornel.core.engine.engine import Engine
from kornel.core.service.runner.runner import SLICE_BUDGET
from kornel.shim_mock.load.workload import Workload
from tests.bench.core_process import running_core
from tests.bench.placing import commands, ready_engine
from tests.bench.processes import apart, processor_s
from tests.bench.table import Row

DAY_NS: Final = 86_400 * 10**9
RUNNING: Final = Workload(nodes=1_000, asks=10_000)
MONITOR: Final = "    preemption: {monitor: {enabled: true, interval_ms: 1000}}\n"
"""Rounds of preemption are due each second by default; the monitor's then are as well."""


def p17(runs: int, *, quick: bool) -> Iterator[Row]:
    """Processor time of a command, time until a core serves, and processor time of an idle day."""
    yield Row("P17", "kornel version, processor time", "s", [_version() for _ in range(runs)], 0.15, at_most=True)
    started = [asyncio.run(_serve()) for _ in range(runs)]
    yield Row("P17", "kornel serve: ready after", "s", [ready for ready, _ in started], 1.0, at_most=True)
    yield Row("P17", "kornel serve: processor time until ready", "s", [used for _, used in started])
    days = [apart(spend_day, RUNNING) for _ in range(1 if quick else runs)]
    what = f"an idle day, {RUNNING.nodes:,} nodes, {RUNNING.asks:,} allocations"
    spent = [rounds_s for rounds_s, _ in days]
    yield Row("P17", f"{what}: rounds of preemption", "s", spent, 0.1, at_most=True)
    yield Row("P17", f"{what}: the engine in all", "s", [all_s for _, all_s in days])


def _version() -> float:
    """Processor time of ``kornel version``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "kornel", "version"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def _serve() -> tuple[float, float]:
    """Seconds until ``kornel serve`` listens, and the processor time of its process until then."""
    began = time.perf_counter()
    async with running_core() as (_, pid):
        return time.perf_counter() - began, processor_s(pid)


def spend_day(workload: Workload) -> tuple[float, float]:
    """Processor time of an idle day after *workload* was placed: of rounds of preemption, and in all.

    The engine is called when it wants to be, and for a round whenever one is due, as the service does.
    """
    configuration = workload.config.replace("    queues:\n", f"{MONITOR}    queues:\n", 1)
    engine, decoder = ready_engine(workload, configuration)
    for command in commands(workload, decoder):
        engine.apply(command, 1)
    now_ns = last_round_ns = 1
    _cycle(engine, now_ns)
    rounds_s, began = 0.0, time.process_time()
    while True:
        interval_ns = engine.preemption_interval_ns
        due_ns = None if interval_ns is None else last_round_ns + interval_ns
        wanted = [at_ns for at_ns in (engine.next_wakeup_ns(), due_ns) if at_ns is not None]
        if not wanted or min(wanted) > DAY_NS:
            return rounds_s, time.process_time() - began
        now_ns = max(now_ns + 1, min(wanted))
        if due_ns is not None and now_ns >= due_ns:
            round_began = time.process_time()
            engine.preempt(now_ns)
            _cycle(engine, now_ns)
            rounds_s += time.process_time() - round_began
            last_round_ns = now_ns
        else:
            _cycle(engine, now_ns)


def _cycle(engine: Engine, now_ns: int) -> None:
    while engine.cycle(now_ns, SLICE_BUDGET).more:
        pass
