"""Brings the history from the engine to the disk, without the engine ever waiting.

The event loop puts records into a bounded queue. A thread takes them from there in large batches and appends them to
the spool; from then on they count as *stored*. A separate process moves them from the spool to the database, and tries
again as long as the database does not accept them (:mod:`kornel.core.archive.committer`); it does not share the
interpreter with the engine.

Stored records are never dropped. If the spool is full or cannot be written, the queue fills up; if the queue is full
too, the newest records are dropped and counted.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.archive.link import Assignment, Report
from kornel.core.archive.records import (
    RECORD_BYTES,
    Kept,
    count_bytes,
    count_entries,
    encode_batch,
    mend_text,
    split_entries,
    take_apart,
    worth_keeping,
)
from kornel.core.archive.set_aside import Refused, SetAside
from kornel.core.archive.settings import HistorySettings
from kornel.core.archive.spool import Place, SpoolWriter
from kornel.core.archive.supervisor import Supervisor
from kornel.core.archive.usage_samples import UsageSample
from kornel.core.domain.effects import Effect
from kornel.core.service.configuration.configuration_history import Version

FEW_RECORDS: Final = 1_000
"""Up to this number of waiting records, their bytes are estimated and not counted, as long as the spool keeps up."""

BATCH_RECORDS: Final = 5_000
"""The most records that are encoded at once, which takes a millisecond or two in which the engine cannot run."""

GATHER_S: Final = 0.1
"""The time for which records are collected before they are written to the disk together."""

MOST_FRAME_BYTES: Final = 16 * 2**20
"""The most bytes of a frame, unless a single record has more."""

SPOOL_PAUSE_S: Final = 0.5
WATCH_S: Final = 1.0
"""The interval of checks whether the database makes progress, while records wait for it."""

_SAID: Final = MappingProxyType({"set aside": "history: records or files were set aside, an operator must check them"})
"""The texts of the log for the beginning of a problem, by the part that found it."""


class ArchiveStatus(NamedTuple):
    """The state of the history.

    run              the number of this run of the core
    stored           the number of the last record of this run that is stored on the disk
    committed        records committed to the database since the start, including those of earlier runs
    queued           entries that are in memory only
    dropped          entries lost because neither spool nor queue had room
    refused          records of this run that the database will never accept
    set_aside        the number of entries in ``set_aside_in``: records refused in this run or an earlier one, and
                     files of the spool whose names are not right
    spool_bytes      the bytes that wait on the disk, at most ``spool_limit``
    problem          what is wrong; empty: nothing. ``problem_since_ns``: since when
    last_commit_ns   the time of the last commit; 0: there was none yet
    """

    database: str
    run: int
    stored: int
    committed: int
    queued: int
    dropped: int
    refused: int
    spool_bytes: int
    spool_limit: int
    problem: str
    problem_since_ns: int
    last_commit_ns: int
    set_aside: int
    set_aside_in: str


class _Waiting(NamedTuple):
    """Records of the same time that wait in memory. ``entries`` is their number, and ``size`` about how many bytes they
    have."""

    at_ns: int
    kept: Sequence[Kept]
    entries: int
    size: int


class Archive:
    """Keeps the history of what it observes. Use: ``start()``, ``observe()`` from one thread, ``close()``."""

    def __init__(
        self,
        settings: HistorySettings,
        *,
        now_ns: Callable[[], int],
        logger: FilteringBoundLogger,
        on_problem: Callable[[str], None] = lambda problem: None,
        keeps_events: Callable[[], bool] = lambda: True,
    ) -> None:
        """Opens the spool. Raises :class:`kornel.core.archive.spool.SpoolUnusable`.

        *keeps_events* tells whether events are kept now. *on_problem* is called by threads of the archive with the
        problem when one begins, and with an empty text when it is over.
        """
        self._settings = settings
        self._now_ns = now_ns
        self._logger = logger
        self._keeps_events = keeps_events
        self.on_problem = on_problem
        self._spool = SpoolWriter(settings.spool, settings.spool_bytes)
        self._set_aside = SetAside(settings.spool)
        self._set_aside_count = 0
        for name in self._spool.odd:
            logger.error("history: not a file of this spool, it was set aside", name=name)
        self._run = secrets.randbits(62) + 1
        self._queue: deque[_Waiting] = deque()
        self._put_in = self._put_in_bytes = 0
        """The number of entries put into the queue, which the event loop counts; the thread that empties the queue
        counts ``_taken_out``."""
        self._taken_out = self._taken_out_bytes = 0
        self._something = threading.Event()
        self._closing = threading.Event()
        self._giving_up = threading.Event()
        self._stored = 0
        self._committed = 0
        self._dropped = 0
        self._refused = 0
        self._damaged = 0
        self._last_commit_ns = 0
        self._moved_s = time.monotonic()
        """The time when the committing process last sent a message or had nothing to do."""
        self._problems: dict[str, tuple[str, int]] = {}
        """The problems by their finder, with the time of their beginning."""
        self._reporting = threading.Lock()
        self._spooling = threading.Thread(target=self._spool_what_comes, name="history-spool", daemon=True)
        self.committer: Final = Supervisor(
            lambda: Assignment(settings, self._spool.first_segment, now_ns()),
            on_report=self._handle_report,
            on_death=lambda reason: self._report_problem("database", f"the database cannot be written: {reason}"),
            longest_pause_s=settings.longest_pause_s,
        )

    def start(self) -> None:
        """Start the threads and the committing process."""
        self._spooling.start()
        self.committer.start()

    def observe(self, effects: Sequence[Effect]) -> None:
        """Keeps those of *effects* that belong to the history, if there is room. It never waits."""
        kept = worth_keeping(effects, events=self._keeps_events())
        if kept:
            self._put(kept)

    def version_added(self, version: Version) -> None:
        """Keep *version*, if there is room."""
        self._put([version])

    def keep_usage(self, samples: Sequence[UsageSample]) -> None:
        """Keep *samples*, if there is room."""
        if samples:
            self._put(samples)

    def status(self) -> ArchiveStatus:
        """Returns the present state. It may be called by any thread."""
        with self._reporting:
            problem = "; ".join(text for text, _ in self._problems.values())
            since_ns = min((since_ns for _, since_ns in self._problems.values()), default=0)
        return ArchiveStatus(
            database=self._settings.shown,
            run=self._run,
            stored=self._stored,
            committed=self._committed,
            queued=self._put_in - self._taken_out,
            dropped=self._dropped,
            refused=self._refused,
            spool_bytes=self._spool.waiting_bytes,
            spool_limit=self._settings.spool_bytes,
            problem=problem,
            problem_since_ns=since_ns,
            last_commit_ns=self._last_commit_ns,
            set_aside=self._set_aside_count,
            set_aside_in=str(self._set_aside.directory),
        )

    def close(self, patience_s: float) -> None:
        """Stores the queued records, gives the database *patience_s* seconds to accept records, and stops."""
        deadline = time.monotonic() + patience_s
        self._closing.set()
        self._something.set()
        self._spooling.join(patience_s)
        self._giving_up.set()
        # A thread that hangs in a call to the disk ends with the process.
        self._spooling.join(0.5)
        if not self._spooling.is_alive():
            self._spool.end_writing()
        self.committer.close(deadline)
        status = self.status()
        if not self._spooling.is_alive():
            self._spool.close()
        self._logger.info(
            "history closed",
            stored=status.stored,
            committed=status.committed,
            left_in_spool_bytes=status.spool_bytes,
            dropped=status.dropped + status.queued,
        )

    def _put(self, kept: Sequence[Kept]) -> None:
        settings, waiting = self._settings, self._put_in - self._taken_out
        room = max(0, settings.queue_records - waiting)
        entries = count_entries(kept)
        size = RECORD_BYTES * entries
        if waiting > FEW_RECORDS or type(kept[0]) is Version:
            size = count_bytes(kept)
            room_bytes = max(0, settings.queue_bytes - (self._put_in_bytes - self._taken_out_bytes))
            if size > room_bytes:
                room = min(room, entries * room_bytes // size)
        if room < entries:
            if not self._dropped:
                self._logger.error("history: neither spool nor queue has room, the newest records are dropped")
            self._dropped += entries - room
            size = size * room // entries
            kept, _ = split_entries(kept, room)
            entries = room
            if not kept:
                return
        self._put_in += entries
        self._put_in_bytes += size
        self._queue.append(_Waiting(self._now_ns(), kept, entries, size))
        if not self._something.is_set():
            self._something.set()

    def _spool_what_comes(self) -> None:
        try:
            self._keep_spooling()
        except Exception as error:
            self._logger.error("history: nothing is stored any more", exc_info=error)
            self._report_problem("spool", f"nothing is stored any more: {type(error).__name__}: {error}")

    def _keep_spooling(self) -> None:
        while True:
            self._look_aside()
            while not self._something.wait(WATCH_S if self._spool.waiting_bytes or self._set_aside_count else None):
                self._watch()
                self._look_aside()
            self._closing.wait(GATHER_S)
            self._something.clear()
            while self._queue:
                self._watch()
                entries, size, batch = self._take_batch()
                there_is_time = self._append_all(batch)
                self._taken_out_bytes += size
                self._taken_out += entries
                if not there_is_time:
                    return
            if self._closing.is_set():
                return

    def _watch(self) -> None:
        """Reports a database that hangs without an error, or that is slower than new records arrive."""
        waiting = self._spool.waiting_bytes
        now_s = time.monotonic()
        if not waiting:
            self._moved_s = now_s
        problem = ""
        if now_s - self._moved_s > self._settings.silence_s:
            problem = f"the database has accepted nothing for {self._settings.silence_s:g} s"
        elif 2 * waiting > self._settings.spool_bytes:
            problem = "records come faster than the database accepts them, half of the spool is in use"
        self._report_problem("progress", problem)

    def _take_batch(self) -> tuple[int, int, list[tuple[int, Sequence[Kept]]]]:
        """Takes the next batch from the queue. Returns the number of its entries, their size, and the batch."""
        batch: list[tuple[int, Sequence[Kept]]] = []
        room, taken_bytes = BATCH_RECORDS, 0
        while self._queue and room > 0:
            at_ns, kept, entries, size = self._queue.popleft()
            if entries > room:
                left = size * (entries - room) // entries
                kept, rest = split_entries(kept, room)
                self._queue.appendleft(_Waiting(at_ns, rest, entries - room, left))
                entries, size = room, size - left
            batch.append((at_ns, kept))
            room -= entries
            taken_bytes += size
        return BATCH_RECORDS - room, taken_bytes, batch

    def _append_all(self, batch: list[tuple[int, Sequence[Kept]]]) -> bool:
        """Writes *batch* to the disk, in frames small enough for one commit. Returns false if time was up; the rest is
        then counted as dropped."""
        frames = self._encode_batch(batch)
        for records, payload in frames:
            if records and not self._append(records, payload):
                self._dropped += sum(records for records, _ in frames)
                return False
        return True

    def _encode_batch(self, batch: list[tuple[int, Sequence[Kept]]]) -> Iterator[tuple[int, bytes]]:
        """Yields *batch* in frames; each frame gets its number when it is requested, so it follows the last stored
        record."""
        try:
            records, payload = encode_batch(batch, self._stored + 1)
        except Exception:  # noqa: BLE001 - which record it is comes out below
            batch = self._drop_unwritable(batch)
            records, payload = encode_batch(batch, self._stored + 1)
        if len(payload) <= MOST_FRAME_BYTES or sum(count_entries(kept) for _, kept in batch) < 2:
            yield records, payload
            return
        for half in _split_batch(batch):
            yield from self._encode_batch(half)

    def _drop_unwritable(self, batch: list[tuple[int, Sequence[Kept]]]) -> list[tuple[int, Sequence[Kept]]]:
        """Returns *batch* without the records that cannot be encoded; text that is not valid Unicode is repaired."""
        sound: list[tuple[int, Sequence[Kept]]] = []
        for at_ns, kept in batch:
            for each in take_apart(kept):
                try:
                    whole = mend_text(each)
                    encode_batch([(at_ns, [whole])], 1)
                except Exception as error:  # noqa: BLE001 - it is in nobody else's way
                    self._leave_out(each, error)
                else:
                    sound.append((at_ns, [whole]))
        return sound

    def _leave_out(self, each: Kept, error: Exception) -> None:
        self._refused += 1
        kind = type(each).__name__
        self._logger.error("history: a record was left out", kind=kind, exc_info=error)
        with suppress(OSError):
            self._set_aside.put_records([Refused(kind, self._run, 0, f"{type(error).__name__}: {error}", [each])])

    def _look_aside(self) -> None:
        """Report records that were set aside, until an operator has removed them."""
        try:
            self._set_aside_count = count = self._set_aside.count_files()
        except OSError:
            return
        lie = "record or file lies" if count == 1 else "records or files lie"
        self._report_problem("set aside", f"{count} {lie} in {self._set_aside.directory}" if count else "")

    def _append(self, records: int, payload: bytes) -> bool:
        """Writes *records* to the disk, however long it takes. Returns false if time is up."""
        while True:
            if self._spool.full:
                problem = f"the spool is full, {self._spool.waiting_bytes} bytes wait in {self._settings.spool}"
            else:
                try:
                    self._spool.append(self._run, self._stored + 1, records, payload)
                except OSError as error:
                    problem = f"the spool cannot be written: {error.strerror or error}"
                else:
                    break
            self._report_problem("spool", problem)
            if self._giving_up.wait(SPOOL_PAUSE_S):
                self._dropped += records
                return False
        self._stored += records
        self.committer.notify_process(self._now_ns())
        self._report_problem("spool", "")
        return True

    def _handle_report(self, report: Report) -> None:
        """Handle a report of the committing process."""
        self._moved_s = time.monotonic()
        self._spool.mark_stored(Place(report.segment, report.offset))
        if report.refused:
            self._refused += report.refused
            self._logger.error("history: the database refuses records", records=report.refused, reason=report.reason)
            self._something.set()  # The thread that writes the spool also looks at what was set aside.
        if report.committed:  # After what was refused: whoever sees the commit also sees what is not in it.
            self._committed += report.committed
            self._last_commit_ns = self._now_ns()
        if report.damaged > self._damaged:
            self._damaged = report.damaged
            self._logger.error("history: a part of the spool cannot be read, it was left out", segments=report.damaged)
        if report.bug:
            self._logger.error("history: bug in the committing process", traceback=report.bug)
        self._report_problem("database", f"the database cannot be written: {report.problem}" if report.problem else "")
        self._watch()

    def _report_problem(self, who: str, problem: str) -> None:
        with self._reporting:
            before = self._problems.get(who)
            if problem:
                self._problems[who] = (problem, before[1] if before is not None else self._now_ns())
            elif before is not None:
                del self._problems[who]
            else:
                return
            now = "; ".join(text for text, _ in self._problems.values())
        if problem and before is None:
            self._logger.error(_SAID.get(who, "history: records wait in the spool"), problem=problem)
        elif not problem:
            self._logger.info("history: written again", was=before[0] if before else "")
        if (before is None) != (not problem):
            self.on_problem(now)


def _split_batch(batch: list[tuple[int, Sequence[Kept]]]) -> tuple[list[tuple[int, Sequence[Kept]]], ...]:
    if len(batch) > 1:
        half = len(batch) // 2
        return batch[:half], batch[half:]
    ((at_ns, kept),) = batch
    return tuple([(at_ns, half)] for half in split_entries(kept, count_entries(kept) // 2))
