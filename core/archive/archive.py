"""The history's way from the engine to the database, without anybody waiting.

The event loop puts what is worth keeping into a bounded queue. One thread takes it from there, numbers it, and puts it
into the spool; from then on it counts as *stored*. Another thread takes what the spool has to the database, in batches,
and tries again for as long as the database does not take it. A batch that was committed just before the process died is
committed again, and changes nothing.

What is stored is never dropped. When the spool is full, or cannot be written, the queue fills; when that is full, the
newest records are dropped and counted.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import orjson
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from structlog.typing import FilteringBoundLogger

from core.archive.database import Database, DatabaseTooNew
from core.archive.records import Kept, Row, encoded, rows_of, worth_keeping
from core.archive.settings import HistorySettings
from core.archive.spool import Spool
from core.domain.effects import Effect
from core.service.configuration_history import Version

BATCH_RECORDS: Final = 2_000
GATHER_S: Final = 0.05
"""How long records gather before they go to the disk together."""

MOST_REST: Final = 9.0
"""So many times as long as it has computed the committing thread rests: the engine shares the interpreter with it.

Less and less as the spool fills, and not at all once it is half full.
"""

FIRST_PAUSE_S: Final = 0.2
SPOOL_PAUSE_S: Final = 0.5


class ArchiveStatus(NamedTuple):
    """How the history is doing.

    run              number of this life of the core
    stored           records of this run that will survive it: 1 to this one
    committed        records taken to the database since start, those of earlier runs included
    queued           entries that wait in memory
    dropped          entries lost because neither spool nor queue had room
    refused          records that the database will never take
    spool_bytes      what waits on the disk, of at most ``spool_limit``
    problem          what is wrong; empty: nothing. ``problem_since_ns``: since when
    last_commit_ns   when the database took something last; 0: not yet
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


