"""Run the benchmarks: ``python -m tests.bench [--runs N] [--engine-only]``. Exit status 1 when a target is missed."""

from __future__ import annotations

import argparse
import sys

from tests.bench import end_to_end, engine, monitor

TARGETS = {end_to_end.Workload(): 15_000, end_to_end.Workload(answer_s=0.001): 8_000}
"""Least allocations per second of each workload."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measurements per workload (median is quoted)")
    parser.add_argument("--engine-only", action="store_true", help="leave out the gRPC measurement")
    options = parser.parse_args()
    engine.report(runs=options.runs)
    monitor.report(runs=options.runs)
    if options.engine_only:
        return 0
    reached = [
        end_to_end.report(workload, end_to_end.run(workload, options.runs), target)
        for workload, target in TARGETS.items()
    ]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
