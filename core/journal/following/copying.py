"""Copies a part of a journal into a journal of its own, so that it can be kept, sent, replayed or continued."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.engine import URL

from kornel.core.journal.database.end_marker import name_marker
from kornel.core.journal.database.store import JournalStore, StoreEnd
from kornel.core.journal.following.starting import list_usable
from kornel.core.journal.snapshots.snapshot_store import SnapshotFiles, SnapshotStore

PATIENCE_S = 10.0


class Copied(NamedTuple):
    """The records of a copy. ``snapshot``: number of the record of the snapshot that it begins with; 0: none."""

    first: int
    last: int
    snapshot: int


def copy_records(store: JournalStore, snapshots: SnapshotStore, last: int, path: Path) -> Copied:
    """Copies the records that lead to record *last* into a new SQLite journal at *path*: the newest snapshot before
    it, and all records after that up to the end of the block that contains record *last*.

    Raises what the stores raise, ``FileExistsError``, and ``FileNotFoundError`` if records before *last* were pruned.
    """
    for there in (path, name_marker(path)):
        if there.exists():
            raise FileExistsError(f"{there} is there already")
    life = store.find_life(last)
    at = StoreEnd(last, life=life)
    newest = next((kept for kept in list_usable(store, snapshots, at) if kept.sequence < last), None)
    if newest is None and not 0 < store.count_bytes()[0] <= life:
        raise FileNotFoundError(f"the state after record {last} is not kept")
    begin = newest.sequence if newest is not None else life
    end = 0
    with closing(JournalStore(URL.create("sqlite+pysqlite", database=str(path)), PATIENCE_S)) as copy:
        copy.open()
        for block, its_life in store.read_blocks(begin):
            if block.first > last:
                break
            copy.append_block(block, its_life)
            end = block.last
    if newest is not None:
        SnapshotFiles(Path(f"{path}.snapshots")).add_snapshot(newest.head, snapshots.read_snapshot(newest.sequence))
    return Copied(begin, end, newest.sequence if newest is not None else 0)
