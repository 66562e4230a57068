"""Follows a journal that another core writes: reads what is appended, and plays it into an engine of its own.

Reading (:meth:`Follower.fetch_blocks`) and playing (:meth:`Follower.play_blocks`) are apart, so that a core that
answers questions meanwhile reads in a thread and plays in short turns. What comes out differently from what the journal
says ends the following for good: the engine is then not the leader's, and its state says nothing about what was
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from kornel.core.journal.calls import Beginning
from kornel.core.journal.recording import RecordingEngine
from kornel.core.journal.records import Block, Record, RecordDamaged, read_block
from kornel.core.journal.replay import NOTHING_NOTED, Difference, Replay, ReplayImpossible, ReplayNotes
from kornel.core.journal.snapshots import SnapshotHead, check_snapshot, restore_snapshot, write_snapshot
from kornel.core.journal.store import JournalStore, StoreEnd

FETCHED_AT_ONCE: Final = 64
"""The blocks that are read with one query, and held until they are played."""


class Obstacle(StrEnum):
    """The reasons for which a journal can be followed no further."""

    DIFFERENT = "different"
    """A call was decided otherwise."""
    VERSION = "version"
    """Another version of the core wrote what comes next."""
    DAMAGED = "damaged"
    """A record cannot be trusted, or is missing."""
    BEHIND = "behind"
    """The database does not hold, or no longer, what was played already."""


class Problem(NamedTuple):
    """The reason why nothing more is played, and what there is to say of it. ``difference``: of DIFFERENT alone."""

    obstacle: Obstacle
    text: str
    difference: Difference | None = None


class FollowPoint(NamedTuple):
    """The place in a journal behind a block: all that going on from there takes, beside the engine.

    sequence     number of the last record
    life         number of the record with which the engine began empty
    chain        checksum of the last record
    at_ns        time of the last record
    effects_sum  sum of the effects of the epoch so far
    delivered    number of the record up to which the transport had taken all responses
    """

    sequence: int = 0
    epoch: int = 0
    life: int = 0
    chain: int = 0
    at_ns: int = 0
    effects_sum: int = 0
    delivered: int = 0


class FetchedBlock(NamedTuple):
    """A block that was read. ``damage``: why records are missing at its end."""

    block: Block
    life: int
    records: tuple[Record, ...]
    damage: RecordDamaged | None = None


class Follower:
    """Plays a journal as it grows. Use: :meth:`fetch_blocks` and :meth:`play_blocks` in turns, or :meth:`catch_up`.

    *version*: of this core, which plays what the same version wrote. *make_engine*: gives the engine that begins empty
    with each life of the journal.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        version: str,
        make_engine: Callable[[Beginning], RecordingEngine] = RecordingEngine.begin_empty,
    ) -> None:
        self._store = store
        self._version = version
        self._make_engine = make_engine
        self._clear()

    def _clear(self) -> None:
        self.replay = Replay(self._make_engine)
        """The engine, with what may not have arrived and the configuration in force."""
        self._written_by = self._version
        """The version of the core that wrote the epoch of the last record that was played."""
        self.point = FollowPoint()
        """The place behind the last block that was played in full."""
        self.sequence = 0
        """The number of the last record that was played."""
        self.problem: Problem | None = None
        """The reason why nothing more is played; ``None``: there is none."""
        self.end = StoreEnd()
        """The end of the store when it was looked at last."""
        self._fetched = FollowPoint()

    @property
    def engine(self) -> RecordingEngine | None:
        """Returns the engine as of the last record that was played; ``None``: no life has begun."""
        return self.replay.engine

    @property
    def behind(self) -> int:
        """Returns how many records the store held, when it was looked at last, that are not played yet."""
        return max(0, self.end.sequence - self.sequence)

    @property
    def store(self) -> JournalStore:
        """Returns where the journal is."""
        return self._store

    @property
    def version(self) -> str:
        """Returns the version of this core."""
        return self._version

    def start_over(self) -> None:
        """Forgets everything that was played, and begins with the first record again."""
        self._clear()

    def start_from(
        self, engine: RecordingEngine, point: FollowPoint, *, version: str = "", notes: ReplayNotes = NOTHING_NOTED
    ) -> None:
        """Goes on behind *point*, at which *engine* is. *version*: of the core that wrote the record there; empty: of
        this one. *notes*: that a replay had taken there."""
        self.replay.start_from(engine, point.effects_sum, point.at_ns, point.delivered, notes)
        self._written_by = version or self._version
        self.point = self._fetched = point
        self.sequence = point.sequence

    def start_from_snapshot(self, data: bytes) -> SnapshotHead:
        """Goes on behind the record of the snapshot *data*, whose head is returned. Raises :class:`SnapshotUnusable`,
        and follows from the first record then."""
        self._clear()
        head = check_snapshot(data)
        engine = self._make_engine(Beginning(self._version, False, None, 0))
        notes = restore_snapshot(data, engine)
        point = FollowPoint(
            head.sequence, head.epoch, head.life, head.chain, head.at_ns, head.effects_sum, head.delivered
        )
        self.start_from(engine, point, version=head.version, notes=notes)
        return head

    def take_snapshot(self) -> tuple[SnapshotHead, bytes]:
        """Returns a snapshot behind the block that was played last, which was played in full.

        Raises :class:`kornel.core.snapshot.writing.WorkUnderWay` while the engine does something from slice to slice.
        """
        at = self.point
        assert at.sequence == self.sequence, "a snapshot stands between two blocks"
        head = SnapshotHead(
            self._written_by, at.sequence, at.epoch, at.life, at.chain, at.at_ns, at.effects_sum, at.delivered
        )
        return head, write_snapshot(head, self.replay)

    def skip_to_end(self) -> None:
        """Goes on behind what the store holds without playing it, for an engine that begins empty there. Raises what
        the store raises."""
        self.end = end = self._store.find_end()
        self.point = self._fetched = FollowPoint(end.sequence, end.epoch, end.life, end.chain, end.at_ns)
        self.sequence = end.sequence

    def fetch_blocks(self, most: int = FETCHED_AT_ONCE) -> list[FetchedBlock]:
        """Returns at most so many blocks that come next, which have to be played in this order; empty: there are none
        yet.

        Raises what the store raises. May be called by any thread, one at a time.
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
        """Plays *fetched*, and yields each record when it was played. The caller may stop between two of them and go on
        later, with the same iterator."""
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
            self.point = FollowPoint(
                block.last,
                block.epoch,
                life,
                block.chain,
                self.replay.last_ns,
                self.replay.effects_sum,
                block.delivered,
            )

    def play_next(self) -> bool:
        """Plays one block, if there is one. Raises what the store raises."""
        return sum(1 for _ in self.play_blocks(self.fetch_blocks(1))) > 0

    def catch_up(self) -> int:
        """Plays everything that the store holds. Returns the number of records. Raises what the store raises."""
        played = 0
        while fetched := self.fetch_blocks():
            played += sum(1 for _ in self.play_blocks(fetched))
        return played

    def _read_blocks(self, at: FollowPoint, most: int) -> Iterator[FetchedBlock]:
        first = at.sequence + 1
        if self.end.life > first:
            first = self.end.life  # Another life has begun, which nothing before it has a bearing on.
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
            f"this core has played the records up to {self._fetched.sequence}, and the database holds those up to"
            f" {end.sequence}: its newest commits are missing",
        )

    def _stop_at_other(self, sequence: int) -> None:
        self.problem = Problem(
            Obstacle.BEHIND,
            f"the database holds another record {sequence} than the one that this core has played: its newest commits"
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
