"""The table of the workloads P1 to P13: ``python -m tests.bench [--quick] [--only P2,P6] [--json FILE] [--record]``.

Every figure over gRPC stands beside that of a bare echo of the same messages in the same run. Exit status 1 when a
target is missed. The benchmarks of single features are in ``python -m tests.bench.features``.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench import (
    churn,
    costs,
    growth,
    journal,
    memory,
    placing,
    plot,
    preempting,
    record,
    responsiveness,
    shared_nodes,
    single_asks,
    standby,
    trace,
    unsatisfied,
    waiting,
)
from tests.bench.report import pace
from tests.bench.table import HEADER, Row, line

RUNS, QUICK_RUNS = 5, 1
Workloads = dict[str, list[tuple[Callable[..., Iterator[Row]], int]]]


def main() -> int:
    options = _options()
    runs: int = options.runs or (QUICK_RUNS if options.quick else RUNS)
    # What takes minutes by itself is measured less often: growth at the largest sizes, and churn.
    workloads: Workloads = {
        "P1": [(placing.p1, runs)],
        "P2": [(placing.p2, runs), (responsiveness.rows, runs)],
        "P3": [(placing.p3, runs)],
        "P4": [(growth.p4, min(3, runs))],
        "P5": [(waiting.p5, min(3, runs))],
        "P5b": [(unsatisfied.p5b, min(3, runs))],
        "P6": [(single_asks.p6, min(3, runs))],
        "P7": [(churn.p7, 1)],
        "P8": [(memory.p8, min(3, runs))],
        "P9": [(partial(trace.p9, options.trace), runs)],
        "P10": [(preempting.p10, min(3, runs))],
        "P11": [(shared_nodes.p11, min(3, runs))],
        "P12": [(journal.p12, runs)],
        "P13": [(standby.p13, min(3, runs))],
    }
    wanted = options.only.split(",") if options.only else list(workloads)
    if unknown := set(wanted) - set(workloads):
        print(f"--only: no such workload: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    before, began = pace(), time.monotonic()
    rows: list[Row] = []
    print(HEADER, flush=True)
    failed = 0
    for number in wanted:
        for measure, times in workloads[number]:
            try:
                for row in measure(times, quick=options.quick):
                    rows.append(row)
                    print(line(row, pace()), flush=True)
            except Exception:  # noqa: BLE001 - what one workload met must not cost the others
                failed += 1
                print(f"{number:5}could not be measured:\n{traceback.format_exc()}", flush=True)
    after = pace()
    missed = [row for row in rows if not row.met]
    kind = "quick" if options.quick else "full"
    took = time.monotonic() - began
    print(f"{len(rows)} figures, {len(missed)} targets missed, {failed} workloads failed, {took:.0f} s ({kind})")
    print(f"pace of the machine {before:,.0f} steps/s before, {after:,.0f} after")
    if {"P1", "P2", "P3"}.intersection(wanted):
        print(costs.summary(quick=options.quick))
    found = record.document(rows, quick=options.quick, steps_per_s=(before, after))
    if options.json is not None:
        record.save(found, options.json)
    if options.record:
        print(f"recorded in {record.add(found).relative_to(record.ROOT)}")
        plot.draw()
    return 1 if missed or failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: under two minutes")
    parser.add_argument("--runs", type=int, help=f"measurements per figure (default {RUNS}, quick {QUICK_RUNS})")
    parser.add_argument("--only", metavar="P1,P2", default="", help="only these workloads")
    parser.add_argument("--trace", metavar="DIR", type=Path, help="folder of the openb trace, for P9")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the table to this file too")
    parser.add_argument("--record", action="store_true", help="add the table to docs/bench and draw the plot again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
