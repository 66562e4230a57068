"""Plays random worlds and prints the findings by rule, each kind with its smallest world.

python -m tests.properties.claims --worlds 300 --seed 1
python -m tests.properties.claims --world 17            # one world, second by second
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from dataclasses import fields

from tests.oracles.claims.checks import Finding
from tests.oracles.claims.scene import Application, Node, Queue, Task
from tests.properties.claims.course import Course
from tests.properties.claims.random_worlds import World, random_world


def describe(world: World) -> str:
    """Returns *world* in lines that say what there is and what happens; what has its default is left out."""
    lines = [f"{_written(thing)}" for thing in (*world.queues, *world.applications, *world.nodes)]
    lines += [f"{_written(task)} runs on {node}" for task, node in world.running]
    names = ("strict", "asked", "recreate", "leave_after", "percent")
    return "\n".join([*lines, " ".join(f"{name}={getattr(world, name)}" for name in names)])


def _written(thing: Queue | Application | Node | Task) -> str:
    kept = (f for f in fields(thing) if getattr(thing, f.name) != f.default and getattr(thing, f.name) not in ({}, ()))
    return f"{type(thing).__name__} " + " ".join(f"{f.name}={getattr(thing, f.name)}" for f in kept)


def main() -> None:
    """Prints counts of findings, or one world in full."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.claims", description=__doc__)
    parser.add_argument("--worlds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="number of the first world; the others count on from it")
    parser.add_argument("--world", type=int, help="play this world alone, and say what happens")
    options = parser.parse_args()
    if options.world is not None:
        world = random_world(options.world)
        print(describe(world))
        course = Course(world, trace=print).play()
        print("\n".join(map(str, course.findings)) or "no rule was broken")
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
