"""A core on a copy of its journal that is older as a whole: nothing of the files says so, but its shim knows more."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc

from kornel.core.journal.journal import Journal
from tests.e2e.harness import allocation_request, ask, running_core
from tests.e2e.test_resumed_streams import greeting, placed, prepare, resumed
from tests.unit.journal.made import BEGINNING, LOGGER, START_NS, open_journal, settings_for

FILES = ("journal.db", "journal.db-wal", "journal.db.end")


async def test_a_shim_whose_confirmed_decisions_are_gone_is_told(tmp_path: Path) -> None:
    """Its next stream ends: it has to register again."""
    path, older = tmp_path / "journal.db", tmp_path / "older"
    older.mkdir()
    async with running_core(journal=open_journal(path)) as core:
        epoch = await prepare(core)
        async with resumed(core, f"{epoch}/0") as stream:
            for number in range(6):
                if number == 3:
                    for name in FILES:
                        shutil.copy(tmp_path / name, older / name)
                await stream.send(allocation_request(ask(f"ask-{number}", vcore=1)))
                assert await placed(stream, 1) == [f"ask-{number}"]
    settings = settings_for(older / "journal.db")
    restored = Journal.open(settings, BEGINNING, now_ns=lambda: START_NS + 10**12, logger=LOGGER)
    async with running_core(journal=restored) as core:
        async with resumed(core, f"{epoch}/3") as stream:
            said = await greeting(stream)
            assert said.endswith("/3")
        async with resumed(core, f"{epoch}/6") as stream:
            code, details = await stream.end()
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "the newest commits of its journal were lost" in details
