"""The largest costs of an ask outside the engine, from a sampling profile of a core in this process.

The core is that of :mod:`tests.bench.around`: everything but gRPC, which calls us once for a message. A thread looks a
thousand times a second at what all others execute. A look that finds the engine counts for it; any other counts for the
innermost function of ours. Looks share the processor time of the sample, so machine and load move all costs alike.

``python -m tests.bench.costs`` prints them for P2.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from kornel.core.load.workload import Workload
from tests.bench import around
from tests.bench.placing import P2_FLAT
from tests.bench.processes import apart

LOOK_EACH_S: Final = 0.001
SHOWN: Final = 3
ENGINE: Final = "the engine"
_RESTING: Final = frozenset({"wait", "select", "run_until_complete", "run", "_worker", "get", "poll", "sleep"})
"""Functions of libraries in which a thread waits. What runs in the event loop has functions of ours above them."""


class Sampling:
    """Looks at all threads now and then; see :class:`tests.bench.around.Watching`."""

    def __init__(self) -> None:
        self.seen: Counter[CodeType] = Counter()
        self.in_engine = 0
        self.took_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def begin(self) -> None:
        """Look from here on."""
        self.took_s = -time.process_time()
        self._thread.start()

    def pause(self) -> None:
        """What is left of the sample counts as well."""

    def end(self) -> Counter[CodeType]:
        """Returns in how many looks each function was found."""
        self._ended.set()
        self._thread.join()
        self.took_s += time.process_time()
        return self.seen

    def _look(self) -> None:
        own = threading.get_ident()
        while not self._ended.wait(LOOK_EACH_S):
            for thread, frame in sys._current_frames().items():
                if thread != own:
                    self._count(frame)

    def _count(self, innermost: FrameType) -> None:
        found: CodeType | None = None
        frame: FrameType | None = innermost
        if not innermost.f_code.co_filename.startswith(around.CORE) and innermost.f_code.co_name in _RESTING:
            return
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(around.ENGINE) and not name.startswith(around.EVENTS):
                self.in_engine += 1
                return
            if found is None and name.startswith(around.CORE):
                found = frame.f_code
            frame = frame.f_back
        if found is not None:
            self.seen[found] += 1


def costs(workload: Workload) -> list[tuple[str, float]]:
    """Microseconds of processor time for each ask of *workload*: of the engine, then of each function outside it, the
    largest first."""
    switching = sys.getswitchinterval()
    sampling = Sampling()
    sys.setswitchinterval(LOOK_EACH_S / 2)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            seen = asyncio.run(around.watch(workload, Path(scratch), sampling))
    finally:
        sys.setswitchinterval(switching)
    looks = sampling.in_engine + seen.total()
    each_us = sampling.took_s / (workload.asks - workload.batch) / max(1, looks) * 1e6
    named = Counter[str]()
    for code, number in seen.items():
        named[f"{around.part_of(code)}: {Path(code.co_filename).stem}.{code.co_qualname}"] += number
    return [(ENGINE, sampling.in_engine * each_us), *((name, n * each_us) for name, n in named.most_common())]


def summary(*, quick: bool) -> str:
    """The largest costs of P2 beside the engine's, in a line each, found in an interpreter of its own."""
    found = apart(costs, replace(P2_FLAT, nodes=2_000, asks=5_000 if quick else 16_000))
    (_, engine_us), *others = found
    lines = [
        f"per ask of P2: the engine {engine_us:.1f} us, all around it {sum(us for _, us in others):.1f} us; most of it"
    ]
    return "\n".join([*lines, *(f"  {us:5.2f} us  {name}" for name, us in others[:SHOWN])])


if __name__ == "__main__":
    print(summary(quick=False))
