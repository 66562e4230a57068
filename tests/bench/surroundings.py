"""P14: what history and journal cost a burst, and the part of a bare echo that is left with all of them on.

A run is an echo of the messages, a core without a history, one with it and one that keeps a journal (``written``) as
well, one after the other; compared are neighbours, since the machines that run this drift.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kornel.shim_mock.load.workload import Workload
from tests.bench.core_process import RM
from tests.bench.placing import P1, P2_FLAT, P2_NESTED, P3, measure_burst, over_echo, run
from tests.bench.table import Row

MOST_OF_HISTORY, LEAST_WITH_JOURNAL = 5.0, 90.0
PARTS = (("P1", P1, 45.0), ("P2 flat", P2_FLAT, 30.0), ("P2 nested", P2_NESTED, 30.0), ("P3", P3, 30.0))
"""The workloads, and the least part of the echo that each is to reach, in per cent."""

COMPARED = ("P1", "P2 flat")
"""The workloads that are placed without history and without a journal as well."""


@dataclass(slots=True)
class Rates:
    """Allocations per second in each run."""

    echo: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    journal: list[float] = field(default_factory=list)


def p14(runs: int, *, quick: bool) -> Iterator[Row]:
    """Everything on beside an echo, and beside less."""
    asks = 10_000 if quick else 50_000
    for name, workload, least in PARTS:
        rates = _measure(replace(workload, asks=asks), runs, compared=name in COMPARED)
        what = f"{name}, {asks:,} asks"
        with_all = f"{what}, with history, REST and journal (written)"
        yield Row("P14", with_all, "/s", rates.journal, None, ceilings=rates.echo)
        shares = [100 * rate / echo for rate, echo in zip(rates.journal, rates.echo, strict=True)]
        yield Row("P14", f"{what}: its part of the echo", "%", shares, least)
        if name in COMPARED:
            cost = [100 * (1 - kept / bare) for kept, bare in zip(rates.history, rates.bare, strict=True)]
            yield Row("P14", f"{what}: history and events cost", "%", cost, MOST_OF_HISTORY, at_most=True)
            left = [100 * kept / bare for kept, bare in zip(rates.journal, rates.history, strict=True)]
            yield Row("P14", f"{what}: a journal (written) leaves", "%", left, LEAST_WITH_JOURNAL)


def _measure(workload: Workload, runs: int, *, compared: bool) -> Rates:
    found = Rates()
    for _ in range(runs):
        found.echo.append(run(over_echo(list(workload.ask_messages(RM)))).rate)
        if compared:
            found.bare.append(run(measure_burst(workload, history=False)).placed.rate)
            found.history.append(run(measure_burst(workload)).placed.rate)
        with tempfile.TemporaryDirectory() as scratch:
            journal = str(Path(scratch, "journal.db"))
            found.journal.append(run(measure_burst(workload, journal=journal, sync="written")).placed.rate)
    return found
