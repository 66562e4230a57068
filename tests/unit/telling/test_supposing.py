"""What a question tells of asks that wait: each for its own reason."""

from __future__ import annotations

import pytest

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
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.options import EngineOptions
from kornel.core.telling.what_if.supposition import Forecast, SupposeAsk, SupposeNodeLost, SupposeQuota
from tests.reading import read
from tests.unit.partition.graph import digest

PARTITION = "[rm]default"
SECOND = 10**9
QUEUES = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: v}, {name: idle},"
    " {name: a, resources: {guaranteed: {vcore: 4}}, properties: {preemption.delay: 5s}}]}]}]"
)
FOUR = Resources({"vcore": 4000})


def full_cluster(reservation_delay_ns: int | None = None) -> Engine:
    """Two nodes, each full of one allocation of root.v."""
    engine = Engine(EngineOptions(reservation_delay_ns=reservation_delay_ns))
    engine.apply(RegisterManager("rm", QUEUES), 0)
    nodes = tuple(NodeSpec(name, NodeAction.CREATE, PARTITION, capacity=FOUR) for name in ("n1", "n2"))
    engine.apply(UpdateNodes("rm", nodes), 0)
    engine.apply(UpdateApplications("rm", tuple(ApplicationSpec(q, f"root.{q}", PARTITION, "ann") for q in "va")), 0)
    engine.apply(UpdateAllocations("rm", tuple(AllocationSpec(f"v{n}", "v", PARTITION, FOUR) for n in range(2))), 0)
    engine.cycle(0, 100)
    return engine


def ask(engine: Engine, key: str, now_s: int, priority: int = 0, *, may_preempt: bool) -> None:
    spec = AllocationSpec(key, "a", PARTITION, FOUR, priority, allow_preempt_other=may_preempt)
    engine.apply(UpdateAllocations("rm", (spec,)), now_s * SECOND)
    engine.cycle(now_s * SECOND, 100)


def foretold(engine: Engine, now_s: int) -> Forecast:
    """What a question that changes nothing tells of everybody who waits."""
    return read(engine, PARTITION, now_s * SECOND).suppose(SupposeQuota("root.idle", {}, {}))


def reasons(forecast: Forecast) -> list[tuple[str, int, str]]:
    return [(wait.key, wait.asks, wait.preemption.split(":")[0]) for wait in forecast.waits]


def test_one_that_may_not_preempt_speaks_for_itself_only() -> None:
    engine = full_cluster()
    for key, may_preempt in (("k0", False), ("k1", False), ("k2", True), ("k3", True), ("k4", True)):
        ask(engine, key, 0, may_preempt=may_preempt)
    forecast = foretold(engine, 1)
    assert [(p.key, [victim.key for victim in p.victims]) for p in forecast.preempts] == [("k2", ["v0"])]
    assert reasons(forecast) == [("k0", 2, "ASK_MAY_NOT_PREEMPT"), ("k3", 2, "NOT_UNDER_GUARANTEE")]


def test_one_whose_victims_are_leaving_speaks_for_itself_only() -> None:
    engine = full_cluster()
    ask(engine, "k0", 0, may_preempt=True)
    engine.cycle(6 * SECOND, 100)
    ask(engine, "k1", 6, may_preempt=True)
    assert reasons(foretold(engine, 7)) == [("k0", 1, "ALREADY_TRIGGERED"), ("k1", 1, "NOT_UNDER_GUARANTEE")]


@pytest.mark.parametrize("reservation_delay_ns", [None, SECOND])
def test_those_to_whom_a_supposed_claim_may_pass_wait_on(reservation_delay_ns: int | None) -> None:
    """A more important ask of the leaf, which waits in line or saves room, is woken in the question only."""
    engine = full_cluster(reservation_delay_ns)
    ask(engine, "high", 0, 5, may_preempt=False)
    engine.cycle(2 * SECOND, 100)
    state = engine.partition(PARTITION)
    assert state is not None
    assert len(state.reserving.saved) == (reservation_delay_ns is not None)
    saved_on = [claim.node for claim in state.reserving.saved] or [state.nodes["n1"]]
    (dear,) = saved_on[0].allocations.values()
    engine.apply(UpdateAllocations("rm", (dear.spec._replace(priority=1, node_id=saved_on[0].node_id),)), 2 * SECOND)
    reader = read(engine, PARTITION, 2 * SECOND)
    before = digest(engine)
    (found,) = reader.suppose(SupposeAsk(FOUR, "root.a", user="ann")).preempts
    assert found.node_id != saved_on[0].node_id
    assert digest(engine) == before


def test_who_waits_below_a_limit_saves_there_what_a_lost_node_leaves() -> None:
    """The smaller ask that is lost comes again, but not before the older one, which saves what is free (B.7)."""
    engine = Engine()
    queues = "[{name: root, submitacl: '*', queues: [{name: a, resources: {max: {vcore: 4}}}, {name: idle}]}]"
    engine.apply(RegisterManager("rm", f"partitions: [{{name: default, queues: {queues}}}]"), 0)
    nodes = tuple(NodeSpec(name, NodeAction.CREATE, PARTITION, capacity=FOUR) for name in ("n1", "n2"))
    engine.apply(UpdateNodes("rm", nodes), 0)
    engine.apply(UpdateApplications("rm", (ApplicationSpec("a", "root.a", PARTITION, "ann"),)), 0)
    for key, vcore in (("other", 1000), ("small", 3000), ("large", 4000)):
        spec = AllocationSpec(key, "a", PARTITION, Resources({"vcore": vcore}), key == "large")
        engine.apply(UpdateAllocations("rm", (spec,)), 0)
        engine.cycle(0, 100)
    state = engine.partition(PARTITION)
    assert state is not None
    node = state.requests["small"].node
    assert node is not None
    assert node is not state.requests["other"].node
    forecast = read(engine, PARTITION, 10 * SECOND).suppose(SupposeNodeLost(node.node_id))
    assert not forecast.placed
    assert [(wait.key, wait.already) for wait in forecast.waits] == [("large", True), ("small", False)]
    assert not state.reserving.at_limits
