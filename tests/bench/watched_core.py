"""A core whose event loop is watched: ``python -m tests.bench.watched_core STALLS_FILE serve ...``.

A timer of a millisecond on the core's own loop notes how late it is called: so long did nobody else get a turn. It
does so in wall time, which on a machine with other work includes waiting for the processor, and in processor time of
the loop's thread, which does not. SIGUSR1 begins, SIGUSR2 writes what was seen since to the file, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from kornel.cli import app
from kornel.core.process import entry
from kornel.shared.event_loop import loop_factory
from tests.bench.processes import write_whole

BEAT_S = 0.001


class Watch:
    """Beats on *loop* and notes what came between."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        self._loop = loop
        self._file = file
        self._wall: list[float] = []
        self._processor: list[float] = []
        self._last = (time.perf_counter(), time.thread_time())
        loop.add_signal_handler(signal.SIGUSR1, self._begin)
        loop.add_signal_handler(signal.SIGUSR2, self._tell)
        loop.call_soon(self._beat)

    def _begin(self) -> None:
        self._wall.clear()
        self._processor.clear()

    def _tell(self) -> None:
        write_whole(self._file, json.dumps({"wall": self._wall, "processor": self._processor}))

    def _beat(self) -> None:
        wall, processor = time.perf_counter(), time.thread_time()
        last_wall, last_processor = self._last
        self._wall.append((wall - last_wall - BEAT_S) * 1e3)
        self._processor.append((processor - last_processor) * 1e3)
        self._last = (wall, processor)
        self._loop.call_later(BEAT_S, self._beat)


def main() -> None:
    file = Path(sys.argv.pop(1))
    build = loop_factory() or asyncio.new_event_loop

    def watched() -> asyncio.AbstractEventLoop:
        loop = build()
        Watch(loop, file)
        return loop

    vars(entry)["loop_factory"] = lambda: watched
    app.run_app()


if __name__ == "__main__":
    main()
