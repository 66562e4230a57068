"""The table of the workloads P1 to P21: ``python -m tests.bench [--quick] [--only P2,P6] [--json FILE] [--record]``.

Every figure over gRPC stands beside that of a bare echo of the same messages in the same run. Exit status 1 when a
target is missed.
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
    ends,
    growth,
    journal,
    many_applications,
    memory,
    owed_queues,
    pages,
    placing,
    plot,
    preempting,
    record,
    responsiveness,
    saturated,
    served_ends,
    shared_nodes,
    single_asks,
    standby,
    starting,
    surroundings,
    trace,
    units,
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
    # What takes minutes by itself is measured less often, growth at the largest sizes and churn for instance.
    workloads: Workloads = {
        "P1": [(placing.p1, runs)],
        "P2": [(placing.p2, runs), (responsiveness.rows, runs)],
        "P3": [(placing.p3, runs)],
        "P4": [(growth.p4, min(2, runs))],
        "P5": [(waiting.p5, min(3, runs))],
        "P5b": [(unsatisfied.p5b, 1)],
        "P6": [(single_asks.p6, min(3, runs))],
        "P7": [(partial(churn.p7, seconds=options.churn or _churn_s(options)), 1)],
        "P8": [(memory.p8, min(2, runs))],
        "P9": [(partial(trace.p9, options.trace), runs)],
        "P10": [(preempting.p10, min(3, runs))],
        "P11": [(shared_nodes.p11, min(3, runs))],
        "P12": [(journal.p12, min(3, runs))],
        "P13": [(standby.p13, 1)],
        "P14": [(surroundings.p14, runs)],
        "P15": [(many_applications.p15, min(3, runs))],
        "P16": [(units.p16, min(3, runs))],
        "P17": [(starting.p17, runs)],
        "P18": [(ends.p18, min(2, runs)), (served_ends.p18_served, min(2, runs))],
        "P19": [(partial(saturated.p19, options.trace), min(2, runs))],
        "P20": [(partial(owed_queues.p20, options.trace), min(2, runs))],
        "P21": [(saturated.p21, min(2, runs))],
    }
    wanted = options.only.split(",") if options.only else list(workloads)
    if unknown := set(wanted) - set(workloads):
        print(f"--only: no such workload: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    before, began = pace(), time.monotonic()
    rows: list[Row] = []
    took_s: dict[str, float] = {}
    failed = 0
    print(HEADER, flush=True)
    try:
        for number in wanted:
            began_part = time.monotonic()
            for measure, times in workloads[number]:
                found = _measure_twice_at_most(number, partial(measure, times, quick=options.quick))
                failed += found is None
                rows += found or ()
            took_s[number] = round(time.monotonic() - began_part, 1)
    except KeyboardInterrupt:
        print("interrupted: what was measured before counts", flush=True)
    after = pace()
    missed = [row for row in rows if not row.met]
    kind = "quick" if options.quick else "full"
    took = time.monotonic() - began
    print(f"{len(rows)} figures, {len(missed)} targets missed, {failed} workloads failed, {took:.0f} s ({kind})")
    print("of which", ", ".join(f"{number} {seconds:.0f} s" for number, seconds in took_s.items()))
    print(f"pace of the machine {before:,.0f} steps/s before, {after:,.0f} after")
    around = costs.largest(quick=options.quick) if {"P1", "P2", "P3"}.intersection(wanted) else {}
    document = record.document(
        rows, quick=options.quick, steps_per_s=(before, after), took_s=took_s, largest_costs_us=around
    )
    if options.json is not None:
        record.save(document, options.json)
    if options.record:
        added = record.add(document)
        print(f"recorded in {added.relative_to(record.ROOT)}")
        plot.draw()
        if not options.quick and set(took_s) == set(workloads):
            pages.write_pages(document, added.name)
            print("wrote the tables of docs/performance.md and docs/performance-journal.md; read the text beside them")
    if around:
        print(costs.summary(around))
    return 1 if missed or failed else 0


def _measure_twice_at_most(number: str, measure: Callable[[], Iterator[Row]]) -> list[Row] | None:
    """The rows of a part, printed as they come; ``None`` if something went wrong both times, which must not cost the
    others."""
    for _ in range(2):
        rows: list[Row] = []
        try:
            for row in measure():
                rows.append(row)
                print(line(row, pace()), flush=True)
        except Exception:  # noqa: BLE001 - whatever a part meets is its own
            print(f"{number:5}could not be measured:\n{traceback.format_exc()}", flush=True)
        else:
            return rows
    return None


def _churn_s(options: argparse.Namespace) -> float:
    """Ten minutes, which is what the target is about, belong in the record; a look at the table need not take them."""
    if options.quick:
        return 20.0
    return 600.0 if options.record else 60.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: about five minutes")
    parser.add_argument("--runs", type=int, help=f"measurements per figure (default {RUNS}, quick {QUICK_RUNS})")
    parser.add_argument("--only", metavar="P1,P2", default="", help="only these workloads")
    parser.add_argument("--churn", metavar="S", type=float, help="seconds of P7 (default 60, quick 20, to record 600)")
    parser.add_argument("--trace", metavar="DIR", type=Path, help="folder of the openb trace, for P9, P19 and P20")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the table to this file too")
    parser.add_argument(
        "--record",
        action="store_true",
        help="add the table to docs/bench, draw the plot and write the tables of the pages again",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
