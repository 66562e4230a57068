"""Makes a snapshot in a process of its own, a helper that :mod:`kornel.core.journal.snapshot_keeper` starts.

It begins with the newest snapshot, replays in its own engine the records that the core has written since then, writes
the state of this engine as a snapshot, and removes everything that need no longer be kept. So the core neither stops
nor waits, and a snapshot is made only if the replay had the same results as the journal. The process gets an
:class:`Assignment`, and answers with an :class:`Outcome`. It may be killed at any time: a snapshot exists completely or
not at all.
"""

from __future__ import annotations

import io
import time
import traceback
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from sqlalchemy.engine import make_url

from kornel.core.journal.content.replay import pause_collecting
from kornel.core.journal.database.settings import KeptJournal
from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, describe_error
from kornel.core.journal.following.following import Follower
from kornel.core.journal.following.starting import play_all
from kornel.core.journal.snapshots.retention import prune_journal
from kornel.core.journal.snapshots.snapshot_store import SnapshotStore, opened_snapshots
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.helpers import Core, lower_priority
from kornel.core.snapshot.writing import WorkUnderWay

MODULE: Final = "kornel.core.journal.snapshot_process"
NICE: Final = 10
"""Beside a busy core the process still gets a tenth of a processor: with less it would never catch up."""
LOOKS: Final = 200
PAUSE_S: Final = 0.05
"""The number of times that the process looks for further records while the engine has work under way, and the pause
between two looks."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of the process. ``version`` is that of the core. ``ending`` says that the core ends, so that it does not
    need the processor, and nothing more will be written."""

    url: str
    patience_s: float
    version: str
    age_s: int
    size_bytes: int
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the work. ``sequence`` is the number of the record after which there is a snapshot now; 0: there is
    none.

    at_ns     the core's time at that record
    size      bytes of the snapshot; 0: it existed before
    took_s    the time that its making took
    pruned    blocks that were removed
    problem   the reason why there is no snapshot; empty: there is one
    """

    sequence: int = 0
    at_ns: int = 0
    size: int = 0
    took_s: float = 0.0
    pruned: int = 0
    problem: str = ""


def make_snapshot(assignment: Assignment) -> Outcome:
    """Makes a snapshot and prunes the journal."""
    began = time.monotonic()
    url = make_url(assignment.url)
    try:
        with ExitStack() as stack:
            snapshots = stack.enter_context(opened_snapshots(url, assignment.patience_s))
            store = stack.enter_context(closing(JournalStore(url, assignment.patience_s, read_only=True)))
            outcome = _add_snapshot(assignment, store, snapshots)
            if outcome.problem:
                return outcome
            stack.enter_context(closing(writing := JournalStore(url, assignment.patience_s)))
            kept = KeptJournal(assignment.age_s, assignment.size_bytes)
            pruned = prune_journal(writing, snapshots, kept).blocks
    except (ImportError, *STORE_ERRORS) as error:
        return Outcome(problem=describe_error(error))
    return Outcome(outcome.sequence, outcome.at_ns, outcome.size, round(time.monotonic() - began, 3), pruned)


def _add_snapshot(assignment: Assignment, store: JournalStore, snapshots: SnapshotStore) -> Outcome:
    follower = Follower(store, version=assignment.version)
    logger = build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO())  # The core logs the result.
    began = play_all(follower, snapshots, logger)
    with pause_collecting():
        for _ in range(LOOKS):
            if follower.problem is not None:
                return Outcome(problem=f"the journal cannot be replayed: {follower.problem.text}")
            if not follower.sequence:
                return Outcome(problem="the journal has no records")
            if began.snapshot == follower.sequence:
                return Outcome(follower.sequence, follower.point.at_ns)
            try:
                head, data = follower.take_snapshot()
            except WorkUnderWay as error:
                if assignment.ending:
                    return Outcome(problem=f"the engine has work under way: {error}")
                time.sleep(PAUSE_S)
                follower.play_next()
                continue
            snapshots.add_snapshot(head, data)
            return Outcome(head.sequence, head.at_ns, len(data))
    return Outcome(problem="the engine has work under way, and nothing more is written")


def work_for_core(core: Core) -> None:
    """Makes one snapshot."""
    assignment: Assignment = core.receive()
    if not assignment.ending:
        lower_priority(NICE)
    core.watch()
    try:
        outcome = make_snapshot(assignment)
    except Exception as error:  # noqa: BLE001 - the core has to know, and goes on
        traceback.print_exc()
        outcome = Outcome(problem=f"bug while a snapshot was made: {type(error).__name__}: {error}")
    core.send(outcome)
