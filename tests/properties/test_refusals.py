"""No refused question sleeps on that could be answered otherwise: each is asked again from scratch after every look.

Small clusters full of guarantees, quotas and fences, in which everything that the shim may do happens at random. The
partition says which refused questions its changes leave as they were; a planner without any memory has to refuse them
all. For a long run: ``python -m tests.properties.test_refusals --seconds 3600``.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from kornel.core.preemption.guarantee.attempts.questions import QuestionGate
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.plan import Refusal
from kornel.core.state.partition_state import PartitionState
from tests.examples import mark_rest_long
from tests.scenarios.language import RM
from tests.scenarios.stage import Stage

LEAVES = ("root.p.a", "root.p.b", "root.p.x.c", "root.p.x.d", "root.q.e", "root.q.f")
PARENTS = ("root.p", "root.p.x", "root.q")
STEPS = 150


@dataclass
class Tally:
    """How many answers were found to stand after changes, and how many were doubted."""

    kept: int = 0
    doubted: int = 0
    wrong: list[str] = field(default_factory=list)


@pytest.mark.parametrize("seed", mark_rest_long((30127, *range(30)), keep=2))
def test_no_question_sleeps_that_could_succeed(seed: int) -> None:
    with judging() as tally:
        play(seed)
    assert not tally.wrong
    assert tally.kept + tally.doubted > 0


def test_most_changes_wake_nobody() -> None:
    """What comes and goes in a leaf below its guarantee, on nodes too small for the ask, is no reason to search."""
    stage = Stage()
    stage.play([
        "queue root.v guaranteed={f=100}", "queue root.a guaranteed={f=10}", "node n1 f=10", "node n2 f=3",
        "run v1 queue=root.v node=n1 f=9", "app v queue=root.v", "ask k queue=root.a f=10 other=yes", "cycle at=30s",
    ])  # fmt: skip
    state = stage.state
    assert state.preemption_attempts == 1
    for number in range(20):
        stage.play([f"run o{number} app=v node=n2 f=1", f"cycles until={32 + 2 * number}s every=1s"])
        stage.play([f"release o{number} app=v", f"cycles until={33 + 2 * number}s every=1s"])
    assert state.preemption_attempts == 1
    stage.play(["queue root.v", "queue root.a guaranteed={f=10}", "update-config", "cycle at=100s"])
    assert state.requests["k"].triggered


def test_a_fall_between_two_looks_hides_no_growth() -> None:
    """A question is refused while the victims' leaf holds less than at the last look and at the next one."""
    stage = Stage()
    stage.play([
        "queue root.v guaranteed={f=10}", "queue root.o guaranteed={f=7,h=1} preemption.delay=30s",
        "queue root.z guaranteed={f=1,h=2} preemption.delay=1s", "node a f=7 h=1", "node b f=30", "node d f=10",
        "app v queue=root.v", "app z queue=root.z", "app o queue=root.o", "run a1 app=v node=a f=7",
    ])  # fmt: skip
    stage.play([f"run b{number} app=v node=b f=1" for number in range(10)])
    stage.play(["ask other app=z f=1 h=2 other=yes", "cycles until=10s every=1s", "release b9 app=v"])
    stage.play(["release b8 app=v", "ask k app=o f=7 h=1 other=yes", "cycles until=38s every=1s"])
    stage.play(["run b8 app=v node=b f=1", "run b9 app=v node=b f=1", "cycle at=39.95s"])
    stage.play(["release b9 app=v", "release b8 app=v", "cycle at=39.96s", "cycle at=40.001s", "cycle at=40.002s"])
    state = stage.state
    assert not state.requests["k"].triggered
    stage.play(["run b8 app=v node=b f=1", "run b9 app=v node=b f=1", "cycles until=42s every=0.5s"])
    assert state.requests["a1"].preempted


@contextmanager
def judging() -> Iterator[Tally]:
    """Every look of every partition is judged meanwhile."""
    tally = Tally()
    before = QuestionGate.sort_out

    def doubt(self: QuestionGate, state: PartitionState, now_ns: int) -> None:
        before(self, state, now_ns)
        for (leaf, shape, *_), known in self._known.items():
            if known.doubtful:
                tally.doubted += 1
                continue
            for ask in known.asks:
                tally.kept += 1
                result = guarantee.plan_preemption(state, ask, now_ns=now_ns)
                if not isinstance(result, Refusal):
                    tally.wrong.append(f"{ask.key} ({shape.pairs}) in {leaf.path}: {known.refusal} but {result}")

    QuestionGate.sort_out = doubt  # type: ignore[method-assign]
    try:
        yield tally
    finally:
        QuestionGate.sort_out = before  # type: ignore[method-assign]


