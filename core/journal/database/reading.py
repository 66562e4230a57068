"""Reads a journal from a store, record by record, and finds damaged records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kornel.core.journal.content.calls import CallKind
from kornel.core.journal.content.records import Block, Record, RecordDamaged, read_block
from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, describe_error


class Damage(NamedTuple):
    """The records *first* to *last* cannot be read or trusted, with the reason."""

    first: int
    last: int
    reason: str


class Findings(NamedTuple):
    """The result of checking all records. If ``damage`` is empty, every record is there and unchanged."""

    first: int
    last: int
    records: int
    damage: tuple[Damage, ...]


class ReadRecord(NamedTuple):
    """A record, with the number of the last delivered record that its block contains
    (:attr:`kornel.core.journal.content.records.Block.delivered`)."""

    record: Record
    delivered: int


def read_records(store: JournalStore, first: int = 1) -> Iterator[ReadRecord]:
    """Yields the records from *first* on. Raises :class:`RecordDamaged` at the first one that is missing or damaged,
    and the errors of the store."""
    before: Block | None = None
    for block, _ in store.read_blocks(first):
        problem = _find_break(before, block)
        if problem is not None:
            raise RecordDamaged(problem.first, problem.reason)
        for record in read_block(block):
            if record.sequence >= first:
                yield ReadRecord(record, block.delivered)
        before = block


def verify_store(store: JournalStore) -> Findings:
    """Checks every record, including those after damaged ones."""
    damage: list[Damage] = []
    before: Block | None = None
    first = last = records = life = 0
    try:
        lost = store.find_loss()
        for block, its_life in store.read_blocks():
            first = first or block.first
            broken = _find_break(before, block)
            if broken is not None:
                damage.append(broken)
            try:
                for record in read_block(block):
                    records += 1
                    if record.sequence == block.first and not _is_life(its_life, life, record):
                        damage.append(
                            Damage(block.first, block.last, f"its engine did not begin with record {its_life}")
                        )
            except RecordDamaged as error:
                damage.append(Damage(error.sequence, max(block.last, error.sequence), error.reason))
            last = max(last, block.last)
            before, life = block, its_life
        if lost:
            damage.append(Damage(last + 1, last + 1, lost))
        if problem := store.check_file():
            damage.append(Damage(last + 1, last + 1, f"records may be missing, because the file is damaged: {problem}"))
    except STORE_ERRORS as error:
        at = last + 1
        damage.append(Damage(at, at, f"the store cannot be read from here on: {describe_error(error)}"))
    return Findings(first, last, records, tuple(damage))


def _is_life(life: int, before: int, first: Record) -> bool:
    """Tells whether *life* is that of a block with the record *first*, after a block with the life *before*; 0: it is
    the first block that is there."""
    beginning = first.call.beginning
    if first.call.kind is CallKind.BEGIN and beginning is not None and beginning.afresh:
        return life == first.sequence
    return life == before if before else 0 < life < first.sequence


def _find_break(before: Block | None, block: Block) -> Damage | None:
    """Returns the damage between two blocks that should follow each other, or ``None``."""
    if before is None:
        return None
    if block.first != before.last + 1:
        return Damage(before.last + 1, block.first - 1, "it is missing")
    if block.chain_before != before.chain:
        return Damage(block.first, block.first, "it does not follow the record before it")
    return None
