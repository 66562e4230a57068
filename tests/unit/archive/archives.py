"""An archive with a database of its own, and events to give it, for tests of the history."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kornel.core.archive.archive import Archive
from kornel.core.archive.reader import HistoryReader, Page
from kornel.core.archive.settings import HistorySettings, history_settings
from kornel.core.domain.effects import Effect, EventRecorded
from kornel.core.domain.resources import Resources
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from tests.patience import PATIENCE_S

NOW_NS = 1_700_000_000 * 10**9
PARTITION = "[rm]default"


def settings_for(database: str, tmp_path: Path, **changes: Any) -> HistorySettings:
    found = history_settings(database, spool=tmp_path / "spool")
    assert found is not None
    quick = {"commit_wait_s": 0.01, "longest_pause_s": 0.2, "prune_every_s": 3600.0, "steady_s": 0.0}
    # A database that takes its time on a busy machine is no problem to be told.
    quick["silence_s"] = PATIENCE_S
    return replace(found, **(quick | changes))


@contextmanager
def writing(settings: HistorySettings, now_ns: Callable[[], int] = lambda: NOW_NS) -> Iterator[Archive]:
    archive = Archive(settings, now_ns=now_ns, logger=build_logger(LogFormat.CONSOLE, LogLevel.ERROR, io.StringIO()))
    archive.start()
    try:
        yield archive
    finally:
        archive.close(PATIENCE_S)


def everything(settings: HistorySettings, table: str) -> list[Any]:
    """All rows of *table*, the oldest first."""
    reader = HistoryReader(settings)
    try:
        found: list[Any] = []
        page = Page(size=1_000)
        while True:
            rows, more = reader.read_rows(table, page)
            found += rows
            if not more:
                return found[::-1]
            page = replace(page, after=(rows[-1].at_ns, rows[-1].run, rows[-1].seq))
    finally:
        reader.close()


def event(number: int, message: str = "", at_ns: int | None = None) -> EventRecorded:
    return EventRecorded(
        1,
        f"ask-{number}",
        "app",
        2,
        101,
        NOW_NS + number if at_ns is None else at_ns,
        Resources({"vcore": number}),
        message,
    )


def events(count: int, first: int = 0) -> list[Effect]:
    return [event(first + number) for number in range(count)]


def objects(rows: Sequence[Any]) -> list[str]:
    return [row.object_id for row in rows]
