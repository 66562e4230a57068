"""What user and group limits on every level cost: the same asks with and without them (scheduling.md 7.1, 12)."""

from __future__ import annotations

import time

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from tests.bench.core_process import RM
from tests.bench.report import Figure, show

PARTITION = f"[{RM}]default"
USERS = 20
PARENTS, LEAVES = 5, 4
ASKS = 20_000


def _config(*, limited: bool) -> str:
    limits = (
        "[{limit: users, users: ['*'], maxapplications: 100, maxresources: {vcore: 100000}},"
        " {limit: group, groups: [staff], maxapplications: 1000, maxresources: {vcore: 1000000}}]"
    )
    own = f", limits: {limits}" if limited else ""
    lines = [f"      - {{name: root, submitacl: '*'{own}, queues: ["]
    for parent in range(PARENTS):
        leaves = ", ".join(f"{{name: q{leaf}{own}}}" for leaf in range(LEAVES))
        lines.append(f"          {{name: p{parent}{own}, queues: [{leaves}]}},")
    return "partitions:\n  - name: default\n    queues:\n" + "\n".join(lines) + "\n        ]}\n"


def _place(*, limited: bool) -> float:
    engine = Engine()
    engine.apply(RegisterManager(RM, _config(limited=limited)), 0)
    capacity = Resources({"vcore": 64_000})
    nodes = (NodeSpec(f"node-{n:05}", NodeAction.CREATE, PARTITION, capacity=capacity) for n in range(1_000))
    engine.apply(UpdateNodes(RM, tuple(nodes)), 0)
    applications = tuple(
        ApplicationSpec(
            f"app-{parent}-{leaf}-{user}", f"root.p{parent}.q{leaf}", PARTITION, user=f"user-{user}", groups=("staff",)
        )
        for parent in range(PARENTS)
        for leaf in range(LEAVES)
        for user in range(USERS)
    )
    engine.apply(UpdateApplications(RM, applications), 0)
    size = Resources({"vcore": 1_000})
    asks = tuple(
        AllocationSpec(f"ask-{n}", applications[n % len(applications)].application_id, PARTITION, size)
        for n in range(ASKS)
    )
    began = time.process_time()
    engine.apply(UpdateAllocations(RM, asks), 1)
    placed, more = 0, True
    while more:
        result = engine.cycle(1, 500)
        placed += sum(isinstance(effect, Allocated) for effect in result.effects)
        more = result.more
    took = time.process_time() - began
    if placed != ASKS:
        raise AssertionError(f"{placed} of {ASKS} asks were placed")
    return placed / took


def report(runs: int) -> bool:
    free, limited = [], []
    for _ in range(runs):
        free.append(_place(limited=False))
        limited.append(_place(limited=True))
    kept = [100 * with_limits / without for with_limits, without in zip(limited, free, strict=True)]
    figures = [
        Figure("without limits", "/s", free),
        Figure("user and group limits on all three levels", "/s", limited),
        Figure("of the rate without limits", "%", kept, 60, each_s=0),
    ]
    title = f"limits, engine alone: {USERS} users in {PARENTS * LEAVES} leaves, {ASKS:,} asks, six limits each"
    return show(title, figures, "six more accounts to check and charge, next to three queues: two thirds of the rate")
