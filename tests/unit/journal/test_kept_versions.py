"""Journals and snapshots that versions left in the repository are read: of this version, and of those before it.

A version that cannot read what the release before it wrote cannot be upgraded to. ``keep_version`` writes them.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kornel import __version__
from kornel.core.engine.engine import Engine
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.export import write_line
from kornel.core.journal.database.reading import read_records, verify_store
from kornel.core.journal.journal import Journal
from kornel.core.journal.snapshots.snapshots import SnapshotUnusable, restore_snapshot
from kornel.core.snapshot.schema import VERSION
from kornel.core.state.books.audit import check
from tests.patience import PATIENCE_S
from tests.unit.journal.keep_version import HOME, summarize
from tests.unit.journal.made import BEGINNING, LOGGER, asks, decide, open_store, settings_for

VERSIONS = sorted(path.name for path in HOME.iterdir())


def check_books(engine: Engine) -> None:
    """Fails unless the books of *engine* agree."""
    for name in engine.partition_names():
        state = engine.partition(name)
        assert state is not None
        assert not check(state)


def holds(version: str, what: str) -> object:
    """Returns what an engine of *version* held when it was written."""
    return json.loads((HOME / version / "holds.json").read_text())[what]


def test_this_version_is_among_them() -> None:
    """Whoever raises the version of the tables has kept what the one before wrote."""
    assert VERSIONS
    assert VERSION == 1 or len(VERSIONS) > 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_journal_of_a_version_is_gone_on_with(version: str, tmp_path: Path) -> None:
    """By a later version, from the snapshot at its end: with all that it held, and it decides further."""
    shutil.copytree(HOME / version, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "journal.db"
    with closing(open_store(path)) as store:
        assert not verify_store(store).damage
        assert all(write_line(record) for record, _ in read_records(store))
    beginning = BEGINNING._replace(version=f"later than {__version__}")
    journal = Journal.open(settings_for(path), beginning, now_ns=lambda: 0, logger=LOGGER)
    assert summarize(journal.first.engine) == holds(version, "journal")
    assert journal.first.untold
    assert journal.first.configured is not None
    journal.start()
    await decide(journal, [asks(1_000)], slices=2)
    state = journal.first.engine.partition("[rm]default")
    assert state is not None
    assert "ask-1000" in state.nodes["n1"].allocations
    check_books(journal.first.engine)
    journal.close(PATIENCE_S)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_of_a_version_is_read(version: str) -> None:
    """Of an engine in which nearly everything was under way at once."""
    replay = Replay()
    try:
        restore_snapshot((HOME / version / "run.snapshot").read_bytes(), replay)
    except SnapshotUnusable as error:
        pytest.fail(f"{error}: give the field a default in core/snapshot/schema.py; what was never released may be"
                    " written again instead: python -m tests.unit.journal.keep_version")  # fmt: skip
    assert list(replay.places) == [0]
    engine = replay.places[0].engine
    assert summarize(engine) == holds(version, "run")
    check_books(engine)
