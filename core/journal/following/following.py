"""Follows a journal that another core writes: it reads the appended records, and replays them in its own engine.

Reading (:meth:`Follower.fetch_blocks`) and replaying (:meth:`Follower.play_blocks`) are separate, so that a core that
also answers questions can read in a thread and replay in short turns. If a result differs from the journal, the
following ends for good, because the engine then differs from the leader's and its state says nothing about the leader's
decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.records import Block, Record, RecordDamaged, read_block
from kornel.core.journal.content.replay import Difference, EngineMaker, Replay, ReplayImpossible
from kornel.core.journal.database.store import JournalStore, StoreEnd
from kornel.core.journal.snapshots.snapshots import SnapshotHead, check_snapshot, restore_snapshot, write_snapshot

FETCHED_AT_ONCE: Final = 64
"""The number of blocks that are read with one query, and kept in memory until they are replayed."""


class Obstacle(StrEnum):
    """The reasons why a journal cannot be followed any further."""

    DIFFERENT = "different"
    """A call had another result than the journal says."""
    VERSION = "version"
    """Another version of the core wrote the next records."""
    DAMAGED = "damaged"
    """A record is damaged or missing."""
    BEHIND = "behind"
    """The database does not contain the records that were replayed already, or no longer does."""


class Problem(NamedTuple):
    """The reason why nothing more is replayed, with a text that explains it. Only DIFFERENT has a ``difference``."""

    obstacle: Obstacle
    text: str
    difference: Difference | None = None


class FollowPoint(NamedTuple):
    """The position in a journal after a block, with everything that is needed to continue from there, except the
    engine.

    sequence     number of the last record
    life         number of the record with which the engine began empty
    chain        checksum of the last record
    at_ns        time of the last record
    delivered    number of the record up to which the transport had accepted all responses
    """

    sequence: int = 0
    epoch: int = 0
    life: int = 0
    chain: int = 0
    at_ns: int = 0
    delivered: int = 0


class FetchedBlock(NamedTuple):
    """A block that was read. ``damage`` is the reason why records are missing at its end."""

    block: Block
    life: int
    records: tuple[Record, ...]
    damage: RecordDamaged | None = None


class Follower:
    """Replays a journal while it grows. Use: :meth:`fetch_blocks` and :meth:`play_blocks` in turns.

    *version* is that of this core, which replays only records that the same version wrote. *make_engine* makes the
    empty engines of places. *only* is the number of the only place whose records are replayed; ``None``: all are.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        version: str,
        make_engine: EngineMaker = RecordingEngine.begin_empty,
        only: int | None = None,
    ) -> None:
        self._store = store
        self._version = version
        self._make_engine = make_engine
        self._only = only
        self._clear()

    def _clear(self) -> None:
        self.replay = Replay(self._make_engine, only=self._only)
        """The replay, with the places: their engines, the effects that may not have arrived, and so on."""
        self._written_by = self._version
        """The version of the core that wrote the epoch of the last replayed record."""
        self.point = FollowPoint()
        """The position after the last block that was replayed completely."""
        self.sequence = 0
        """The number of the last replayed record."""
        self.problem: Problem | None = None
        """The reason why nothing more is replayed; ``None``: there is none."""
        self.end = StoreEnd()
        """The end of the store at the time of the last query."""
        self._fetched = FollowPoint()

    @property
    def engine(self) -> RecordingEngine | None:
        """Returns the engine of the first place, or ``None`` if no life has begun."""
        return self.replay.engine

    @property
    def behind(self) -> int:
        """Returns the number of records in the store that are not replayed yet, as of the last query."""
        return max(0, self.end.sequence - self.sequence)

    @property
    def store(self) -> JournalStore:
        """Returns the store of the journal."""
        return self._store

    @property
    def version(self) -> str:
        """Returns the version of this core."""
        return self._version

    def start_over(self) -> None:
        """Forgets everything that was replayed, and begins with the first record again."""
        self._clear()

    def start_from_snapshot(self, data: bytes) -> SnapshotHead:
        """Continues after the record of the snapshot *data*, and returns the head of the snapshot. Raises
        :class:`SnapshotUnusable`, after which it follows from the first record."""
        self._clear()
        head = check_snapshot(data)
        restore_snapshot(data, self.replay, make_engine=self._make_engine)
        self.point = self._fetched = FollowPoint(
            head.sequence, head.epoch, head.life, head.chain, head.at_ns, head.delivered
        )
        self._written_by, self.sequence = head.version, head.sequence
        return head

    def take_snapshot(self) -> tuple[SnapshotHead, bytes]:
        """Returns a snapshot of the state after the last block, which has to be replayed completely.

        Raises :class:`kornel.core.snapshot.writing.WorkUnderWay` while an engine has work that continues from slice to
        slice.
        """
        at = self.point
        assert at.sequence == self.sequence, "a snapshot stands between two blocks"
        head = SnapshotHead(self._written_by, at.sequence, at.epoch, at.life, at.chain, at.at_ns, at.delivered)
        return head, write_snapshot(head, self.replay)

    def skip_to_end(self) -> None:
        """Continues after the last record in the store without replaying anything, for an engine that begins empty
        there. Raises the errors of the store."""
        self.end = end = self._store.find_end()
        self.point = self._fetched = FollowPoint(end.sequence, end.epoch, end.life, end.chain, end.at_ns)
        self.sequence = end.sequence

    def fetch_blocks(self, most: int = FETCHED_AT_ONCE) -> list[FetchedBlock]:
        """Returns the next blocks, at most *most* of them, which have to be replayed in this order. It returns none if
        there are none yet.

        Raises the errors of the store. It may be called from any thread, but only from one at a time.
        """
        if self.problem is not None:
            return []
        self.end = end = self._store.find_end()
        at = self._fetched
        if end.sequence < at.sequence:
            self._stop_at_missing(end)
            return []
        if end.sequence == at.sequence:
            if end.chain != at.chain:
                self._stop_at_other(at.sequence)
            return []
        return list(self._read_blocks(at, most))

    def play_blocks(self, fetched: Iterable[FetchedBlock]) -> Iterator[Record]:
        """Replays *fetched*, and yields each record after it was replayed. The caller may pause between two records and
        continue later with the same iterator."""
        for block, life, records, damage in fetched:
            for record in records:
                if self.problem is not None:
                    return
                self._play_record(record, block)
                yield record
            if self.problem is None and damage is not None:
                self.problem = Problem(Obstacle.DAMAGED, str(damage))
            if self.problem is not None:
                return
            self.point = FollowPoint(block.last, block.epoch, life, block.chain, self.replay.last_ns, block.delivered)

    def play_next(self) -> bool:
        """Replays one block, if there is one. Raises the errors of the store."""
        return sum(1 for _ in self.play_blocks(self.fetch_blocks(1))) > 0

    def _read_blocks(self, at: FollowPoint, most: int) -> Iterator[FetchedBlock]:
        first = at.sequence + 1
        if self.end.life > first:
            first = self.end.life  # Another life has begun, which does not depend on anything before it.
        for block, life in self._store.fetch_blocks(first, most):
            begins_life = block.first == life
            if at.sequence and block.first == at.sequence + 1 and block.chain_before != at.chain:
                self._stop_at_other(at.sequence)
                return
            if not begins_life and block.first != at.sequence + 1:
                if block.first <= at.sequence:
                    self._stop_at_other(at.sequence)
                else:
                    self.problem = Problem(Obstacle.DAMAGED, f"record {at.sequence + 1}: it is missing")
                return
            read = _decode_block(block, life)
            yield read
            if read.damage is not None:
                return
            at = self._fetched = FollowPoint(block.last, block.epoch, life, block.chain)

    def _play_record(self, record: Record, block: Block) -> None:
        wrote = record.call.beginning
        if wrote is not None:
            self._written_by = wrote.version
        if self._written_by != self._version:
            self.problem = Problem(
                Obstacle.VERSION,
                f"record {record.sequence} on were written by version {self._written_by}, and version {self._version}"
                " does not decide them again",
            )
            return
        try:
            found = self.replay.play(record, block.delivered)
        except ReplayImpossible as error:
            self.problem = Problem(Obstacle.DAMAGED, f"record {record.sequence}: {error}")
            return
        self.sequence = record.sequence
        if found is not None:
            self.problem = Problem(Obstacle.DIFFERENT, found.describe(), found)

    def _stop_at_missing(self, end: StoreEnd) -> None:
        self.problem = Problem(
            Obstacle.BEHIND,
            f"this core has replayed the records up to {self._fetched.sequence}, and the database holds those up to"
            f" {end.sequence}: its newest commits are missing",
        )

    def _stop_at_other(self, sequence: int) -> None:
        self.problem = Problem(
            Obstacle.BEHIND,
            f"the database holds another record {sequence} than the one that this core has replayed: its newest commits"
            " were lost, and others came in their place",
        )


def _decode_block(block: Block, life: int) -> FetchedBlock:
    records: list[Record] = []
    try:
        for record in read_block(block):
            records.append(record)  # noqa: PERF402 - those before the damage stay
    except RecordDamaged as error:
        return FetchedBlock(block, life, tuple(records), error)
    return FetchedBlock(block, life, tuple(records))
