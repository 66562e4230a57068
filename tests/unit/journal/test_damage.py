"""A journal's checks miss no bit that matters: not of a record, not of what stands beside the records of a block, and
not of the file around them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.journal.content.records import Block, Record, RecordDamaged, read_block
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.database.reading import verify_store
from kornel.core.journal.database.store import STORE_ERRORS
from tests.unit.journal.made import copy_journal, open_journal, open_store, written
from tests.unit.journal.test_places import two_managers

NUMBERS: Final = ("first", "last", "epoch", "at_ns", "chain_before", "chain", "delivered")
CELL_COUNT: Final = 3
"""Where the header of a page of SQLite has the number of its rows."""
LEAF_OF_TABLE: Final = 13


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of two managers, with several blocks."""
    asyncio.run(write_journal(tmp_path / "journal.db"))
    return tmp_path / "journal.db"


async def write_journal(path: Path) -> None:
    async with two_managers(path):
        pass
    for _ in range(3):
        async with written(path):
            pass


def blocks_of(path: Path) -> list[Block]:
    with closing(open_store(path)) as store:
        return [block for block, _ in store.read_blocks()]


def flips(block: Block) -> Iterator[tuple[str, Block]]:
    """Yields *block* with one bit flipped: of each byte of the payload, and each bit of the numbers beside it."""
    for at in range(len(block.payload)):
        changed = bytearray(block.payload)
        changed[at] ^= 1 << at % 8
        yield f"byte {at} of {len(changed)}", block._replace(payload=bytes(changed))
    for name in NUMBERS:
        for bit in range(63):
            yield f"bit {bit} of {name}", block._replace(**{name: getattr(block, name) ^ 1 << bit})
        yield f"sign of {name}", block._replace(**{name: getattr(block, name) - 2**63})


def read_up_to_damage(block: Block) -> tuple[list[Record], int | None]:
    """Returns the records before the damage, and the number of the damaged one."""
    found: list[Record] = []
    try:
        found.extend(read_block(block))
    except RecordDamaged as damaged:
        return found, damaged.sequence
    return found, None


def test_a_flipped_bit_is_noticed_or_changes_nothing(path: Path) -> None:
    """It is named within its block, with all records before it as they were; or all records are as they were."""
    noticed = 0
    for block in blocks_of(path):
        records = list(read_block(block))
        for what, changed in flips(block):
            found, named = read_up_to_damage(changed)
            assert found == records[: len(found)], what
            if named is None:
                assert (len(found), changed[:-1]) == (len(records), block[:-1]), what
            else:
                noticed += 1
                assert changed.first <= named <= max(changed.first, changed.last), what
    assert noticed > 2_000


def test_the_beginning_of_an_engine_is_checked(path: Path) -> None:
    """The column says from where on a core has to play the records."""
    for block in blocks_of(path):
        for life in (block.first + 1, block.first - (block.first == 1), 0, 1 << 40):
            copy = path.with_name("copy.db")
            copy_journal(path, copy)
            with closing(sqlite3.connect(copy)) as connection, connection:
                connection.execute("UPDATE journal_blocks SET life = ? WHERE first = ?", (life, block.first))
            with closing(open_store(copy)) as store:
                damage = verify_store(store).damage
            assert damage
            assert damage[0].first >= block.first


def test_rows_that_the_file_has_lost_at_its_end_are_missed(path: Path) -> None:
    """No other row knows of them, but the page in which they were has bytes that belong to nothing."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'journal_blocks'").fetchone()[0]
    data = bytearray(path.read_bytes())
    head = (page - 1) * size
    assert data[head] == LEAF_OF_TABLE
    last = blocks_of(path)[-1]
    data[head + CELL_COUNT + 1] -= 1
    path.write_bytes(data)
    assert blocks_of(path)[-1].last == last.first - 1
    with closing(open_store(path)) as store:
        (damage,) = verify_store(store).damage
    assert (damage.first, damage.last) == (last.first, last.first)
    assert "may be missing" in damage.reason
    done = CliRunner().invoke(app, ["journal", "verify", str(path)])
    assert done.exit_code == 1
    assert f"record {last.first}: records may be missing" in done.output


@pytest.mark.parametrize("name", ["last", "payload", "life", "chain"])
def test_a_value_of_another_type_is_damage(path: Path, name: str) -> None:
    """SQLite gives it as it is; neither the command nor the core takes it for a number, or fails in its own way."""
    last = blocks_of(path)[-1]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE journal_blocks SET {name} = 'text' WHERE first = ?", (last.first,))  # noqa: S608
    with closing(open_store(path)) as store:
        (damage,) = verify_store(store).damage
    assert "a row of the journal is damaged" in damage.reason
    with pytest.raises(JournalUnusable, match="a row of the journal is damaged"):
        open_journal(path)


def test_a_message_that_cannot_be_decoded_is_an_error_of_the_store(path: Path) -> None:
    """SQLite quotes the damaged name of a table, as it stands in the file."""
    data = path.read_bytes()
    at = data.index(b"CREATE TABLE journal_blocks")
    path.write_bytes(data[:at] + b"CREATE T\xccBLE" + data[at + 12 :])
    with closing(open_store(path)) as store, pytest.raises(STORE_ERRORS):
        list(store.read_blocks())
    with pytest.raises(JournalUnusable):
        open_journal(path)
    done = CliRunner().invoke(app, ["journal", "verify", str(path)])
    assert (done.exit_code, "Traceback" in done.output) == (1, False)
