"""Seeded runs of any length: episodes of a few thousand steps, each with its own mix of rules, and a full clean-up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kornel.core.domain.commands import RegisterManager
from tests.properties.machine import (
    allocation_rules,
    application_rules,
    callback_rules,
    device_rules,
    journal,
    node_rules,
    release_rules,
    time_rules,
)
from tests.properties.machine.cluster import VARIANTS, configuration
from tests.properties.machine.dice import Dice
from tests.properties.machine.journal import Call
from tests.properties.machine.registry import RULES, Rule
from tests.properties.machine.view import ContractBroken
from tests.properties.machine.world import RM, World

RULE_MODULES: Final = (
    node_rules, application_rules, allocation_rules, release_rules, time_rules, callback_rules, device_rules
)  # fmt: skip
EPISODE: Final = 2_000
"""Steps between two clean-ups: long enough for everything to have happened to everything."""


class StepFailed(Exception):
    """A step of a run broke the contract or the engine; ``calls`` lead there."""

    def __init__(self, calls: list[Call], error: Exception) -> None:
        super().__init__(f"after {len(calls)} calls: {type(error).__name__}: {error}")
        self.calls = calls
        self.error = error


@dataclass
class Tally:
    """What happened so far."""

    steps: int = 0
    calls: int = 0
    seen: dict[str, int] = field(default_factory=dict)


def episode(seed: str, steps: int, world: World | None = None) -> World:
    """*steps* random steps, then everything is removed. Equal seeds do the same. Raises :class:`StepFailed`."""
    source = random.Random(seed)
    world = world or World()
    dice = Dice.seeded(source)
    weights = [_mixed(rule, source) for rule in RULES]
    try:
        world.send(RegisterManager(RM, configuration(source.randrange(VARIANTS))))
        for rule in source.choices(RULES, weights, k=steps):
            rule.perform(world, dice)
        world.remove_everything()
    except Exception as error:
        raise StepFailed(world.calls, error) from error
    return world


def _mixed(rule: Rule, source: random.Random) -> float:
    """Each episode leaves some rules out and prefers others, so that rare states are reached too."""
    return rule.weight * source.choice((0, 0.3, 1, 1, 1, 3)) if rule.weight < 10 else rule.weight


def run(steps: int, seed: int, *, longest: int = EPISODE, progress: Callable[[Tally], None] | None = None) -> Tally:
    """*steps* steps in episodes of *longest* steps. Raises :class:`StepFailed`."""
    tally = Tally()
    for number in range((steps + longest - 1) // longest):
        length = min(longest, steps - tally.steps)
        world = episode(f"{seed}/{number}", length)
        tally.steps += length
        tally.calls += len(world.calls)
        for kind, count in world.seen.items():
            tally.seen[kind] = tally.seen.get(kind, 0) + count
        if progress is not None:
            progress(tally)
    return tally


def replay(calls: list[Call]) -> Exception | None:
    """How playing *calls* fails; ``None``: it does not."""
    world = World()
    try:
        for call in calls:
            world.play(call)
    except Exception as error:  # noqa: BLE001  whatever goes wrong is a finding
        return error
    return None


def shrink(calls: list[Call], error: Exception, *, seconds: float) -> list[Call]:
    """Fewer calls that fail in the same way: leaves out ever smaller parts for as long as that works.

    It goes on after *seconds* only until anything could be left out at all.
    """
    wanted, deadline, whole = _kind(error), time.monotonic() + seconds, len(calls)
    part = max(1, len(calls) // 2)

    def may_go_on() -> bool:
        return len(calls) == whole or time.monotonic() < deadline

    while may_go_on():
        at, before = 0, len(calls)
        while at < len(calls) and may_go_on():
            fewer = calls[:at] + calls[at + part :]
            failed = replay(fewer)
            if failed is not None and _kind(failed) == wanted:
                calls = fewer
            else:
                at += part
        if part == 1 and len(calls) == before:
            break
        part = max(1, part // 2)
    return calls


def _kind(error: Exception) -> tuple[str, str]:
    return (type(error).__name__, error.rule if isinstance(error, ContractBroken) else "")


def keep(failed: StepFailed, seed: int, path: Path, *, seconds: float = 60) -> list[Call]:
    """Shrink what failed and write it to *path*."""
    calls = shrink(failed.calls, failed.error, seconds=seconds)
    heading = {"seed": seed, "failure": f"{type(failed.error).__name__}: {failed.error}"[:1000]}
    journal.write(path, calls, heading)
    return calls
