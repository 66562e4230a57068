"""Drives the engine through random clusters and has a second implementation of the rules judge what it does.

What the engine decides is followed through its effects and views alone; :mod:`tests.oracles.rules` says what is wrong
with it. Run as a program it prints how many clusters broke which rule, and how much more was freed than needed:

    python -m tests.properties.preemption_rules --trees 20000 --seed 1
    python -m tests.properties.preemption_rules --trees 500 --show needless     # one example of each, made small
    python -m tests.properties.preemption_rules --world 4711                    # one cluster, step by step
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracles.rules.world import World
from tests.properties.preemption_decisions import Tally
from tests.properties.preemption_run import Run
from tests.properties.rules_worlds import random_world, shrunk, written


def category(complaint: str) -> str:
    """The rule that a complaint is about: what it says before the colon."""
    return complaint.partition(":")[0]


def fails_with(rule: str) -> Callable[[World], bool]:
    """Whether a world still breaks *rule*."""

    def fails(world: World) -> bool:
        try:
            return any(category(said) == rule for said in Run(world).play().complaints)
        except (AssertionError, KeyError, IndexError, ValueError, StopIteration):
            return rule == "crash"

    return fails


@dataclass
class Figures:
    """What came of many clusters."""

    trees: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    """How many clusters broke each rule."""
    examples: dict[str, list[int]] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)

    def take_in(self, seed: int) -> Run:
        run = Run(random_world(seed)).play()
        self.trees += 1
        for rule in {category(said) for said in run.complaints}:
            self.broken[rule] += 1
            self.examples.setdefault(rule, []).append(seed)
        for kind, tally in run.decisions.tallies.items():
            self.tallies.setdefault(kind, Tally()).add(tally)
        return run

    def __str__(self) -> str:
        lines = [f"{self.trees:,} clusters"]
        for kind, tally in sorted(self.tallies.items()):
            factor = f"{tally.freed / tally.needed:.3f}" if tally.needed else "-"
            lines.append(
                f"  {kind}: {tally.decisions:,} decisions, {tally.victims:,} victims, "
                f"freed {tally.freed:,} of {tally.needed:,} needed, factor {factor}"
            )
        for rule, count in self.broken.most_common():
            seeds = ", ".join(map(str, self.examples[rule][:6]))
            lines.append(f"  {count:>5,} of {self.trees:,} clusters: {rule} (seeds {seeds})")
        if not self.broken:
            lines.append("  no rule was broken")
        return "\n".join(lines)


def example(seed: int, rule: str) -> str:
    """The cluster of *seed* that breaks *rule*, made as small as it gets, with what happens in it."""
    small = shrunk(random_world(seed), fails_with(rule))
    lines = [f"# seed {seed}: {rule}", written(small), "# what happens, by second:"]
    Run(small, trace=lambda line: lines.append(f"# {line}")).play()
    return "\n".join(lines)


def main() -> None:
    """Print the figures of many clusters, or one cluster in full."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.preemption_rules", description=__doc__)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster; the others count on from it")
    parser.add_argument("--show", nargs="*", help="rules to show a small example of; with no name: of all")
    parser.add_argument("--world", type=int, help="play the cluster of this seed alone, and say what happens")
    options = parser.parse_args()
    if options.world is not None:
        world = random_world(options.world)
        print(written(world))
        run = Run(world, trace=print).play()
        print("\n".join(run.complaints) or "no rule was broken")
        return
    began = time.monotonic()
    figures = Figures()
    for seed in range(options.seed, options.seed + options.trees):
        try:
            figures.take_in(seed)
        except Exception:
            print(f"seed {seed}")
            raise
    print(figures)
    print(f"  {time.monotonic() - began:.1f} s, seeds {options.seed} to {options.seed + options.trees - 1}")
    if options.show is not None:
        for rule in options.show or list(figures.broken):
            for seed in figures.examples.get(rule, [])[:1]:
                print(f"\n{example(seed, rule)}")


if __name__ == "__main__":
    main()
