"""P12: what the journal costs a core that places asks, in a burst and one at a time, and how fast it is decided again.

Runs without one, with SQLite and with PostgreSQL take turns, because the machines that run this drift; quoted are
ratios of neighbours.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from kornel.core.journal.content.replay import Replay, pause_collecting
from kornel.core.journal.database.reading import read_records
from kornel.shim_mock.load.sending import Placed, Sender
from kornel.shim_mock.load.workload import Workload
from tests.bench.core_process import RM, running_core
from tests.bench.placing import P1, P2_FLAT, connection, over_core, run, set_up, undisturbed
from tests.bench.table import Row
from tests.postgres import Postgres, programs, server
from tests.unit.journal.made import open_store

ASKS, QUICK_ASKS = 50_000, 10_000
LEAST_PERCENT = {"SQLite": 90.0, "PostgreSQL": 80.0}
MOST_BYTES = 60.0
SINGLE_ASKS = 2_000
EACH_S = 0.001
MOST_LATER_MS = {50: 1.5, 99: 6.0}


@dataclass(frozen=True, slots=True)
class _Found:
    """Runs in turn: allocations per second without a journal and with each, bytes for each placement, and decisions per
    second of the SQLite journal, decided again."""

    plain: list[float] = field(default_factory=list)
    kept: dict[str, list[float]] = field(default_factory=dict)
    journal_bytes: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)


def _measure(workload: Workload, runs: int, database: Postgres | None) -> _Found:
    found = _Found()
    for number in range(runs):
        with tempfile.TemporaryDirectory() as scratch:
            path = str(Path(scratch) / "journal.db")
            journals = {"": "", "SQLite": path}
            if database is not None:
                database.clear()
                journals["PostgreSQL"] = database.url
            # Nobody is always the first.
            for kind in list(journals)[:: -1 if number % 2 else 1]:
                rate = run(over_core(workload, journals[kind])).rate
                (found.kept.setdefault(kind, []) if kind else found.plain).append(rate)
            with closing(open_store(path)) as store, pause_collecting():
                found.journal_bytes.append(store.count_bytes()[2] / workload.asks)
                replay, began = Replay(), time.perf_counter()
                assert replay.play_all(read.record for read in read_records(store)) is None
                found.replayed.append(workload.asks / (time.perf_counter() - began))
    return found


async def _place_singly(journal: str) -> Placed:
    workload = replace(P2_FLAT, asks=SINGLE_ASKS)
    async with running_core(journal=journal) as (address, _), connection(address) as channel:
        sender = Sender(channel, RM)
        await set_up(sender, workload)
        asks = [ask for message in workload.ask_messages(RM) for ask in message.allocations]
        with undisturbed():
            return await sender.place_singly(asks, EACH_S)


def p12(runs: int, *, quick: bool) -> Iterator[Row]:
    """Rates with a journal that survives power loss, of those without."""
    asks = QUICK_ASKS if quick else ASKS
    with ExitStack() as opened:
        database = opened.enter_context(server()) if programs() is not None else None
        for name, workload in (("P1", replace(P1, asks=asks)), ("P2", replace(P2_FLAT, asks=asks))):
            found = _measure(workload, runs, database)
            what = f"{name}, {asks:,} asks at once"
            yield Row("P12", f"{what}, without a journal", "/s", found.plain)
            for kind, rates in found.kept.items():
                ratios = [100 * rate / plain for rate, plain in zip(rates, found.plain, strict=True)]
                yield Row("P12", f"{what}, journal on {kind}, of that", "%", ratios, LEAST_PERCENT[kind])
            yield Row("P12", f"{what}: journal for a placement", "B", found.journal_bytes, MOST_BYTES, at_most=True)
            yield Row("P12", f"{what}: decided again", "/s", found.replayed)
    plain, kept = [], []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as scratch:
            plain.append(run(_place_singly("")))
            kept.append(run(_place_singly(str(Path(scratch) / f"{number}.db"))))
    for percent, most in MOST_LATER_MS.items():
        later = [b.percentile_ms(percent) - a.percentile_ms(percent) for a, b in zip(plain, kept, strict=True)]
        yield Row("P12", f"1,000 single asks/s, later with SQLite, p{percent}", "ms", later, most, at_most=True)
