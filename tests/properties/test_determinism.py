"""The same commands at the same times give the same effects, byte for byte, in any process under any hash seed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import NodeAction, NodeSpec
from kornel.core.engine.engine import Engine
from tests.examples import scale_examples
from tests.patience import PATIENCE_S
from tests.properties.limited_shim import LimitedShim
from tests.properties.machine import driver, journal
from tests.properties.machine.world import World
from tests.properties.shim import (
    PARTITION,
    SECOND,
    WIDTH,
    Operation,
    Shim,
    configuration,
    random_history,
    size,
)

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = range(2)
LENGTH: Final = 300
EPISODES: Final = (9, 33, 46, 57)
"""Seeds of recorded runs that together showed :data:`FEATURES` when they were chosen."""
MOST_RUNS: Final = 400
"""The most runs that are tried until some of them together show :data:`FEATURES`."""
FEATURES: Final = (
    b"PreemptionDecided(", b"PREEMPTED_BY_SCHEDULER", b"PLACEHOLDER_REPLACED", b"AskReleased(", b"Resuming",
    b"PredicatesAsked(", b"PreemptionPredicatesAsked(", b"SchedulingFailed(", b"instance=2", b"Expired",
)  # fmt: skip
"""What the answers to recorded runs must show, or they prove less than they seem to."""


def write_log() -> None:
    """Print the commands and effects of a few seeded histories; run in a process of its own."""
    plain = ((Shim(seed, gangs=seed % 2 == 1), seed) for seed in SEEDS)
    for shim, seed in [*plain, *((LimitedShim(seed), seed) for seed in SEEDS)]:
        for operation in random_history(seed, LENGTH):
            shim.perform(operation)
            shim.settle()
        sys.stdout.write("\n".join(shim.log) + "\n")


def write_answers(*paths: str) -> None:
    """Print what an engine answers to each recorded run; run in a process of its own."""
    for path in paths:
        world = World()
        world.effects = []
        for call in journal.read(Path(path)):
            world.play(call)
        sys.stdout.write("\n".join(world.effects) + "\n")


def _run_under(hash_seed: str, code: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True, timeout=PATIENCE_S
    )
    return done.stdout


def test_two_processes_decide_alike() -> None:
    """Two processes with different hash seeds answer one log with the same bytes."""
    code = "from tests.properties.test_determinism import write_log; write_log()"
    first, second = _run_under("1", code), _run_under("2", code)
    assert first.count(b"Allocated(") > 200
    assert b"PreemptionDecided(" in first
    assert b"PLACEHOLDER_REPLACED" in first
    assert first == second


def _record_runs(directory: Path) -> list[str]:
    """Returns the files of runs that together show :data:`FEATURES`, each at least one that those before do not."""
    paths: list[str] = []
    missing = set(FEATURES)
    for seed in dict.fromkeys((*EPISODES, *range(MOST_RUNS))):
        world = driver.episode(f"determinism/{seed}", 400)
        played = World()
        played.effects = []
        for call in world.calls:
            played.play(call)
        shown = "\n".join(played.effects).encode()
        if found := {feature for feature in missing if feature in shown}:
            missing -= found
            path = directory / f"run-{seed}.jsonl"
            journal.write(path, world.calls, {"seed": seed})
            paths.append(str(path))
        if not missing:
            return paths
    raise AssertionError(f"{MOST_RUNS} runs do not show {missing}")


@pytest.mark.long
def test_a_recorded_run_is_answered_alike_everywhere(tmp_path: Path) -> None:
    """Whatever the machine's rules can do: two processes with different hash seeds answer it with the same bytes."""
    paths = _record_runs(tmp_path)
    code = f"from tests.properties.test_determinism import write_answers; write_answers(*{paths!r})"
    first, second = _run_under("1", code), _run_under("2", code)
    assert first.count(b"Allocated(") > 100
    assert first.count(b"Rejected(") > 50
    assert all(feature in first for feature in FEATURES)
    assert first == second


@settings(max_examples=scale_examples(30), deadline=None)
@given(st.integers(0, 23), st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=60))
def test_one_process_decides_alike(variant: int, history: list[Operation]) -> None:
    """A second core that gets the same calls answers the same."""
    logs: list[list[str]] = []
    for _ in range(2):
        shim = Shim(variant)
        for operation in history:
            shim.perform(operation)
        logs.append(shim.log)
    assert logs[0] == logs[1]


def _answers(nodes: Sequence[NodeSpec], variant: int, history: Sequence[Operation]) -> list[str]:
    """What a shim is answered when *nodes* were registered in this order before anything else."""
    shim = Shim(variant)
    for node in nodes:
        shim.send_node(node)
    before = len(shim.log)
    for operation in history:
        shim.perform(operation)
        shim.settle()
    return shim.log[before:]


def test_the_order_of_registration_decides_nothing() -> None:
    """Nodes that were registered in another order take the same asks: equal scores go by node ID."""
    dice = random.Random(5)
    for variant in range(8):
        nodes = [
            NodeSpec(f"m{number:02}", NodeAction.CREATE, PARTITION, capacity=size(6 + number % 3, 8))
            for number in range(12)
        ]
        history = list(random_history(variant, 80))
        expected = _answers(nodes, variant, history)
        dice.shuffle(nodes)
        assert _answers(nodes, variant, history) == expected


def test_wakeups_are_enough() -> None:
    """A core that is called only when it asked to be decides at the same times as one called every 100 ms."""
    logs: list[list[str]] = []
    for eager in (True, False):
        shim = Shim(1)
        for operation in random_history(11, 60):
            shim.perform(operation)
            shim.settle()
        start, horizon = shim.now_ns, shim.now_ns + 60 * SECOND
        before = len(shim.log)
        while shim.now_ns < horizon:
            tick = shim.now_ns + SECOND // 10
            wakeup = shim.engine.next_wakeup_ns()
            assert wakeup is None or wakeup > shim.now_ns
            shim.now_ns = tick
            if eager or (wakeup is not None and wakeup <= tick):
                shim.settle()
        assert shim.now_ns >= start
        logs.append([line for line in shim.log[before:] if not line.startswith("cycle")])
    assert logs[0] == logs[1]


def test_nobody_registered_wants_nothing() -> None:
    """A fresh core has no wish to be called, and calling it is harmless."""
    engine = Engine()
    assert engine.next_wakeup_ns() is None
    assert engine.cycle(0, 100).effects == []
    assert engine.preempt(0) == []
    assert engine.preemption_interval_ns is None
    assert configuration(0)
