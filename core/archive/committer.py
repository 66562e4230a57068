"""The committing process: moves the spool's records to the database, and keeps the database from growing.

It is a helper (:mod:`kornel.core.service.machine.helpers`), watched by :mod:`kornel.core.archive.supervisor`. It may be
killed at any time: uncommitted records are still in the spool, and records that were committed but not removed are
committed again, which changes nothing.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from kornel.core.archive.database import Database, DatabaseTooNew, reason_of
from kornel.core.archive.link import CLOSE, Assignment, Report
from kornel.core.archive.set_aside import SetAside
from kornel.core.archive.spool import SpoolReader
from kornel.core.archive.steady_time import SteadyTime
from kornel.core.service.machine.clock import wall_ns
from kornel.core.service.machine.helpers import Core, lower_priority

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


class Inbox:
    """Notes the messages of the core."""

    def __init__(self, core: Core) -> None:
        self.assignment: Final[Assignment] = core.receive()
        self.something: Final = threading.Event()
        """Set when something was added to the spool, or the core is stopping."""
        self.closing: Final = threading.Event()
        self._told: tuple[int, int] = (self.assignment.now_ns, time.monotonic_ns())
        core.watch(self._take_message)

    def now_ns(self) -> int:
        """Returns the time of the core's clock at its last message."""
        told_ns, then_ns = self._told
        return told_ns + time.monotonic_ns() - then_ns

    def _take_message(self, message: int | None) -> None:
        if message is CLOSE:
            self.closing.set()
        else:
            self._told = (message, time.monotonic_ns())
        self.something.set()


class Committer:
    """The writer of the database; :meth:`run` returns once the core has closed the spool and it is empty, or the
    database fails."""

    def __init__(self, inbox: Inbox, report: Callable[[Report], None]) -> None:
        self._inbox = inbox
        self._report = report
        self._settings = inbox.assignment.settings
        self._database = Database(self._settings.url, self._settings.patience_s)
        self._spool = SpoolReader(self._settings.spool, inbox.assignment.sealed_before)
        self._set_aside = SetAside(self._settings.spool)
        self._time = SteadyTime((inbox.now_ns, wall_ns), self._settings.steady_s)
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
            self._inbox.something.clear()
            closing = self._inbox.closing.is_set()
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
                if self._inbox.closing.wait(pause_s):
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
            if self._inbox.something.wait(max(0.0, prune_at - time.monotonic())):
                self._inbox.closing.wait(self._settings.commit_wait_s)

    def _rest_after(self, computed_s: float) -> None:
        """Rest, so that a busy core has the processors."""
        fill = self._spool.waiting_bytes / self._settings.spool_bytes
        until = time.monotonic() + max(0.0, 1 - 2 * fill) * MOST_REST * computed_s
        while not self._inbox.closing.is_set() and (left_s := until - time.monotonic()) > 0:
            if not self._inbox.something.wait(min(QUIET_S, left_s)):
                return
            self._inbox.something.clear()
            self._inbox.closing.wait(min(0.05, left_s))

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


def work_for_core(core: Core) -> None:
    """Commits until the core closes the spool or has ended."""
    lower_priority(NICE)
    Committer(Inbox(core), core.send).run()
