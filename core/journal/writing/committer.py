"""The thread that writes records to the store, all waiting ones at once.

The event loop adds calls with their effects and never waits. The thread computes the sum of the effects, makes one
block of everything that was added since the last one, and commits it in one transaction, with SQLite also in one flush
of the disk. If this fails, the same block is tried again until it succeeds, or until another core turns out to have
written in this one's place. Nothing is dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.effects import Effect
from kornel.core.journal.content.calls import CallOutcome, CallResult, EngineCall
from kornel.core.journal.content.effect_sums import sum_effects
from kornel.core.journal.content.records import Block, BlockWriter
from kornel.core.journal.database.settings import JournalSettings
from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, StoreTaken, describe_error, is_full
from kornel.core.service.metrics.metrics import Durations

CALLS_PER_BLOCK: Final = 512
EFFECTS_PER_BLOCK: Final = 10_000
"""The bounds of a block. It ends there even if more records wait, because its records are made at once and kept in
memory until it is committed."""

BURST_STEPS: Final = 64
"""The number of records and effects in a block after which the next one waits, because as many are likely to follow."""
BURST_PAUSE_S: Final = 0.005
"""The time for which it waits. Each block costs the engine more than its commit: the thread takes the interpreter from
it several times."""

SHORTEST_PAUSE_S: Final = 0.05

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The bounds of the buckets in the histogram of commit times."""


class StoreProblem(NamedTuple):
    """The reason why nothing is written. ``full`` says that the store has no room. ``lost`` says that another core has
    taken over, so this one will never write again."""

    text: str
    full: bool = False
    lost: bool = False


class _Added(NamedTuple):
    call: EngineCall
    outcome: CallOutcome
    effects: Sequence[Effect]


class Committer:
    """Writes the calls that are added. Use: ``start()``, ``add()`` from one thread, ``close()``.

    The thread calls *on_durable* with the number of the last durable record, and *on_problem* with a problem, or with
    ``None`` when the problem is over.
    """

    def __init__(
        self,
        store: JournalStore,
        writer: BlockWriter,
        settings: JournalSettings,
        *,
        life: int,
        delivered: int,
        on_durable: Callable[[int], None],
        on_problem: Callable[[StoreProblem | None], None],
        on_bug: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._writer = writer
        self._settings = settings
        self._life = life
        self._on_durable = on_durable
        self._on_problem = on_problem
        self._on_bug = on_bug
        self._queue: deque[_Added] = deque()
        self._something = threading.Event()
        self._urgent = threading.Event()
        self._closing = threading.Event()
        self._effects_sums: dict[int, int] = {}
        """The sum of the effects of each place."""
        self._problem: StoreProblem | None = None
        self._appending = (0, 0.0)
        """The last record of the block that is being appended, and since when; 0: none is."""
        self.added = writer.sequence
        """The number of the last record that was added."""
        self.delivered = delivered
        """The number of the record up to which all effects have been passed to the transport."""
        self.steps = 0
        """The number of records and effects that were made ready to be written."""
        self.bytes = 0
        self.last_commit_ns = 0
        self.commits = Durations(BUCKETS_S)
        """The durations of commits."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        """Add *call* to the records to be written. If it had *effects*, it is written soon, because clients wait for
        them."""
        self._queue.append(_Added(call, outcome, effects))
        self.added += 1
        if not self._something.is_set():
            self._something.set()
        if effects:
            self.commit_soon()

    def commit_soon(self) -> None:
        """Have everything that was added written at once, because clients wait for it."""
        if not self._urgent.is_set():
            self._urgent.set()

    def find_unanswered(self, after_s: float) -> int:
        """Returns the last record of a block whose append has not been answered for *after_s*; 0: there is none."""
        record, since_s = self._appending
        return record if record and time.monotonic() - since_s >= after_s else 0

    def close(self, patience_s: float) -> bool:
        """Write everything that was added, for at most *patience_s* seconds, and stop. Returns whether all of it was
        written."""
        self._closing.set()
        self._something.set()
        self._urgent.set()
        if self._thread.is_alive():
            self._thread.join(patience_s)
        return not self._thread.is_alive() and not self._queue and self._problem is None

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except Exception as error:  # noqa: BLE001 - nothing may leave the core any more, and somebody has to know
            self._on_bug(error)
            self._report_problem(
                StoreProblem(f"the journal cannot be written: {type(error).__name__}: {error}", lost=True)
            )

    def _write_until_closed(self) -> None:
        while True:
            self._something.wait()
            self._urgent.wait(self._settings.gather_s)
            self._something.clear()
            self._urgent.clear()
            while self._queue:
                steps = self.steps
                calls = self._take_calls()
                while calls:
                    block = self._writer.make_block(calls, self.delivered)
                    if not self._commit(block):
                        return
                    self._on_durable(block.last)
                    del calls[: block.last - block.first + 1]
                if self.steps - steps >= BURST_STEPS:
                    self._closing.wait(BURST_PAUSE_S)
            if self._closing.is_set():
                return

    def _take_calls(self) -> list[tuple[EngineCall, CallResult]]:
        taken: list[tuple[EngineCall, CallResult]] = []
        room = EFFECTS_PER_BLOCK
        queue = self._queue
        while queue and room > 0 and len(taken) < CALLS_PER_BLOCK:
            call, outcome, effects = queue.popleft()
            count = len(effects)
            room -= count
            sums = self._effects_sums
            effects_sum = sums.get(call.place, 0)
            if count:
                sums[call.place] = effects_sum = sum_effects(effects, effects_sum)
            self.steps += 1 + count
            taken.append((call, CallResult(outcome, count, effects_sum)))
        return taken

    def _commit(self, block: Block) -> bool:
        """Commit *block*, however long it takes. Returns false if it can never be committed, or if time is up."""
        pause_s = SHORTEST_PAUSE_S
        while True:
            began = time.perf_counter()
            self._appending = (block.last, time.monotonic())
            try:
                self._store.append_block(block, self._life)
            except StoreTaken as error:
                self._report_problem(StoreProblem(str(error), lost=True))
                return False
            except STORE_ERRORS as error:
                self._report_problem(StoreProblem(describe_error(error), full=is_full(error)))
                self._store.forget_connections()
            else:
                self._count_commit(block, time.perf_counter() - began)
                self._report_problem(None)
                return True
            finally:
                self._appending = (0, 0.0)
            if self._closing.wait(pause_s):
                return False
            pause_s = min(2 * pause_s, self._settings.longest_pause_s)

    def _count_commit(self, block: Block, took_s: float) -> None:
        self.bytes += len(block.payload)
        self.last_commit_ns = block.at_ns
        self.commits.add(took_s)

    def _report_problem(self, problem: StoreProblem | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_problem(problem)
