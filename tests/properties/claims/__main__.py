"""Plays random worlds and prints the findings by rule, each kind with its smallest world.

python -m tests.properties.claims --worlds 300 --seed 1
python -m tests.properties.claims --world 17            # one world, second by second
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, Final

from tests.oracles.claims.checks import Finding
from tests.properties.claims.course import Course
from tests.properties.claims.random_worlds import random_world

EMPTY: Final[dict[str, Any]] = dict.fromkeys(("queues", "applications", "nodes", "running", "events"), ())


def main() -> None:
    """Prints counts of findings, or one world in full."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.claims", description=__doc__)
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="number of the first world; the others count on from it")
    parser.add_argument("--world", type=int, help="play this world alone, and say what happens")
    options = parser.parse_args()
    if options.world is not None:
        world = random_world(options.world)
        print(*world.queues, *world.applications, *world.nodes, *world.running, replace(world, **EMPTY), sep="\n")
        print(*Course(world, trace=print).play().findings, sep="\n")
        return
    began, seen, sound = time.monotonic(), Counter[str](), 0
    kinds: dict[str, dict[int, Finding]] = defaultdict(dict)
    for number in range(options.seed, options.seed + options.worlds):
        course = Course(random_world(number)).play()
        seen += course.seen
        sound += not course.findings
        for finding in course.findings:
            kinds[finding.kind].setdefault(number, finding)
    print(f"{options.worlds} worlds in {time.monotonic() - began:.0f} s, {sound} without findings")
    for kind, found in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        smallest = min(found, key=lambda number: (random_world(number).steps, number))
        print(f"{len(found):>5} worlds: {kind}; smallest ({random_world(smallest).steps} steps): {found[smallest]}")
    print("what the worlds have: " + ", ".join(f"{what} {count}" for what, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
