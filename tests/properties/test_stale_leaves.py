"""Which bounds are found again first decides nothing that differs from process to process: leaves of which more may be
taken are kept in sets, whose order is that of memory addresses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kornel.core.domain.commands import NodeAction, UpdateConfiguration
from kornel.core.domain.effects import Released
from kornel.core.engine.engine import Engine
from tests.driven_core import DrivenCore

SECOND_NS = 10**9
SLICE_NS = 10_000_000
LEAVES = 8
EACH = 205
"""The nodes on which a leaf has a task each; all together are more than one slice judges."""
TURNING = 3
"""The leaf that gives something in every other slice only."""
CORE = {"vcore": 1_000}


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
    core = DrivenCore(configuration(0), engine=engine)
    for at in range(LEAVES):
        core.application(f"l{at}", f"root.l{at}")
    core.application("owed", "root.owed")
    for at in range(LEAVES * EACH):
        core.node(f"n{at}", CORE)
        core.submit(f"l{at % LEAVES}", [f"t{at}"], CORE, node_id=f"n{at}", created_s=1)
    core.node("large", {"vcore": 3_000})
    leaf = f"l{TURNING}"
    turn = partial(core.submit, leaf, ["turning"], {"vcore": 3_000}, node_id="large", allow_preempt_self=False)
    ask = partial(core.submit, "owed", size=CORE, created_s=1, allow_preempt_other=True)
    turn()
    core.node("large", action=NodeAction.DRAIN_NODE)
    happens: dict[int, Callable[[], Any]] = {
        0: lambda: ask(["a"]),
        50: lambda: core.apply(UpdateConfiguration(core.rm_id, configuration(-1))),
        100: lambda: ask(["b"]),
        101: lambda: core.release(leaf, "turning"),
        102: turn,
    }
    found = []
    for number in range(140):
        core.now_ns = 10 * SECOND_NS + number * SLICE_NS
        if number in happens:
            happens[number]()
        effects = engine.cycle(core.now_ns, 250).effects
        found += [(number, effect.key) for effect in effects if isinstance(effect, Released)]
    return found


def test_addresses_decide_nothing() -> None:
    """Engines at other addresses than the first one let the same victims go, in the same slices."""
    engines = [Engine() for _ in range(12)]
    played = [play(engine) for engine in engines]
    assert len(played[0]) == 2
    assert played.count(played[0]) == len(played)
