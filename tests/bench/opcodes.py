"""What the engine executes for one ask, counted in bytecode instructions: the measure that no machine changes.

A small fixed workload, the same in every run: after a warm-up, SAMPLE asks are taken in from their messages, placed,
and answered, with every instruction of ours counted. The counts depend on the code and on the minor version of Python
only (hash seed 0), so the baselines beside this file are kept per version. ``python -m tests.bench.opcodes`` prints
them as JSON, ``--record`` makes them the baseline of this version.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from kornel.core.domain.effects import Allocated, AllocationEffect
from kornel.core.engine.engine import Engine
from kornel.core.service.runner.runner import SLICE_BUDGET
from kornel.core.service.wire.scheduler_wire import Encoder
from kornel.shim_mock.load.workload import Workload
from tests.bench.core_process import RM
from tests.bench.counted import CountedBench
from tests.bench.placing import P1, P2_FLAT, P2_NESTED, P3, ready_engine

WARM_UP, SAMPLE = 1_000, 500
"""Asks; after the warm-up every application runs something, unless it has a single ask."""

SMALL = {
    "P1": replace(P1, nodes=300),
    "P2 flat": replace(P2_FLAT, nodes=300),
    "P2 nested": replace(P2_NESTED, nodes=300),
    "P2 an ask each": replace(P2_FLAT, nodes=300, applications=(WARM_UP + SAMPLE) // P2_FLAT.queues[0]),
    "P3": replace(P3, nodes=300),
}
"""The workloads; in one of them, each ask is the first of its application, which changes its state twice."""


def counted(act: Callable[[], Any]) -> tuple[int, Any]:
    """Bytecode instructions that *act* executes, and what it returns."""
    by_function, result = counted_by_function(act)
    return by_function.total(), result


def counted_by_function(act: Callable[[], Any]) -> tuple[Counter[CodeType], Any]:
    """The same by the code of each function, those that it calls not included."""
    count: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
        elif event == "opcode":
            count[frame.f_code] += 1
        return trace

    others = sys.gettrace()
    gc.collect()
    gc.disable()  # Or what other tests have left behind would be finalized, and counted, here.
    sys.settrace(trace)
    try:
        result = act()
    finally:
        sys.settrace(others)
        gc.enable()
    return count, result


def per_ask(workload: Workload) -> dict[str, float]:
    """Instructions per ask: reading its message, deciding, answering."""
    return {part: count.total() / SAMPLE for part, count in by_function(workload).items()}


def by_function(workload: Workload) -> dict[str, Counter[CodeType]]:
    """Instructions for all asks of the sample by function: reading their messages, deciding, answering."""
    workload = replace(workload, asks=WARM_UP + SAMPLE, batch=SAMPLE)
    engine, decoder = ready_engine(workload)
    encoder = Encoder()
    *before, message = workload.ask_messages(RM)
    for earlier in before:
        encoder.encode_allocations(_decided(engine, list(decoder.allocation_commands(earlier))))
    reading, commands = counted_by_function(lambda: list(decoder.allocation_commands(message)))
    deciding, effects = counted_by_function(lambda: _decided(engine, commands))
    encoder.encode_allocations(effects)  # Lengths of messages are remembered for good, so others may have met them.
    answering, _ = counted_by_function(lambda: encoder.encode_allocations(effects))
    placed = sum(isinstance(effect, Allocated) for effect in effects)
    if placed != SAMPLE:
        raise AssertionError(f"{placed} of {SAMPLE} asks were placed")
    return {"reading": reading, "deciding": deciding, "answering": answering}


def functions_table(workload: Workload, least: float = 5.0) -> str:
    """The functions that take *least* instructions per ask or more, those that take most first."""
    lines = []
    for part, count in by_function(workload).items():
        lines.append(f"{count.total() / SAMPLE:8.1f}  {part}")
        for code, number in count.most_common():
            if number / SAMPLE >= least:
                lines.append(f"{number / SAMPLE:8.1f}    {Path(code.co_filename).stem}.{code.co_qualname}")
    return "\n".join(lines)


def _decided(engine: Engine, commands: list[Any]) -> list[AllocationEffect]:
    effects: list[Any] = []
    for command in commands:
        effects += engine.apply(command, 1)
    more = True
    while more:
        result = engine.cycle(1, SLICE_BUDGET)
        effects += result.effects
        more = result.more
    return [effect for effect in effects if isinstance(effect, Allocated)]


BENCH: Final = CountedBench("opcodes", SMALL, per_ask, functions_table)


if __name__ == "__main__":
    BENCH.run_command(__doc__)
