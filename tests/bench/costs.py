"""The largest costs of an ask outside the engine, from a sampling profile of a core in this process.

The core is that of :mod:`tests.bench.around`: everything but gRPC, which calls us once for a message. After each
hundredth of a second of the process's own time, a signal interrupts the event loop, and its handler looks at what all
threads execute. The processor time that a thread has used since the look before counts for the engine if the look finds
it there, and otherwise for the part to which the innermost function of ours belongs.

A thread that looks would have to ask for the interpreter. It got it where the event loop lets it go, and so never in
the engine; and the journal's thread then got it more often too, committed as often, and seemed to take twice as much.

``python -m tests.bench.costs`` prints them for P2.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from kornel.shim_mock.load.workload import Workload
from tests.bench import around
from tests.bench.placing import P2_FLAT
from tests.bench.processes import apart

LOOK_EACH_S: Final = 0.01
SHOWN: Final = 3
ENGINE: Final = "the engine"
AROUND: Final = "all around it"


class Sampling:
    """Looks at all threads now and then; see :class:`tests.bench.around.Watching`. Counts nanoseconds."""

    def __init__(self) -> None:
        self.seen: Counter[CodeType] = Counter()
        self.in_engine = 0
        self._spent: dict[int, int] = {}

    def begin(self) -> None:
        """Look from here on."""
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, LOOK_EACH_S, LOOK_EACH_S)

    def pause(self) -> None:
        """What is left of the sample counts as well."""

    def end(self) -> Counter[CodeType]:
        """Returns what each function took."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        return self.seen

    def _look(self, _number: int, interrupted: FrameType | None) -> None:
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            spent = time.clock_gettime_ns(time.pthread_getcpuclockid(thread))
            found = interrupted if thread == own else frame
            if found is not None:
                self._count(found, spent - self._spent.get(thread, spent))
            self._spent[thread] = spent

    def _count(self, innermost: FrameType, spent_ns: int) -> None:
        found: CodeType | None = None
        frame: FrameType | None = innermost
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(around.ENGINE) and not name.startswith(around.EVENTS):
                self.in_engine += spent_ns
                return
            if found is None and name.startswith(around.CORE):
                found = frame.f_code
            frame = frame.f_back
        if found is not None:
            self.seen[found] += spent_ns


def costs(workload: Workload) -> list[tuple[str, float]]:
    """Microseconds of processor time for each ask of *workload*: of the engine, then of each part around it, the
    largest first."""
    sampling = Sampling()
    with tempfile.TemporaryDirectory() as scratch:
        seen = asyncio.run(around.watch(workload, Path(scratch), sampling))
    asks = workload.asks - workload.batch
    named = Counter[str]()
    for code, spent_ns in seen.items():
        named[around.part_of(code)] += spent_ns
    each_us = {ENGINE: sampling.in_engine, **dict(named.most_common())}
    return [(name, spent_ns / asks / 1e3) for name, spent_ns in each_us.items()]


def largest(*, quick: bool) -> dict[str, float]:
    """What an ask of P2 takes in the engine, then in all around it, then the largest parts of that: microseconds of
    processor time, found in an interpreter of its own."""
    workload = replace(P2_FLAT, nodes=2_000, asks=10_000) if quick else P2_FLAT
    (_, engine_us), *others = apart(costs, workload)
    return {ENGINE: engine_us, AROUND: sum(us for _, us in others), **dict(others[:SHOWN])}


def summary(found_us: Mapping[str, float]) -> str:
    """What :func:`largest` found, a line for each part."""
    (_, engine_us), (_, around_us), *others = found_us.items()
    first = f"an ask of P2 takes {engine_us:.1f} us in the engine and {around_us:.1f} us around it, most of them in"
    return "\n".join([first, *(f"  {us:5.2f} us  {name}" for name, us in others)])


if __name__ == "__main__":
    print(summary(largest(quick=False)))
