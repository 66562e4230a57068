"""The kinds beside each other: every row of the table in preemption.md H, through the engine."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.config.loader import load
from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.domain.reasons import Outcome
from tests.scenarios.preemption.monitor_stage import (
    AT_ONCE,
    ONE,
    START_NS,
    START_S,
    Stage,
    configuration,
    guaranteed,
    killed,
)

Queues = dict[str, dict[str, Any]]


def enforced(queues: Queues, path: str, most: int, delay: str = "10s") -> Queues:
    """*queues* with a max of *most* for *path*, to be enforced after *delay*."""
    changed = dict(queues)
    before = changed.get(path, {})
    changed[path] = {
        "resources": {**before.get("resources", {}), "max": {"f": most}},
        "properties": {**before.get("properties", {}), "quota.preemption.delay": delay},
    }
    return changed


def kinds(effects: list[Effect]) -> list[str]:
    """Of decisions that told somebody to leave, in their order."""
    return [e.kind for e in effects if isinstance(e, PreemptionDecided) and e.victims and e.outcome in TOLD]


TOLD = (Outcome.TRIGGERED, Outcome.FULL, Outcome.BEST_EFFORT, Outcome.PARTIAL)


def stage_of(queues: Queues, nodes: dict[str, int], **settings: Any) -> Stage:
    stage = Stage(queues, **{"quotapreemptionenabled": True, "dead_zone": 0, **AT_ONCE, **settings})
    for name, amount in nodes.items():
        stage.node(name, {"f": amount})
    for path in queues:
        if path != "root" and not any(other.startswith(f"{path}.") for other in queues):
            stage.application(f"app-{path}", path)
    return stage


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{at:02}" for at in range(count)]


def reconfigure(stage: Stage, queues: Queues, **settings: Any) -> None:
    text = configuration(queues, **{"quotapreemptionenabled": True, "dead_zone": 0, **AT_ONCE, **settings})
    stage.apply(UpdateConfiguration("rm", text))


@pytest.mark.parametrize("asks_below", [False, True])
def test_quota_run_and_guarantee_no_victims_from_below_and_no_asks_from_below(asks_below: bool) -> None:
    """While q is served, and only then, neither its tasks go for an ask elsewhere nor others for an ask of it."""
    queues = guaranteed(q=4, other=2)
    stage = stage_of(queues, {"n1": 8, "n2": 4}, enabled=False)
    stage.submit("app-q", numbered("q", 8), ONE, node_id="n1")
    stage.submit("app-other", numbered("o", 4), ONE, node_id="n2")
    reconfigure(stage, enforced(queues, "q", 6, "31s"), enabled=False)
    stage.submit("app-q" if asks_below else "app-other", ["ask"], ONE, allow_preempt_other=True)
    stage.now_ns = START_NS + 40 * 10**9
    seen: list[str] = []
    stage.state.enforcement.due.append(stage.state.queues["root.q"])
    while stage.state.enforcement.busy:
        seen += kinds(stage.engine.cycle(stage.now_ns, 1).effects)
    assert seen == ["quota"]


def test_settings_of_the_other_kind_beside_a_quota_delay_are_warned_about() -> None:
    queues = enforced(guaranteed(q=2), "q", 3)
    queues["q"]["properties"] |= {"preemption.delay": "1m", "priority.offset": "5"}
    warnings = " ".join(str(w) for w in load(configuration(queues)).warnings)
    assert "preemption.delay" in warnings
    assert "priority.offset" in warnings


@pytest.mark.parametrize(
    ("coexist", "per_round", "expected"),
    [
        (False, 0.1, [(18, 2), (36, 2), (54, 2), (72, 2)]),
        (False, 1, [(18, 10), (36, 8), (54, 7), (72, 5)]),
        (True, 0.1, [(18, 2), (36, 2), (54, 2), (60, 44)]),
        (True, 1, [(18, 10), (36, 8), (54, 7), (60, 25)]),
    ],
)
def test_who_waits_too_long_for_the_monitor_preempts(
    coexist: bool, per_round: float, expected: list[tuple[int, int]]
) -> None:
    """The numbers of docs/preemption.md: with a delay of 60 s the asks take at once what the monitor still owes."""
    queues = guaranteed(a=50, b=50)
    queues["b"]["properties"] = {"preemption.delay": "60s"}
    stage = Stage(queues, coexist=coexist, interval_ms=3000, max_wait_ms=15000, per_round=per_round)
    for number in range(50):
        stage.node(f"n{number:02}", {"f": 2})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for number in range(100):
        stage.submit("app-a", [f"a{number:03}"], ONE, node_id=f"n{number % 50:02}")
    stage.submit("app-b", numbered("b", 60), ONE, allow_preempt_other=True, created_s=START_S)
    left: list[tuple[int, int]] = []
    for second in range(1, 73):
        effects = stage.run_to(second)
        if killed(effects):
            left.append((second, len(killed(effects))))
        stage.confirm(effects)
        stage.run_to(second)
    assert left == expected
