"""The worked amounts of the periodic policy (preemption.md J.5), through the whole engine.

What a leaf is to give up shows in whom the first round notifies. Asks take what room is free before that, so that the
round looks at what still waits. Running tasks have a low priority: the amounts are worked out before law 6 is looked
at. Asks do not preempt by themselves so soon.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from kornel.core.domain.reasons import Outcome
from tests.monitor_notation import TYPES, MonitorCase, Vector, parse
from tests.scenarios.preemption.monitor_stage import Stage, decided, killed

CASES: Final = parse(Path(__file__).with_name("monitor.cases").read_text(encoding="utf-8"))


def stage_of(case: MonitorCase) -> Stage:
    stage = Stage(described(case), **case.settings)
    populate(stage, case)
    return stage


def described(case: MonitorCase) -> dict[str, dict[str, Any]]:
    """Queues by path, as :class:`Stage` takes them."""
    queues: dict[str, dict[str, Any]] = {"root": {"properties": {"preemption.delay": "1000h"}}}
    if case.root_disabled:
        queues["root"]["properties"]["preemption.policy"] = "disabled"
    for queue in case.queues:
        resources = {"guaranteed": amounts(queue.guaranteed), "max": amounts(queue.maximum or ())}
        properties = {"preemption.policy": queue.policy, "priority.offset": str(queue.priority or "")}
        queues[queue.path.lower()] = {
            "resources": {key: value for key, value in resources.items() if value},
            "properties": {key: value for key, value in properties.items() if value},
        }
    return queues


def populate(stage: Stage, case: MonitorCase) -> None:
    """Nodes, applications, running tasks and asks of *case*."""
    used = [sum(leaf.used[t] for leaf in case.leaves()) for t in range(len(case.cluster))]
    stage.node("full", amounts(tuple(map(min, used, case.cluster))))
    rest = tuple(max(0, most - amount) for most, amount in zip(case.cluster, used, strict=True))
    if any(rest):
        stage.node("free", amounts(rest))
    for leaf in case.leaves():
        stage.application(leaf.path, leaf.path.lower())
        size = amounts(case.size)
        running = [f"{leaf.path}-{at}" for at in range(leaf.used[0] // case.size[0])]
        stage.submit(leaf.path, running, size, node_id="full", priority=-1000)
        asks = -(-leaf.pending[0] // case.size[0])
        stage.submit(leaf.path, [f"{leaf.path}-ask-{at}" for at in range(asks)], size)


def amounts(vector: Vector) -> dict[str, int]:
    return {name: amount for name, amount in zip(TYPES, vector, strict=False) if amount}


@pytest.mark.parametrize(
    ("case", "restarts"),
    [
        *(pytest.param(case, False, id=case.name) for case in CASES),
        *(
            pytest.param(case, True, id=f"{case.name}, restarted", marks=[pytest.mark.long] * (at % 8 != 0))
            for at, case in enumerate(CASES)
        ),
    ],
)
def test_case(case: MonitorCase, restarts: bool) -> None:
    """The first round notifies as much of each leaf as the worked case says; the third takes just that."""
    stage = stage_of(case)
    stage.restarts = restarts
    effects = stage.run_to(5)
    observed = bool(case.settings.get("observe_only"))
    notified = decided(effects, Outcome.OBSERVED if observed else Outcome.NOTIFIED)
    got = {
        path.rpartition(".")[2]: tuple(len(keys) * amount for amount in case.size) for path, keys in notified.items()
    }
    if case.expected is not None:
        assert got == {name.lower(): amount for name, amount in case.expected.items()}
    assert not got.keys() & {name.lower() for name in case.spared}
    assert killed(effects) == []
    later = stage.run_to(15)
    everybody = sorted(key for keys in notified.values() for key in keys)
    waits_longer = observed or bool(case.settings.get("balance"))
    if not waits_longer:
        assert sorted(killed(later)) == everybody
    else:
        assert set(killed(later)) <= set(everybody)
