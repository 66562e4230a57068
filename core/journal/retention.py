"""Retention of a journal: which snapshots are kept, and from which record on.

Whatever lies between two snapshots can be played from the first of them. So a journal consists of stretches: from the
beginning of an engine's life, or from a snapshot, to the next one. Stretches are dropped from the oldest on, whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kornel.core.journal.settings import KeptJournal
from kornel.core.journal.snapshot_store import SnapshotStore
from kornel.core.journal.snapshots import SnapshotUnusable, check_snapshot
from kornel.core.journal.store import JournalStore

SECOND_NS: Final = 10**9

KEPT_AT_LEAST: Final = 2
"""The beginnings from which the end can be reached that are kept whatever their age and size, in case one of them turns
out to be damaged."""

THINNED_NS: Final = 3_600 * SECOND_NS
"""Of snapshots that are older than this, one is kept for each time of this length; the records between them stay."""


class Stretch(NamedTuple):
    """A part of a journal, and where to begin to play it.

    first     number of its first record
    life      number of the record with which the engine began empty
    at_ns     the core's time at its beginning
    snapshot  number of the record of the snapshot that it begins with; 0: it begins with an empty engine
    size      bytes of its snapshot and its records
    """

    first: int
    life: int
    at_ns: int
    snapshot: int
    size: int


class Pruned(NamedTuple):
    """The result of pruning: what was removed, and the first record that is there."""

    snapshots: int
    blocks: int
    first: int


def list_stretches(store: JournalStore, snapshots: SnapshotStore) -> list[Stretch]:
    """Returns the parts of the journal, the oldest first. Raises what the stores raise."""
    found = [
        (kept.sequence + 1, kept.head.life, kept.head.at_ns, kept.sequence, kept.size)
        for kept in snapshots.list_snapshots()
        if not kept.problem and store.find_chain(kept.sequence) == kept.head.chain
    ]
    found += [(first, first, at_ns, 0, 0) for first, at_ns in _list_lives(store)]
    found.sort()
    ends = [first for first, *_ in found[1:]] + [0]
    return [
        Stretch(first, life, at_ns, snapshot, size + store.count_payload(first, end))
        for (first, life, at_ns, snapshot, size), end in zip(found, ends, strict=True)
    ]


def choose_kept(stretches: Sequence[Stretch], kept: KeptJournal, now_ns: int) -> list[Stretch]:
    """Returns the stretches that are still there when all has been removed that is too old or too much.

    *now_ns*: the time of the newest record. Those that have lost their snapshot belong to the one before them.
    """
    oldest_ns = now_ns - kept.age_s * SECOND_NS if kept.age_s else 0
    most = kept.size_bytes or math.inf
    left = list(stretches)
    size = sum(stretch.size for stretch in left)
    # Everything in a stretch is older than the beginning of the next one.
    while _may_go(left) and (left[1].at_ns <= oldest_ns or size > most):
        size -= left.pop(0).size
    return _thin_out(left, now_ns)


def prune_journal(store: JournalStore, snapshots: SnapshotStore, kept: KeptJournal) -> Pruned:
    """Removes what need not be kept. Raises what the stores raise."""
    end = store.find_end()
    removed = 0
    while stretches := list_stretches(store, snapshots):
        left = choose_kept(stretches, kept, end.at_ns)
        if _is_sound(snapshots, left[0].snapshot):
            break
        # Nothing before it may go as long as nothing else can stand for it.
        snapshots.remove_snapshot(left[0].snapshot)
        removed += 1
    else:
        return Pruned(removed, 0, 0)
    wanted = {stretch.snapshot for stretch in left}
    for each in snapshots.list_snapshots():
        # One that cannot be used, or is of records that this journal no longer holds, is nobody's.
        if each.sequence not in wanted and each.sequence <= end.sequence:
            snapshots.remove_snapshot(each.sequence)
            removed += 1
    # The block that ends with the snapshot's record stays: by its checksum the two are known to belong together.
    return Pruned(removed, store.prune_before(left[0].snapshot or left[0].first), left[0].first)


def _is_sound(snapshots: SnapshotStore, sequence: int) -> bool:
    """Tells whether the snapshot behind record *sequence* is what was written; 0: none is needed."""
    try:
        return not sequence or bool(check_snapshot(snapshots.read_snapshot(sequence)))
    except SnapshotUnusable:
        return False


def _may_go(left: Sequence[Stretch]) -> bool:
    """Tells whether the oldest stretch may be dropped, and what is needed at least is left."""
    return len(left) > 1 and (
        left[0].life != left[-1].life or sum(stretch.life == left[-1].life for stretch in left) > KEPT_AT_LEAST
    )


def _thin_out(left: Sequence[Stretch], now_ns: int) -> list[Stretch]:
    """Returns *left* without the snapshots that lie close behind another one and are not among the latest."""
    newest = [stretch for stretch in left if stretch.life == left[-1].life][-KEPT_AT_LEAST:]
    thin: list[Stretch] = []
    for stretch in left:
        close = thin and stretch.snapshot and stretch.at_ns - thin[-1].at_ns < THINNED_NS
        if close and stretch.at_ns < now_ns - THINNED_NS and stretch not in newest:
            continue
        thin.append(stretch)
    return thin


def _list_lives(store: JournalStore) -> Iterator[tuple[int, int]]:
    """Yields the first record of each life whose beginning is kept, and its time."""
    first_kept = store.count_bytes()[0]
    life = store.find_end().life
    while life and life >= first_kept:
        block = store.fetch_blocks(life, 1)
        if block:
            yield life, block[0][0].at_ns
        life = store.find_life(life - 1)
