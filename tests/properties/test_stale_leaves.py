"""Which bounds are found again first decides nothing that differs from process to process: leaves of which more may be
taken are kept in sets, whose order is that of memory addresses."""

from __future__ import annotations

from typing import Any

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from tests.owed_cluster import PARTITION, RM

SECOND_NS = 10**9
SLICE_NS = 10_000_000
LEAVES = 8
EACH = 205
"""The nodes on which a leaf has a task each; all together are more than one slice judges."""
TURNING = 3
"""The leaf that gives something in every other slice only."""
CORE = Resources({"vcore": 1_000})


def configuration(offset: int) -> str:
    """Returns leaves above their guarantee, whose priorities have *offset*, and one that is owed five cores."""
    leaves = [
        f"{{name: l{at}, resources: {{guaranteed: {{vcore: {EACH - 3 * (at != TURNING)}}}}},"
        f" properties: {{priority.offset: '{offset if at < LEAVES - 1 else 0}'}}}}"
        for at in range(LEAVES)
    ]
    leaves.append("{name: owed, resources: {guaranteed: {vcore: 5}}, properties: {preemption.delay: 1s}}")
    root = f"{{name: root, submitacl: '*', queues: [{', '.join(leaves)}]}}"
    return f"partitions: [{{name: default, queues: [{root}]}}]"


def play(engine: Engine) -> list[tuple[int, str]]:
    """Returns in which slices which victims go for two asks. Before the second one comes, the offsets change."""
    nodes = [NodeSpec(f"n{at}", NodeAction.CREATE, PARTITION, capacity=CORE) for at in range(LEAVES * EACH)]
    large = NodeSpec("large", NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 3_000}))
    applications = [ApplicationSpec(f"l{at}", f"root.l{at}", PARTITION, "u") for at in range(LEAVES)]
    tasks = [
        AllocationSpec(f"t{at}", f"l{at % LEAVES}", PARTITION, CORE, node_id=f"n{at}", created_s=1)
        for at in range(LEAVES * EACH)
    ]
    turning = AllocationSpec(
        "turning", f"l{TURNING}", PARTITION, Resources({"vcore": 3_000}), node_id="large", allow_preempt_self=False
    )
    first, second = (
        AllocationSpec(key, "owed", PARTITION, CORE, created_s=1, allow_preempt_other=True) for key in ("a", "b")
    )
    engine.apply(RegisterManager(RM, configuration(0)), 0)
    engine.apply(UpdateNodes(RM, (*nodes, large)), 0)
    engine.apply(UpdateApplications(RM, (*applications, ApplicationSpec("owed", "root.owed", PARTITION, "u"))), 0)
    engine.apply(UpdateAllocations(RM, (*tasks, turning)), 0)
    engine.apply(UpdateNodes(RM, (NodeSpec("large", NodeAction.DRAIN_NODE, PARTITION),)), 0)
    ended = ReleaseSpec(PARTITION, turning.application_id, turning.key, TerminationType.STOPPED_BY_RM)
    commands: dict[int, Any] = {
        0: UpdateAllocations(RM, (first,)),
        50: UpdateConfiguration(RM, configuration(-1)),
        100: UpdateAllocations(RM, (second,)),
        101: UpdateAllocations(RM, releases=(ended,)),
        102: UpdateAllocations(RM, (turning,)),
    }
    found = []
    for number in range(140):
        now_ns = 10 * SECOND_NS + number * SLICE_NS
        if number in commands:
            engine.apply(commands[number], now_ns)
        effects = engine.cycle(now_ns, 250).effects
        found += [(number, effect.key) for effect in effects if isinstance(effect, Released)]
    return found


def test_addresses_decide_nothing() -> None:
    """Engines at other addresses than the first one let the same victims go, in the same slices."""
    engines = [Engine() for _ in range(12)]
    played = [play(engine) for engine in engines]
    assert len(played[0]) == 2
    assert played.count(played[0]) == len(played)
