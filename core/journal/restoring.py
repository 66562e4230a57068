"""Restores the engine of a core after a bug, from snapshot and journal and without the call that failed, so that the
core can continue.

Everything that is needed to reproduce the bug is kept as a bundle: a journal that ends with the call, the snapshot with
which it begins, and the traceback. ``kornel replay`` makes the call again.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL
from structlog.typing import FilteringBoundLogger

from kornel.core.archive.settings import state_directory
from kornel.core.domain.commands import Command, StreamCommand
from kornel.core.domain.effects import Effect
from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.content.refusing import split_command
from kornel.core.journal.database.choices import JournalUnusable
from kornel.core.journal.database.settings import JournalSettings
from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, describe_error
from kornel.core.journal.following.copying import copy_records
from kornel.core.journal.following.following import Follower
from kornel.core.journal.following.starting import play_all
from kornel.core.journal.journal import Journal
from kornel.core.journal.snapshots.snapshot_store import opened_snapshots
from kornel.core.journal.writing.places import JournalPlace
from kornel.core.state.options import EngineOptions

MOST_BUNDLES: Final = 5
"""The most bundles that are kept, which are the newest ones."""


class EngineRestorer:
    """Restores *engine*, which is that of one place of *journal*, once there is one."""

    def __init__(self, engine: object, journal: Callable[[], Journal | None], logger: FilteringBoundLogger) -> None:
        self._engine = engine
        self._find_journal = journal
        self._logger = logger

    @property
    def ready(self) -> bool:
        """Tells whether there is a journal in which the place of the engine is open."""
        journal = self._find_journal()
        return journal is not None and journal.find_place(self._engine) is not None

    @property
    def last_record(self) -> int:
        """Returns the number of the record of the engine's last call."""
        return self._place.gate.last_record

    async def restore_engine(self, error: Exception, record: int) -> None:
        """Restores the state of the engine before its last call, that of *record*, which failed with *error*, and keeps
        a bundle.

        Other tasks run meanwhile, and see the engine in the state in which the call left it; the engines of other
        places go on. Raises :class:`JournalUnusable`, and :class:`kornel.core.service.wire.status_codes.ServiceError`
        if the journal cannot be written any more.
        """
        journal, began = self._journal, time.perf_counter()
        place = self._place
        await place.gate.wait_until_durable()
        follower = await asyncio.to_thread(_play_again, journal, place.number, self._logger)
        assert follower.engine is not None, "the place is open"
        place.engine.take_state(follower.engine, Beginning(journal.version, False, EngineOptions()))
        took_s = round(time.perf_counter() - began, 3)
        bundle = await asyncio.to_thread(self._keep_bundle, journal.settings, record, error)
        self._logger.error("engine restored, a call was set aside", record=record, took_s=took_s, bundle=bundle)

    def split_command(self, command: StreamCommand) -> Iterable[StreamCommand]:
        """Returns *command* entry by entry, in the order in which an engine handles them."""
        return split_command(command)

    def refuse_entries(self, command: Command, now_ns: int) -> list[Effect]:
        """Returns the refusals of those entries of *command* that get an answer, and records them in the journal."""
        return self._place.engine.refuse_entries(command, now_ns)

    @property
    def _journal(self) -> Journal:
        journal = self._find_journal()
        assert journal is not None, "asked only when it is ready"
        return journal

    @property
    def _place(self) -> JournalPlace:
        place = self._journal.find_place(self._engine)
        assert place is not None, "asked only when it is ready"
        return place

    def _keep_bundle(self, settings: JournalSettings, failed: int, error: Exception) -> str:
        """Returns the path of the bundle, or an empty text if it could not be written, which must not prevent the core
        from continuing."""
        try:
            return str(keep_bundle(settings, failed, error))
        except STORE_ERRORS as problem:
            self._logger.error("bundle could not be written", problem=describe_error(problem))
            return ""


def _play_again(journal: Journal, place: int, logger: FilteringBoundLogger) -> Follower:
    settings = journal.settings
    with (
        closing(JournalStore(settings.url, settings.patience_s, read_only=True)) as store,
        opened_snapshots(settings.url, settings.patience_s, read_only=True) as snapshots,
    ):
        follower = Follower(store, version=journal.version, only=place)
        try:
            play_all(follower, snapshots, logger)
        except STORE_ERRORS as error:
            raise JournalUnusable(f"{settings.shown}: {describe_error(error)}") from error
    if follower.problem is not None:
        raise JournalUnusable(f"{settings.shown}: {follower.problem.text}")
    return follower


def keep_bundle(settings: JournalSettings, failed: int, error: Exception) -> Path:
    """Writes everything that is needed to reproduce the failure of record *failed* with *error*. Returns the directory.

    Raises the errors of the stores.
    """
    home = _find_home(settings.url)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    bundle = home / f"record-{failed:020}"
    scratch = bundle.with_name(bundle.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    try:
        with (
            closing(JournalStore(settings.url, settings.patience_s, read_only=True)) as store,
            opened_snapshots(settings.url, settings.patience_s, read_only=True) as snapshots,
        ):
            copy_records(store, snapshots, failed, scratch / "journal.db")
        said = io.StringIO()
        traceback.print_exception(error, file=said)
        (scratch / "traceback.txt").write_text(said.getvalue(), encoding="utf-8")
        shutil.rmtree(bundle, ignore_errors=True)
        scratch.rename(bundle)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for old in sorted(home.glob("record-*"))[:-MOST_BUNDLES]:
        shutil.rmtree(old, ignore_errors=True)
    return bundle


def _find_home(url: URL) -> Path:
    """Returns the directory for the bundles of the journal at *url*: next to the file, or where this core keeps its
    state."""
    if url.drivername.startswith("sqlite"):
        return Path(f"{url.database}.faults")
    return state_directory() / "faults"