def play(seed: int) -> None:
    """Random steps in a random cluster."""
    rng = random.Random(seed)
    stage = Stage()
    types = ("f",) if rng.random() < 0.5 else ("f", "h")
    while stage.engine.partition(f"[{RM}]default") is None:
        stage.play([*_queues(rng, types), "register"])
    for number in range(3):
        stage.play([f"node n{number} {_amounts(rng, types, 4, 9)}"])
    state = stage.engine.partition(f"[{RM}]default")
    assert state is not None
    now_s = 100.0
    for number in range(STEPS):
        for _ in range(rng.randint(1, 2)):
            stage.play(_step(rng, types, number, state))
        now_s += rng.choice((0.05, 0.2, 1.0, 4.0))
        stage.play([f"cycle at={now_s:g}s"])
        for key in [key for key, request in state.requests.items() if request.preempted and rng.random() < 0.5]:
            stage.play([f"release {key} app={state.requests[key].application.application_id}"])


def _step(rng: random.Random, types: tuple[str, ...], number: int, state: PartitionState) -> list[str]:
    known = list(state.requests.values())
    running = [request for request in known if request.node is not None]
    node = rng.choice(list(state.nodes)) if state.nodes else "n0"
    some = rng.choice(known) if known else None
    kind = rng.random()
    options = f"p={rng.choice((0, 0, 0, 1))} self={rng.choice(('yes', 'yes', 'no'))}"
    if kind < 0.35 or some is None:
        leaf = rng.choice(LEAVES)
        return [f"ask k{number}-{rng.random()} queue={leaf} {_amounts(rng, types, 1, 6)} other=yes {options}"]
    if kind < 0.55:
        name, leaf = f"r{number}-{rng.random()}", rng.choice(LEAVES)
        return [f"run {name} queue={leaf} node={node} {_amounts(rng, types, 1, 3)} {options}"]
    if kind < 0.80 and running:
        gone = rng.choice(running)
        return [f"release {gone.key} app={gone.application.application_id}"]
    if kind < 0.84:
        return [f"resize {node} {_amounts(rng, types, 3, 10)}"]
    if kind < 0.88:
        return [f"{rng.choice(('drain', 'undrain', 'undrain'))} {node}"]
    if kind < 0.91:
        return [f"node m{number}-{rng.random()} {_amounts(rng, types, 2, 9)}"]
    if kind < 0.93 and len(state.nodes) > 2:
        return [f"decommission {node}"]
    if kind < 0.96:
        where = f" node={some.node.node_id}" if some.node is not None else ""
        return [f"resize-ask {some.key} app={some.application.application_id} {_amounts(rng, types, 1, 5)}{where}"]
    if kind < 0.98:
        return [f"foreign f{rng.randint(0, 2)} node={node} {_amounts(rng, types, 1, 3)}"]
    return [*_queues(rng, types), "update-config"]


def _queues(rng: random.Random, types: tuple[str, ...]) -> list[str]:
    lines = []
    for path in PARENTS:
        guaranteed = f" guaranteed={{{_commas(rng, types, 6, 14)}}}" if rng.random() < 0.4 else ""
        most = f" max={{{_commas(rng, types, 14, 20)}}}" if rng.random() < 0.4 else ""
        lines.append(f"queue {path} parent{guaranteed}{most}")
    for path in LEAVES:
        guaranteed = f" guaranteed={{{_commas(rng, types, 1, 5)}}}" if rng.random() < 0.7 else ""
        most = f" max={{{_commas(rng, types, 5, 9)}}}" if rng.random() < 0.3 else ""
        policy = rng.choice(("", "", "", "", " preemption.policy=fence", " preemption.policy=disabled"))
        lines.append(f"queue {path}{guaranteed}{most} preemption.delay=1s{policy}")
    return lines


def _amounts(rng: random.Random, types: tuple[str, ...], least: int, most: int) -> str:
    return " ".join(f"{name}={rng.randint(least, most)}" for name in types)


def _commas(rng: random.Random, types: tuple[str, ...], least: int, most: int) -> str:
    return ", ".join(f"{name}: {rng.randint(least, most)}" for name in types).replace(": ", "=").replace(", ", ",")


def main() -> None:
    """As many clusters as fit into the given number of seconds."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.test_refusals", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1_000, help="the first one")
    options = parser.parse_args()
    ends, seed = time.monotonic() + options.seconds, options.seed
    with judging() as tally:
        while time.monotonic() < ends and not tally.wrong:
            play(seed)
            seed += 1
    print(f"{seed - options.seed:,} clusters, {tally.kept:,} answers kept, {tally.doubted:,} doubted")
    if tally.wrong:
        raise SystemExit(f"seed {seed - 1}: {tally.wrong[0]}")


if __name__ == "__main__":
    main()
