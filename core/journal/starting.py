"""Begins where a journal ends: with the newest snapshot that can be used, and what was written since.

A snapshot that is damaged is passed over, and so is one with which the records behind it are not decided as the journal
says; then an older one is taken, and at last the record with which the engine began empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.journal.calls import Beginning
from kornel.core.journal.following import Follower, Obstacle, Problem
from kornel.core.journal.recording import RecordingEngine
from kornel.core.journal.replay import Replay, pause_collecting
from kornel.core.journal.retention import list_stretches
from kornel.core.journal.snapshot_store import KeptSnapshot, SnapshotStore
from kornel.core.journal.snapshots import SnapshotUnusable, check_snapshot, restore_snapshot
from kornel.core.journal.store import JournalStore, StoreEnd

_REPORTED_EVERY: Final = 100_000
"""The records after which a replay at the start says in the log how far it is."""


class Started(NamedTuple):
    """The beginning of a replay.

    snapshot  number of the record of the snapshot that it began with; 0: none, but where the engine was empty
    at_ns     the core's time at that record
    size      bytes of the snapshot
    """

    snapshot: int = 0
    at_ns: int = 0
    size: int = 0


def play_all(follower: Follower, snapshots: SnapshotStore, logger: FilteringBoundLogger) -> Started:
    """Plays everything that the journal of *follower* holds, from the newest snapshot that can be used.

    What keeps it from that is the follower's problem. Raises what the stores raise.
    """
    with pause_collecting():
        end = follower.store.find_end()
        for kept in list_usable(follower.store, snapshots, end):
            began = _begin_with(follower, snapshots, kept, logger)
            if began and _play_rest(follower, kept.sequence, end, logger):
                return Started(kept.sequence, kept.head.at_ns, kept.size)
        follower.start_over()
        follower.problem = _find_gap(follower.store, end)
        _play_rest(follower, 0, end, logger)
    return Started()


def list_usable(store: JournalStore, snapshots: SnapshotStore, end: StoreEnd) -> Iterator[KeptSnapshot]:
    """Yields the snapshots from which the *end* of the journal can be reached, the newest first."""
    for kept in snapshots.list_snapshots():
        head = kept.head
        # A database that has lost its newest commits may have got others in their place.
        if (
            not kept.problem
            and head.sequence <= end.sequence
            and head.life == end.life
            and store.find_chain(head.sequence) == head.chain
        ):
            yield kept


def begin_replay(store: JournalStore, snapshots: SnapshotStore, sequence: int) -> tuple[Replay, int]:
    """Returns a replay and the record with which it goes on: behind the newest snapshot before record *sequence*, or
    where the engine began empty. *sequence* 0: from as early on as there is anything to begin with.

    Raises what the stores raise.
    """
    stretches = [each for each in list_stretches(store, snapshots) if not sequence or each.first <= sequence]
    for stretch in reversed(stretches) if sequence else stretches:
        replay = Replay()
        if not stretch.snapshot:
            return replay, stretch.first
        try:
            data = snapshots.read_snapshot(stretch.snapshot)
            head = check_snapshot(data)
            engine = RecordingEngine.begin_empty(Beginning("", False, None, 0))
            notes = restore_snapshot(data, engine)
        except SnapshotUnusable:
            continue
        replay.start_from(engine, head.effects_sum, head.at_ns, head.delivered, notes)
        return replay, stretch.first
    return Replay(), max(1, store.count_bytes()[0])


def _begin_with(follower: Follower, snapshots: SnapshotStore, kept: KeptSnapshot, logger: FilteringBoundLogger) -> bool:
    try:
        follower.start_from_snapshot(snapshots.read_snapshot(kept.sequence))
    except SnapshotUnusable as error:
        logger.warning("snapshot cannot be used, an older one is tried", record=kept.sequence, problem=str(error))
        return False
    return True


def _play_rest(follower: Follower, first: int, end: StoreEnd, logger: FilteringBoundLogger) -> bool:
    """Plays what is left. Returns false if an older snapshot could do better than this one."""
    if first or end.sequence:
        logger.info("journal is replayed", snapshot=first, first=first + 1 if first else end.life, last=end.sequence)
    while fetched := follower.fetch_blocks():
        for record in follower.play_blocks(fetched):
            if follower.replay.records % _REPORTED_EVERY == 0:
                logger.info("journal is replayed", record=record.sequence, last=follower.end.sequence)
    problem = follower.problem
    if problem is None or problem.obstacle is not Obstacle.DIFFERENT:
        return True
    if first:
        logger.error("snapshot cannot be used, an older one is tried", record=first, problem=problem.text)
    return False


def _find_gap(store: JournalStore, end: StoreEnd) -> Problem | None:
    """Returns what keeps the life of *end* from being played from its beginning; ``None``: it is all there."""
    first = store.count_bytes()[0]
    if not end.sequence or first <= end.life:
        return None
    return Problem(
        Obstacle.DAMAGED,
        f"the records {end.life} to {first - 1} were pruned, and none of the snapshots behind them can be used",
    )
