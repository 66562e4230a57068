"""Run the benchmarks of single features: ``python -m tests.bench.features [--runs N] [--engine-only] [--thorough]``.

Exit status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import (
    attempts,
    domains,
    end_to_end,
    engine,
    event_streams,
    full_cluster,
    gang_preemption,
    gangs,
    history,
    large_tree,
    limits,
    metrics,
    monitor,
    preemption,
    recovery,
    responsiveness,
    rest,
    restart,
)

PLAIN = end_to_end.Workload()
ASKED = end_to_end.Workload(answer_s=0.001)
UNANSWERED = end_to_end.Workload(answer_s=0.001, unanswered=1_000)
LARGE = end_to_end.Workload(nodes=20_000, asks=100_000, queues=10)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.features", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="measurements per workload (median is quoted)")
    parser.add_argument("--engine-only", action="store_true", help="leave out what goes over gRPC")
    parser.add_argument("--thorough", action="store_true", help="larger variants as well, for many minutes")
    options = parser.parse_args()
    runs: int = options.runs
    reached = [
        engine.report(runs, thorough=options.thorough),
        limits.report(runs),
        large_tree.report(runs),
        full_cluster.report(runs),
        monitor.report(1),
        attempts.report(1),
        rest.report(runs),
        metrics.report(runs),
        gangs.report(runs, engine_only=options.engine_only),
        domains.report(runs, engine_only=options.engine_only),
        gang_preemption.report(runs),
    ]
    if not options.engine_only:
        reached += [
            end_to_end.report(PLAIN, runs, 15_000, "40,000 allocations/s"),
            end_to_end.report(ASKED, runs, 8_000, "half the plain rate: two more messages for each placement"),
            end_to_end.report(UNANSWERED, runs, 8_000, "the same: an open question holds up nobody else"),
            preemption.report(1),
            recovery.report(1),
            restart.report(1),
            responsiveness.report(runs),
            event_streams.report(runs, thorough=options.thorough),
            history.report(5),
        ]
        if options.thorough:
            reached.append(end_to_end.report(LARGE, runs, 15_000, "as with fewer"))
            reached.append(recovery.report(runs))
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
