"""What a question tells of asks that wait: each for its own reason."""

from __future__ import annotations

import pytest

from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.options import EngineOptions
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import Named
from kornel.core.telling.what_if.supposition import Forecast, SupposeAsk, SupposeNodeLost, SupposeQuota
from tests.driven_core import DrivenCore
from tests.reading import read
from tests.supposing import suppose
from tests.unit.partition.graph import digest

SECOND = 10**9
QUEUES = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: v}, {name: idle},"
    " {name: a, resources: {guaranteed: {vcore: 4}}, properties: {preemption.delay: 5s}}]}]}]"
)
FOUR = Resources({"vcore": 4000})


def full_cluster(reservation_delay_ns: int | None = None) -> DrivenCore:
    """Two nodes, each full of one allocation of root.v."""
    core = two_nodes(QUEUES, Engine(EngineOptions(reservation_delay_ns=reservation_delay_ns)))
    for name in "va":
        core.application(name, f"root.{name}")
    core.submit("v", ["v0", "v1"], FOUR)
    core.cycle()
    return core


def two_nodes(config: str, engine: Engine | None = None) -> DrivenCore:
    core = DrivenCore(config, engine=engine)
    for name in ("n1", "n2"):
        core.node(name, FOUR)
    return core


def ask(core: DrivenCore, key: str, now_s: int, priority: int = 0, *, may_preempt: bool) -> None:
    core.now_ns = now_s * SECOND
    core.submit("a", [key], FOUR, priority=priority, allow_preempt_other=may_preempt)
    core.cycle()


def foretold(core: DrivenCore, now_s: int) -> Forecast:
    """What a question that changes nothing tells of everybody who waits."""
    return suppose(read(core.engine, core.partition, now_s * SECOND), SupposeQuota("root.idle", {}, {}))


def reasons(forecast: Forecast) -> list[tuple[str, int, str]]:
    return [(wait.key, wait.asks, wait.preemption.split(":")[0]) for wait in forecast.waits]


def test_one_that_may_not_preempt_speaks_for_itself_only() -> None:
    core = full_cluster()
    for key, may_preempt in (("k0", False), ("k1", False), ("k2", True), ("k3", True), ("k4", True)):
        ask(core, key, 0, may_preempt=may_preempt)
    forecast = foretold(core, 1)
    assert [(p.key, [victim.key for victim in p.victims]) for p in forecast.preempts] == [("k2", ["v0"])]
    assert reasons(forecast) == [("k0", 2, "ASK_MAY_NOT_PREEMPT"), ("k3", 2, "NOT_UNDER_GUARANTEE")]


@pytest.mark.parametrize("vcore", [4000, 5000])
def test_a_supposed_ask_hears_that_waiting_is_in_vain(vcore: int) -> None:
    """As the explanation of an ask that is really there does."""
    core, wanted = full_cluster(), Resources({"vcore": vcore})
    forecast = suppose(read(core.engine, core.partition, SECOND), SupposeAsk(wanted, application_id="a"))
    core.submit("a", ["k0"], wanted)
    core.cycle()
    report = read(core.engine, core.partition, SECOND).explain(Named("k0"))
    assert isinstance(report, AskReport)
    vain = [
        f"waiting will not help: {each.kind} {each.name}: {each.detail}" for each in report.blockers if each.permanent
    ]
    assert [note for note in forecast.notes if note.startswith("waiting")] == vain
    assert bool(vain) is (vcore == 5000)


def test_one_whose_victims_are_leaving_speaks_for_itself_only() -> None:
    core = full_cluster()
    ask(core, "k0", 0, may_preempt=True)
    core.now_ns = 6 * SECOND
    core.cycle()
    ask(core, "k1", 6, may_preempt=True)
    assert reasons(foretold(core, 7)) == [("k0", 1, "ALREADY_TRIGGERED"), ("k1", 1, "NOT_UNDER_GUARANTEE")]


@pytest.mark.parametrize("reservation_delay_ns", [None, SECOND])
def test_those_to_whom_a_supposed_claim_may_pass_wait_on(reservation_delay_ns: int | None) -> None:
    """A more important ask of the leaf, which waits in line or saves room, is woken in the question only."""
    core = full_cluster(reservation_delay_ns)
    ask(core, "high", 0, 5, may_preempt=False)
    core.now_ns = 2 * SECOND
    core.cycle()
    state = core.state
    assert len(state.reserving.saved) == (reservation_delay_ns is not None)
    saved_on = [claim.node for claim in state.reserving.saved] or [state.nodes["n1"]]
    (dear,) = saved_on[0].allocations.values()
    core.submit("v", [dear.key], FOUR, priority=1, node_id=saved_on[0].node_id)
    reader = read(core.engine, core.partition, core.now_ns)
    before = digest(core.engine)
    (found,) = suppose(reader, SupposeAsk(FOUR, "root.a", user="ann")).preempts
    assert found.node_id != saved_on[0].node_id
    assert digest(core.engine) == before


def test_who_waits_below_a_limit_saves_there_what_a_lost_node_leaves() -> None:
    """The smaller ask that is lost comes again, but not before the older one, which saves what is free (B.7)."""
    queues = "[{name: root, submitacl: '*', queues: [{name: a, resources: {max: {vcore: 4}}}, {name: idle}]}]"
    core = two_nodes(f"partitions: [{{name: default, queues: {queues}}}]")
    core.application("a", "root.a")
    for key, vcore in (("other", 1000), ("small", 3000), ("large", 4000)):
        core.submit("a", [key], {"vcore": vcore}, priority=key == "large")
        core.cycle()
    state = core.state
    node = state.requests["small"].node
    assert node is not None
    assert node is not state.requests["other"].node
    forecast = suppose(read(core.engine, core.partition, 10 * SECOND), SupposeNodeLost(node.node_id))
    assert not forecast.placed
    assert [(wait.key, wait.already) for wait in forecast.waits] == [("large", True), ("small", False)]
    assert not state.reserving.at_limits
