"""Has snapshots made of the journal that this core writes: from time to time, and when the core ends.

A separate thread starts the process that makes them (:mod:`kornel.core.journal.snapshot_process`) and waits for it, so
that the event loop need not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.journal.database.settings import JournalSettings
from kornel.core.journal.snapshot_process import MODULE, Assignment, Outcome
from kornel.core.service.machine.helpers import Helper, HelperEnded


class SnapshotStatus(NamedTuple):
    """The snapshots of the journal.

    sequence  number of the record after which the newest one was taken; 0: there is none
    at_ns     the core's time at that record
    size      its bytes; 0: unknown, because an earlier core made it
    took_s    the time that its making took
    problem   the reason why the last one could not be made; empty: it was made
    """

    sequence: int = 0
    at_ns: int = 0
    size: int = 0
    took_s: float = 0.0
    problem: str = ""


class SnapshotKeeper:
    """Has snapshots made. Use: :meth:`start`, then :meth:`end` and :meth:`close`.

    *count_steps* returns the number of records and effects that were written so far; it may begin with any number.
    """

    def __init__(
        self,
        settings: JournalSettings,
        version: str,
        *,
        count_steps: Callable[[], int],
        newest: SnapshotStatus,
        waiting_steps: int,
        logger: FilteringBoundLogger,
    ) -> None:
        """Prepares the keeper. *newest* is the snapshot with which this core began; *waiting_steps* is the number of
        records and effects that it has replayed after that."""
        self._settings = settings
        self._version = version
        self._count_steps = count_steps
        self._logger = logger
        self._covered = count_steps() - waiting_steps
        self._replayed_many = waiting_steps >= settings.times.replayed_steps
        self.status = newest
        """The present state of the snapshots."""
        self._helper: Helper | None = None
        self._closing = threading.Event()
        self._made_s = time.monotonic()
        self._not_before_s = 0.0
        self._thread: Final = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def start(self) -> None:
        """Have snapshots made from now on."""
        self._thread.start()

    def end(self) -> None:
        """Blocks while a last snapshot is made, after everything was written."""
        self._stop_thread()
        if self._settings.times.ending_s and self._count_steps() > self._covered:
            self._make_snapshot(ending=True)

    def close(self) -> None:
        """Have no more snapshots made, and give up the one that is being made."""
        self._stop_thread()

    def _stop_thread(self) -> None:
        self._closing.set()
        if self._helper is not None:
            self._helper.kill_process()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._settings.times.look_s):
            if self._is_due():
                self._make_snapshot()

    def _is_due(self) -> bool:
        times, steps, now_s = self._settings.times, self._count_steps() - self._covered, time.monotonic()
        if not steps or now_s < self._not_before_s:
            return False
        return self._replayed_many or steps >= times.every_steps or now_s - self._made_s >= times.every_s

    def _make_snapshot(self, *, ending: bool = False) -> None:
        steps, began_s = self._count_steps(), time.monotonic()
        try:
            outcome = self._run_process(ending=ending)
        except HelperEnded as end:
            outcome = Outcome(problem=f"the process that makes snapshots {end}")
        except OSError as error:
            outcome = Outcome(problem=f"the process that makes snapshots cannot be started: {error}")
        if self._closing.is_set() and not ending:
            return  # The process was killed because another snapshot is to be made.
        took_s = time.monotonic() - began_s
        self._made_s = time.monotonic()
        self._not_before_s = self._made_s + took_s / self._settings.times.most_work
        if outcome.problem:
            if outcome.problem != self.status.problem:
                self._logger.error("snapshot could not be made", problem=outcome.problem)
            self.status = self.status._replace(problem=outcome.problem)
            return
        self._covered, self._replayed_many = steps, False
        size = outcome.size or self.status.size
        self.status = SnapshotStatus(outcome.sequence, outcome.at_ns, size, outcome.took_s)
        self._logger.info(
            "snapshot made", record=outcome.sequence, bytes=size, took_s=outcome.took_s, blocks_pruned=outcome.pruned
        )

    def _run_process(self, *, ending: bool) -> Outcome:
        settings = self._settings
        assignment = Assignment(
            settings.url.render_as_string(hide_password=False),
            settings.patience_s,
            self._version,
            settings.kept.age_s,
            settings.kept.size_bytes,
            ending,
        )
        helper = self._helper = Helper(MODULE, assignment)
        if self._closing.is_set() and not ending:
            return Outcome()
        timer = threading.Timer(settings.times.ending_s, helper.kill_process)
        with helper:
            if ending:
                timer.start()
            try:
                outcome: Outcome = helper.receive()
            finally:
                timer.cancel()
            return outcome
