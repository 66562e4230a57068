"""The retention of a journal: which snapshots are kept, and from which record on the journal is kept.

The records between two snapshots can be replayed from the first snapshot. So a journal consists of stretches: each
begins with an empty engine or with a snapshot, and ends where the next one begins. Whole stretches are dropped, the
oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kornel.core.journal.database.settings import KeptJournal
from kornel.core.journal.database.store import JournalStore
from kornel.core.journal.snapshots.snapshot_store import SnapshotStore
from kornel.core.journal.snapshots.snapshots import SnapshotUnusable, check_snapshot

SECOND_NS: Final = 10**9

KEPT_AT_LEAST: Final = 2
"""This many beginnings from which the end can be reached are kept in any case, whatever their age and size, because one
of them may turn out to be damaged."""

THINNED_NS: Final = 3_600 * SECOND_NS
"""Of the snapshots that are older than this, one is kept per interval of this length; the records between them stay."""


class Stretch(NamedTuple):
    """A part of a journal, and the point at which its replay begins.

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
    """The result of pruning: the numbers of removed snapshots and blocks, and the first remaining record."""

    snapshots: int
    blocks: int
    first: int


def list_stretches(store: JournalStore, snapshots: SnapshotStore) -> list[Stretch]:
    """Returns the parts of the journal, the oldest first. Raises the errors of the stores."""
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
    """Returns the stretches that remain when everything too old or too large has been removed.

    *now_ns* is the time of the newest record. A stretch that has lost its snapshot belongs to the stretch before it.
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
    """Removes everything that need not be kept. Raises the errors of the stores."""
    end = store.find_end()
    removed = 0
    while stretches := list_stretches(store, snapshots):
        left = choose_kept(stretches, kept, end.at_ns)
        if _is_sound(snapshots, left[0].snapshot):
            break
        # Nothing before it may be removed as long as it has no sound replacement.
        snapshots.remove_snapshot(left[0].snapshot)
        removed += 1
    else:
        return Pruned(removed, 0, 0)
    wanted = {stretch.snapshot for stretch in left}
    for each in snapshots.list_snapshots():
        # A snapshot that cannot be used, or of records that this journal no longer has, is of no use.
        if each.sequence not in wanted and each.sequence <= end.sequence:
            snapshots.remove_snapshot(each.sequence)
            removed += 1
    # The block that ends with the snapshot's record stays, because its checksum shows that the two belong together.
    return Pruned(removed, store.prune_before(left[0].snapshot or left[0].first), left[0].first)


def _is_sound(snapshots: SnapshotStore, sequence: int) -> bool:
    """Tells whether the snapshot after record *sequence* is undamaged. With 0, none is needed."""
    try:
        return not sequence or bool(check_snapshot(snapshots.read_snapshot(sequence)))
    except SnapshotUnusable:
        return False


def _may_go(left: Sequence[Stretch]) -> bool:
    """Tells whether the oldest stretch may be dropped because enough others remain."""
    return len(left) > 1 and (
        left[0].life != left[-1].life or sum(stretch.life == left[-1].life for stretch in left) > KEPT_AT_LEAST
    )


def _thin_out(left: Sequence[Stretch], now_ns: int) -> list[Stretch]:
    """Returns *left* without the snapshots that follow another one closely and are not among the latest."""
    newest = [stretch for stretch in left if stretch.life == left[-1].life][-KEPT_AT_LEAST:]
    thin: list[Stretch] = []
    for stretch in left:
        close = thin and stretch.snapshot and stretch.at_ns - thin[-1].at_ns < THINNED_NS
        if close and stretch.at_ns < now_ns - THINNED_NS and stretch not in newest:
            continue
        thin.append(stretch)
    return thin


def _list_lives(store: JournalStore) -> Iterator[tuple[int, int]]:
    """Yields the first record of each life whose beginning is still stored, and the time of that record."""
    first_kept = store.count_bytes()[0]
    life = store.find_end().life
    while life and life >= first_kept:
        block = store.fetch_blocks(life, 1)
        if block:
            yield life, block[0][0].at_ns
        life = store.find_life(life - 1)
