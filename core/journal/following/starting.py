"""Brings engines to the end of a journal: from the newest usable snapshot, by replaying the records after it.

A snapshot is skipped if it is damaged, or if the replay of the records after it has other results than the journal
says. An older one is then used, and finally the record with which the engine began empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.journal.content.replay import Replay, pause_collecting
from kornel.core.journal.database.store import JournalStore, StoreEnd
from kornel.core.journal.following.following import Follower, Obstacle, Problem
from kornel.core.journal.snapshots.retention import list_stretches
from kornel.core.journal.snapshots.snapshot_store import KeptSnapshot, SnapshotStore
from kornel.core.journal.snapshots.snapshots import SnapshotUnusable, restore_snapshot

_REPORTED_EVERY: Final = 100_000
"""A replay at the start logs its progress each time after this many records."""


class Started(NamedTuple):
    """The beginning of a replay.

    snapshot  number of the record of the snapshot with which it began; 0: it began with an empty engine
    at_ns     the core's time at that record
    size      bytes of the snapshot
    """

    snapshot: int = 0
    at_ns: int = 0
    size: int = 0


def play_all(follower: Follower, snapshots: SnapshotStore, logger: FilteringBoundLogger) -> Started:
    """Replays everything in the journal of *follower*, from the newest usable snapshot on, up to what is its end now:
    another core may write faster than this one replays.

    If that is impossible, ``problem`` of the follower has the reason. Raises the errors of the stores.
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
        # A database that has lost its newest commits may contain others in their place.
        if (
            not kept.problem
            and head.sequence <= end.sequence
            and head.life == end.life
            and store.find_chain(head.sequence) == head.chain
        ):
            yield kept


def begin_replay(
    store: JournalStore, snapshots: SnapshotStore, sequence: int, *, only: int | None = None
) -> tuple[Replay, int]:
    """Returns a replay and the record with which it continues: the one after the newest snapshot before record
    *sequence*, or the one with which the engine began empty. With *sequence* 0, it is the earliest possible record.
    *only*: the number of the only place that is replayed.

    Raises the errors of the stores.
    """
    stretches = [each for each in list_stretches(store, snapshots) if not sequence or each.first <= sequence]
    for stretch in reversed(stretches) if sequence else stretches:
        replay = Replay(only=only)
        if stretch.snapshot:
            try:
                restore_snapshot(snapshots.read_snapshot(stretch.snapshot), replay)
            except SnapshotUnusable:
                continue
        return replay, stretch.first
    return Replay(only=only), max(1, store.count_bytes()[0])


def _begin_with(follower: Follower, snapshots: SnapshotStore, kept: KeptSnapshot, logger: FilteringBoundLogger) -> bool:
    try:
        follower.start_from_snapshot(snapshots.read_snapshot(kept.sequence))
    except SnapshotUnusable as error:
        logger.warning("snapshot cannot be used, an older one is tried", record=kept.sequence, problem=str(error))
        return False
    return True


def _play_rest(follower: Follower, first: int, end: StoreEnd, logger: FilteringBoundLogger) -> bool:
    """Replays the remaining records. Returns false if that failed in a way that an older snapshot could avoid."""
    follower.end = end
    if first or end.sequence:
        logger.info("journal is replayed", snapshot=first, first=first + 1 if first else end.life, last=end.sequence)
    while follower.sequence < end.sequence and (fetched := follower.fetch_blocks()):
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
    """Returns the reason why the life of *end* cannot be replayed from its beginning, or ``None`` if all its records
    are there."""
    first = store.count_bytes()[0]
    if not end.sequence or first <= end.life:
        return None
    return Problem(
        Obstacle.DAMAGED,
        f"the records {end.life} to {first - 1} were pruned, and none of the snapshots behind them can be used",
    )