class Archive:
    """Keeps what it observes. Use: ``start()``, ``observe()`` from one thread, ``close()``."""

    def __init__(
        self,
        settings: HistorySettings,
        *,
        now_ns: Callable[[], int],
        logger: FilteringBoundLogger,
        on_problem: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """*on_problem* is told, by threads of the archive, what is wrong, and with empty text that nothing is any more.

        Raises :class:`core.archive.spool.SpoolUnusable`, and ``ImportError`` without the driver of the database.
        """
        self._settings = settings
        self._now_ns = now_ns
        self._logger = logger
        self.on_problem = on_problem
        self._database = Database(settings.url, settings.patience_s)
        self._spool = Spool(settings.spool, settings.spool_bytes)
        self._run = secrets.randbits(62) + 1
        self._queue: deque[tuple[int, Kept]] = deque()
        self._something = threading.Event()
        self._spooled = threading.Event()
        self._closing = threading.Event()
        self._giving_up = threading.Event()
        self._stored = 0
        self._committed = 0
        self._dropped = 0
        self._refused = 0
        self._last_commit_ns = 0
        self._problems: dict[str, tuple[str, int]] = {}
        """What is wrong, and since when, by who found out."""
        self._reporting = threading.Lock()
        self._threads = (
            threading.Thread(target=self._keep_spooling, name="history-spool", daemon=True),
            threading.Thread(target=self._keep_committing, name="history-commit", daemon=True),
        )
        if self._spool.damaged:
            logger.error("history: a part of the spool cannot be read, it was left out", segments=self._spool.damaged)

    def start(self) -> None:
        """Begin to write."""
        for thread in self._threads:
            thread.start()

    def observe(self, effects: Sequence[Effect]) -> None:
        """Keep those of *effects* that are worth it, if there is room. Never waits."""
        kept = worth_keeping(effects)
        if kept:
            self._put(kept)

    def version_added(self, version: Version) -> None:
        """Keep *version*, if there is room."""
        self._put([version])

    def status(self) -> ArchiveStatus:
        """As of now. From any thread."""
        with self._reporting:
            problem = "; ".join(text for text, _ in self._problems.values())
            since_ns = min((since_ns for _, since_ns in self._problems.values()), default=0)
        return ArchiveStatus(
            database=self._settings.shown,
            run=self._run,
            stored=self._stored,
            committed=self._committed,
            queued=len(self._queue),
            dropped=self._dropped,
            refused=self._refused,
            spool_bytes=self._spool.waiting_bytes,
            spool_limit=self._settings.spool_bytes,
            problem=problem,
            problem_since_ns=since_ns,
            last_commit_ns=self._last_commit_ns,
        )

    def close(self, patience_s: float) -> None:
        """Store what is queued, have the database take what it can within *patience_s* seconds, and stop."""
        deadline = time.monotonic() + patience_s
        self._closing.set()
        self._something.set()
        spooling, committing = self._threads
        spooling.join(patience_s)
        self._spooled.set()
        committing.join(max(0.0, deadline - time.monotonic()))
        self._giving_up.set()
        self._spooled.set()
        for thread in self._threads:
            # One that hangs in a call to the database ends with the process.
            thread.join(0.5)
        status = self.status()
        if not any(thread.is_alive() for thread in self._threads):
            self._spool.close()
            self._database.forget_connections()
        self._logger.info(
            "history closed",
            stored=status.stored,
            committed=status.committed,
            left_in_spool_bytes=status.spool_bytes,
            dropped=status.dropped + len(self._queue),
        )

    def _put(self, kept: Sequence[Kept]) -> None:
        room = self._settings.queue_records - len(self._queue)
        if room < len(kept):
            if not self._dropped:
                self._logger.error("history: neither spool nor queue has room, the newest records are dropped")
            self._dropped += len(kept) - max(0, room)
            kept = kept[: max(0, room)]
        now_ns = self._now_ns()
        self._queue.extend([(now_ns, each) for each in kept])
        if not self._something.is_set():
            self._something.set()

    def _keep_spooling(self) -> None:
        while True:
            self._something.wait()
            self._closing.wait(GATHER_S)
            self._something.clear()
            while self._queue:
                rows = self._take()
                if rows and not self._spool_rows(rows):
                    return
            if self._closing.is_set():
                return

    def _take(self) -> list[Row]:
        """The next batch out of the queue."""
        rows: list[Row] = []
        seq = self._stored + 1
        while self._queue and len(rows) < BATCH_RECORDS:
            at_ns, kept = self._queue.popleft()
            try:
                rows += rows_of(kept, at_ns, seq + len(rows))
            except Exception as error:
                self._refused += 1
                self._logger.error("history: a record was left out", kind=type(kept).__name__, exc_info=error)
        return rows

    def _spool_rows(self, rows: list[Row]) -> bool:
        """Put *rows* on the disk, however long it takes. False: time is up."""
        try:
            payload = encoded(rows)
        except orjson.JSONEncodeError as error:
            self._logger.error("history: records that are no text were left out", records=len(rows), error=str(error))
            self._refused += len(rows)
            return True
        while True:
            if self._spool.full:
                problem = f"the spool is full, {self._spool.waiting_bytes} bytes wait in {self._settings.spool}"
            else:
                try:
                    self._spool.append(self._run, self._stored + 1, len(rows), payload)
                except OSError as error:
                    problem = f"the spool cannot be written: {error.strerror or error}"
                else:
                    break
            self._report("spool", problem)
            if self._giving_up.wait(SPOOL_PAUSE_S):
                self._dropped += len(rows)
                return False
        self._stored += len(rows)
        self._spooled.set()
        self._report("spool", "")
        return True

    def _keep_committing(self) -> None:
        pause_s = FIRST_PAUSE_S
        prune_at = time.monotonic()
        pruning: Callable[[], bool] | None = None
        while not self._giving_up.is_set():
            began_s = time.thread_time()
            try:
                self._database.prepare()
                moved = self._commit()
                if pruning is None and time.monotonic() >= prune_at:
                    pruning = self._database.prune(self._settings.retention, self._now_ns())
                if pruning is not None and not pruning():
                    pruning, prune_at = None, time.monotonic() + self._settings.prune_every_s
            except Exception as error:
                if not isinstance(error, SQLAlchemyError | OSError | DatabaseTooNew):
                    self._logger.error("history: bug in the writer", exc_info=error)
                self._report("database", f"the database cannot be written: {_reason(error)}")
                self._database.forget_connections()
                pruning = None
                if self._pause(pause_s):
                    return
                pause_s = min(2 * pause_s, self._settings.longest_pause_s)
                continue
            pause_s = FIRST_PAUSE_S
            self._report("database", "")
            if moved or pruning is not None:
                fill = self._spool.waiting_bytes / self._settings.spool_bytes
                self._closing.wait(max(0.0, 1 - 2 * fill) * MOST_REST * (time.thread_time() - began_s))
                continue
            if self._closing.is_set() and not self._threads[0].is_alive() and not self._spool.waiting_bytes:
                return
            if self._spooled.wait(min(1.0, self._settings.prune_every_s)):
                self._spooled.clear()
                self._closing.wait(self._settings.commit_wait_s)

    def _commit(self) -> bool:
        """Take one batch from the spool to the database. False: there was none."""
        frames = self._spool.read(BATCH_RECORDS)
        if not frames:
            return False
        records, refused = self._database.store(frames)
        self._spool.done(frames[-1])
        self._committed += records
        self._last_commit_ns = self._now_ns()
        if refused:
            self._refused += len(refused)
            self._logger.error("history: the database refuses records", records=len(refused), reason=refused[0])
        return True

    def _pause(self, pause_s: float) -> bool:
        """Wait before the next try. True: there is to be none, because the core goes down."""
        return self._giving_up.wait(pause_s) or self._closing.is_set()

    def _report(self, who: str, problem: str) -> None:
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
            self._logger.error("history: records wait in the spool", problem=problem, spool=str(self._settings.spool))
        elif not problem:
            self._logger.info("history: written again", was=before[0] if before else "")
        if (before is None) != (not problem):
            self.on_problem(now)


def _reason(error: Exception) -> str:
    """In one line; drivers add hints, SQLAlchemy the statement with its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(cause).split())[:300] or type(cause).__name__
