"""Journals for tests: a small cluster, its calls, and the store that they are in."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    Command,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.database.choices import JournalSync
from kornel.core.journal.database.settings import JournalSettings, SnapshotTimes, journal_settings
from kornel.core.journal.database.store import JournalStore
from kornel.core.journal.following.following import Follower
from kornel.core.journal.journal import Journal
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.state.options import EngineOptions
from tests.patience import PATIENCE_S

RM = "rm"
PARTITION = f"[{RM}]default"
CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
"""
BEGINNING = Beginning("test", False, EngineOptions(2_000_000_000, 5))
# Kept to itself: standard error is that of whichever test is collected first.
LOGGER = build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO())
START_NS = 1_700_000_000 * 10**9


def small_cluster() -> list[Command]:
    """Returns commands after which asks of ``app`` are placed."""
    return [
        RegisterManager(RM, CONFIG),
        UpdateNodes(RM, (NodeSpec("n1", NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 10**6})),)),
        UpdateApplications(RM, (ApplicationSpec("app", "root.a", PARTITION, "joe"),)),
    ]


def asks(first: int, count: int = 1) -> UpdateAllocations:
    """Returns asks named ``ask-0`` and so on."""
    size = Resources({"vcore": 1})
    return UpdateAllocations(
        RM, tuple(AllocationSpec(f"ask-{number}", "app", PARTITION, size) for number in range(first, first + count))
    )


NO_SNAPSHOTS = SnapshotTimes(every_s=math.inf, every_steps=10**9, ending_s=0)
"""A core makes no snapshots, each of which is a process."""


def settings_for(
    where: str | Path,
    sync: JournalSync = JournalSync.FULL,
    *,
    afresh: bool = False,
    accept_loss: bool = False,
    times: SnapshotTimes = NO_SNAPSHOTS,
) -> JournalSettings:
    """Returns settings of a journal, which is off for nobody."""
    settings = journal_settings(str(where), sync, afresh=afresh, accept_loss=accept_loss)
    assert settings is not None
    return replace(settings, times=times)


def open_journal(
    where: str | Path, *, afresh: bool = False, accept_loss: bool = False, version: str = "test"
) -> Journal:
    """Returns the journal at *where*, opened by a core of *version*."""
    settings = settings_for(where, afresh=afresh, accept_loss=accept_loss)
    return Journal.open(settings, BEGINNING._replace(version=version), now_ns=lambda: START_NS, logger=LOGGER)


def copy_journal(path: Path, copy: Path) -> None:
    """Copies the file of a journal that nobody writes, and its end marker."""
    for suffix in ("", ".end"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")


@asynccontextmanager
async def written(where: str | Path, *, afresh: bool = False, accept_loss: bool = False) -> AsyncIterator[Journal]:
    """A core that writes the journal at *where*, and makes no snapshots."""
    journal = open_journal(where, afresh=afresh, accept_loss=accept_loss)
    journal.start()
    try:
        yield journal
    finally:
        journal.close(PATIENCE_S)


def open_store(where: str | Path) -> JournalStore:
    """Returns the store at *where*, to be read."""
    return JournalStore(settings_for(where).url, PATIENCE_S, read_only=True)


async def decide(journal: Journal, commands: Sequence[Command], *, slices: int = 1) -> None:
    """Has the journal's engine decide *commands*, each followed by slices, and waits until all is durable."""
    now_ns = journal.last_ns
    for command in commands:
        now_ns += 1_000_000
        journal.first.engine.apply(command, now_ns)
        for _ in range(slices):
            journal.first.engine.cycle(now_ns, 100)
    journal.last_ns = now_ns
    await journal.first.gate.wait_until_passed()


def catch_up(follower: Follower) -> int:
    """Replays everything in the store of *follower*. Returns the number of records."""
    played = 0
    while fetched := follower.fetch_blocks():
        played += sum(1 for _ in follower.play_blocks(fetched))
    return played
