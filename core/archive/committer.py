"""The committing process: moves the spool's records to the database, and keeps the database from growing.

``python -m kornel.core.archive.committer``, started and watched by :mod:`kornel.core.archive.supervisor`. It may be
killed at any time: uncommitted records are still in the spool, and records that were committed but not removed are
committed again, which changes nothing. It runs at low priority, so that the engine gets the processor if both need it,
and it ends with the core, however the core ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from kornel.core.archive.database import Database, DatabaseTooNew, reason_of
from kornel.core.archive.link import CLOSE, Assignment, Report
from kornel.core.archive.set_aside import SetAside
from kornel.core.archive.spool import SpoolReader
from kornel.core.archive.steady_time import SteadyTime
from kornel.core.service.machine.clock import wall_ns

BATCH_RECORDS: Final = 5_000
BATCH_BYTES: Final = 32 * 2**20
"""The most bytes sent to the database at once, so few that it accepts them within the time limit."""

NICE: Final = 15
FIRST_PAUSE_S: Final = 0.2

MOST_REST: Final = 9.0
"""The longest rest while the core is busy, as a multiple of the time just worked, because the core may need every
processor.

The rest becomes shorter as the spool fills, and ends once it is half full.
"""

QUIET_S: Final = 0.3
"""The time without a new record after which the core no longer counts as busy."""


class Core:
    """Reads the messages of the core, and ends the process as soon as the core has ended."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self.assignment = Assignment.from_line(self._next_line())
        self.something: Final = threading.Event()
        """Set when something was added to the spool, or the core is stopping."""
        self.closing: Final = threading.Event()
        self._told = (self.assignment.now_ns, time.monotonic_ns())
        threading.Thread(target=self._read_lines, name="core", daemon=True).start()

    def now_ns(self) -> int:
        """Returns the time of the core's clock at its last message."""
        told_ns, then_ns = self._told
        return told_ns + time.monotonic_ns() - then_ns

    def _read_lines(self) -> None:
        while True:
            line = self._next_line()
            if line == CLOSE:
                self.closing.set()
            else:
                self._told = (int(line), time.monotonic_ns())
            self.something.set()

    def _next_line(self) -> bytes:
        while b"\n" not in self._rest:
            data = os.read(self._pipe, 65_536)
            if not data:
                # Nothing else needs this process any more, and the database and the spool survive its end at any
                # moment.
                os._exit(0)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line + b"\n"


class Committer:
    """The writer of the database; :meth:`run` returns once the core has closed the spool and it is empty, or the
    database fails."""

    def __init__(self, core: Core, report: Callable[[Report], None]) -> None:
        self._core = core
        self._report = report
        self._settings = core.assignment.settings
        self._database = Database(self._settings.url, self._settings.patience_s)
        self._spool = SpoolReader(self._settings.spool, core.assignment.sealed_before)
        self._set_aside = SetAside(self._settings.spool)
        self._time = SteadyTime((core.now_ns, wall_ns), self._settings.steady_s)
        self._told: Report | None = None

    def run(self) -> None:
        """Commit until the core closes the spool, then close the database, which completes its file."""
        try:
            self._commit_for_long()
        finally:
            # A database that no longer answers cannot be closed in an orderly way.
            with suppress(SQLAlchemyError, OSError):
                self._database.close()

    def _commit_for_long(self) -> None:
        pause_s = FIRST_PAUSE_S
        prune_at = time.monotonic()
        pruning: Callable[[], bool] | None = None
        while True:
            self._core.something.clear()
            closing = self._core.closing.is_set()
            began_s = time.process_time()
            try:
                self._database.prepare_tables()
                moved = self._commit(closing)
                now_ns = self._time.read_time()
                if pruning is None and time.monotonic() >= prune_at:
                    pruning = self._database.prune_step(self._settings.retention, now_ns)
                if pruning is not None and not pruning():
                    pruning, prune_at = None, time.monotonic() + self._settings.prune_every_s
            except Exception as error:  # noqa: BLE001 - whatever the error, records wait and the commit is tried again
                expected = isinstance(error, SQLAlchemyError | OSError | DatabaseTooNew)
                self._send_report(problem=reason_of(error), bug="" if expected else traceback.format_exc())
                self._database.forget_connections()
                pruning = None
                if self._core.closing.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, self._settings.longest_pause_s)
                continue
            pause_s = FIRST_PAUSE_S
            if moved or pruning is not None:
                self._rest_after(time.process_time() - began_s)
                continue
            self._send_report()
            if closing:
                return
            if self._core.something.wait(max(0.0, prune_at - time.monotonic())):
                self._core.closing.wait(self._settings.commit_wait_s)

    def _rest_after(self, computed_s: float) -> None:
        """Rest, so that a busy core has the processors."""
        fill = self._spool.waiting_bytes / self._settings.spool_bytes
        until = time.monotonic() + max(0.0, 1 - 2 * fill) * MOST_REST * computed_s
        while not self._core.closing.is_set() and (left_s := until - time.monotonic()) > 0:
            if not self._core.something.wait(min(QUIET_S, left_s)):
                return
            self._core.something.clear()
            self._core.closing.wait(min(0.05, left_s))

    def _commit(self, closing: bool) -> bool:
        """Move one batch from the spool to the database. Returns false if there was none."""
        frames = self._spool.read(BATCH_RECORDS, most_bytes=BATCH_BYTES, ended=closing)
        if not frames:
            return False
        committed, refused = self._database.store_frames(frames)
        if refused:
            # If the disk has no room for them, they must not delay the others; they are counted anyway.
            with suppress(OSError):
                self._set_aside.put_records(refused)
        self._spool.mark_stored(frames[-1])
        count = sum(each.records for each in refused)
        self._send_report(committed=committed, refused=count, reason=refused[0].reason if refused else "")
        return True

    def _send_report(
        self, *, committed: int = 0, refused: int = 0, reason: str = "", problem: str = "", bug: str = ""
    ) -> None:
        segment, offset = self._spool.place
        report = Report(committed, refused, reason, segment, offset, len(self._spool.damaged), problem, bug)
        if committed or report != self._told:
            self._report(report)
        self._told = report


def _send(pipe: int, report: Report) -> None:
    line = memoryview(report.to_line())
    while line:
        line = line[os.write(pipe, line) :]


def main() -> None:
    """Commit until the core closes the spool or has ended."""
    # Signals to the whole group are meant for the core; this process ends when the core does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # A sandbox may forbid this; the process then runs at full priority.
    with suppress(OSError):
        os.nice(NICE)
    # Only reports go to the original standard output, whatever a library prints.
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    Committer(Core(sys.stdin.fileno()), partial(_send, reports)).run()
    # The reading thread would delay an orderly exit, and there is nothing to clean up.
    os._exit(0)


if __name__ == "__main__":
    main()
