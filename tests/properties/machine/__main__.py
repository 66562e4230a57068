"""``python -m tests.properties.machine``: the soak, and the replay of what it found."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

from tests.properties.machine import driver, journal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.properties.machine", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="how many steps to do (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds do the same (default %(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play a recorded failure instead")
    parser.add_argument("--build", type=Path, default=Path("build"), help="where failures go (default %(default)s)")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    return _soak(arguments.steps, arguments.seed, arguments.build)


def _soak(steps: int, seed: int, build: Path) -> int:
    start = time.monotonic()

    def progress(tally: driver.Tally) -> None:
        rate = tally.steps / (time.monotonic() - start)
        print(f"{tally.steps:>9} of {steps} steps, {rate:.0f} a second", flush=True)

    try:
        tally = driver.run(steps, seed, progress=progress)
    except driver.StepFailed as failed:
        traceback.print_exception(failed.error)
        print(f"\nseed {seed}: {failed}\nleaving out what is not needed ...", flush=True)
        path = build / f"machine-{seed}.jsonl"
        calls = driver.keep(failed, seed, path)
        print(
            f"{len(calls)} calls are left; play them again with\n  python -m tests.properties.machine --replay {path}"
        )
        return 1
    for kind, count in sorted(tally.seen.items()):
        print(f"{count:>9} {kind}")
    return 0


def _replay(path: Path) -> int:
    calls = journal.read(path)
    error = driver.replay(calls)
    for call in calls:
        print(journal.line(call))
    if error is None:
        print(f"{len(calls)} calls, and nothing fails")
        return 0
    traceback.print_exception(error)
    return 1


if __name__ == "__main__":
    sys.exit(main())
