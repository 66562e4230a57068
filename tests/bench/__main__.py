"""Run the benchmarks: ``python -m tests.bench [--runs N] [--engine-only]``. Exit status 1 when a target is missed."""

from __future__ import annotations

import argparse
import sys

from tests.bench import end_to_end, engine

TARGET = 15_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measurements per workload (median is quoted)")
    parser.add_argument("--engine-only", action="store_true", help="leave out the gRPC measurement")
    options = parser.parse_args()
    engine.report(runs=options.runs)
    if options.engine_only:
        return 0
    workload = end_to_end.Workload()
    return 0 if end_to_end.report(workload, end_to_end.run(workload, options.runs), TARGET) else 1


if __name__ == "__main__":
    sys.exit(main())
