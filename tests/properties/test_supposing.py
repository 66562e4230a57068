"""Questions leave no trace, and what they foretell comes true."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    CommandRefused,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.partition.engine import Engine
from kornel.core.telling.explain import Named
from kornel.core.telling.reader import Reader
from kornel.core.telling.what_if.supposition import (
    Forecast,
    SupposeAsk,
    SupposeNodeLost,
    SupposePriority,
    SupposeQuota,
    Supposition,
)
from tests.examples import scale_examples
from tests.properties.limited_shim import LimitedShim
from tests.properties.shim import LEAVES, PARTITION, RM, SECOND, Shim, random_history, size
from tests.reading import read
from tests.unit.partition.graph import digest


def trace(shim: Shim) -> str:
    """All that the engine holds but the rankings that questions keep for each other, which decide nothing."""
    engine = vars(shim.engine)
    return digest({name: held for name, held in engine.items() if name not in ("_rankings", "_handlers")})


def questions(shim: Shim, dice: random.Random) -> Iterator[Supposition]:
    """A few of each kind, sensible or not."""
    state = shim.state
    for _ in range(3):
        named = dice.choice([*state.applications, ""])
        yield SupposeAsk(
            size(dice.randint(1, 9), dice.randint(0, 9)),
            dice.choice(LEAVES),
            named if dice.random() < 0.5 else "",
            dice.choice([1, 2, 5]),
            dice.randint(-1, 2),
            required_node=dice.choice([*state.nodes, "nowhere"]) if dice.random() < 0.2 else "",
            user=dice.choice(["ann", "bob", ""]),
            groups=("staff",),
        )
    yield from (SupposeNodeLost(node_id) for node_id in state.nodes)
    for path in dice.sample([*state.queues], min(3, len(state.queues))):
        most = dice.choice([None, 0, dice.randint(1, 20)])
        yield SupposeQuota(path, {"vcore": most}, {"memory": dice.choice([None, 3])})
    for key in dice.sample([*state.requests], min(3, len(state.requests))):
        yield SupposePriority(key, dice.randint(-2, 3))


@settings(max_examples=scale_examples(40), deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["plain", "gangs", "limits"]), length=st.integers(5, 80))
def test_no_question_leaves_a_trace(seed: int, kind: str, length: int) -> None:
    """Everything reachable from the engine is the same before and after, whatever is asked and however it ends."""
    shim = LimitedShim(seed % 24) if kind == "limits" else Shim(seed % 24, gangs=kind == "gangs")
    dice = random.Random(seed)
    for number, operation in enumerate(random_history(seed, length)):
        shim.perform(operation)
        if number % 3:
            shim.settle()
    reader = Reader(shim.engine, lambda: shim.now_ns)
    before = trace(shim)
    for question in questions(shim, dice):
        with suppress(CommandRefused):
            reader[PARTITION].suppose(question)
        assert trace(shim) == before, question
    for name in [*shim.state.requests, *shim.state.applications, "nobody"]:
        report = reader[PARTITION].explain(Named(name))
        assert (report is None) == (name == "nobody")
    assert trace(shim) == before
    shim.settle()


def test_an_error_leaves_no_trace_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in the middle of an answer, the records are as they were."""
    shim = Shim(1)
    for operation in random_history(5, 60):
        shim.perform(operation)
        shim.settle()
    monkeypatch.setattr("kornel.core.telling.what_if.sandbox.Sandbox.attempt", lambda *_: 1 / 0)
    before = trace(shim)
    with pytest.raises(ZeroDivisionError):
        read(shim.engine, PARTITION, shim.now_ns).suppose(SupposeAsk(size(90, 1), LEAVES[0], asks=3))
    assert trace(shim) == before


class Cluster:
    """A random cluster at rest: nodes partly taken, nobody waiting, guarantees that invite preemption."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        leaves = []
        for number in range(4):
            guaranteed = f"guaranteed: {{vcore: {dice.randint(2, 8)}, memory: {dice.randint(2, 8)}}}, "
            most = f"max: {{vcore: {dice.randint(9, 20)}}}" if dice.random() < 0.4 else "max: {}"
            offset = f"priority.offset: '{dice.choice([0, 0, 1])}'"
            leaves.append(
                f"{{name: q{number}, properties: {{preemption.delay: 10s, {offset}}},"
                f" resources: {{{guaranteed if dice.random() < 0.8 else ''}{most}}}}}"
            )
        policy = dice.choice(["fair", "binpacking"])
        config = (
            f"partitions: [{{name: default, nodesortpolicy: {{type: {policy}}}, queues:"
            f" [{{name: root, submitacl: '*', queues: [{', '.join(leaves)}]}}]}}]"
        )
        self.engine = Engine()
        self.engine.apply(RegisterManager(RM, config), 0)
        nodes = tuple(
            NodeSpec(f"n{number}", NodeAction.CREATE, PARTITION, capacity=amounts(dice.randint(4, 8), 8))
            for number in range(dice.randint(1, 5))
        )
        self.engine.apply(UpdateNodes(RM, nodes), 0)
        for number in range(4):
            self.submit(f"app{number}", f"root.q{number}")
        for number in range(dice.randint(0, 30)):
            application = f"app{dice.choice([0, 1, 1, 2])}"
            self.ask(f"k{number}", application, amounts(dice.randint(1, 3), dice.randint(1, 3)), dice.randint(0, 1))
            self.cycle(0)
        # Who found no place goes again, so that nobody else waits.
        state = self.engine.partition(PARTITION)
        assert state is not None
        for ask in [request for request in state.requests.values() if request.pending]:
            release = ReleaseSpec(PARTITION, ask.application.application_id, ask.key)
            self.engine.apply(UpdateAllocations(RM, ask_releases=(release,)), 0)
        self.cycle(0)
        self.state = state

    def submit(self, name: str, queue: str) -> None:
        self.engine.apply(UpdateApplications(RM, (ApplicationSpec(name, queue, PARTITION, "ann"),)), 0)

    def ask(self, key: str, application: str, resources: Resources, priority: int, now_ns: int = 0) -> None:
        spec = AllocationSpec(key, application, PARTITION, resources, priority, allow_preempt_other=True)
        self.engine.apply(UpdateAllocations(RM, (spec,)), now_ns)

    def cycle(self, now_ns: int) -> list[object]:
        effects: list[object] = []
        more = True
        while more:
            result = self.engine.cycle(now_ns, 1000)
            effects += result.effects
            more = result.more
        return effects


def amounts(vcore: int, memory: int) -> Resources:
    return Resources({"vcore": vcore * 1000, "memory": memory})


@settings(max_examples=scale_examples(150), deadline=None)
@given(seed=st.integers(0, 2**32))
# Each has more asks than nodes that age may keep free.
@example(2766229848)
@example(2782665064)
@example(4200520859)
@example(3300259428)
def test_what_is_foretold_of_a_gang_comes_true(seed: int) -> None:
    """The same asks are placed on the same nodes, and the same victims leave for the same asks, in the same order."""
    cluster = Cluster(seed)
    dice, now_ns = cluster.dice, 100 * SECOND
    number = dice.randrange(4)
    resources, priority = amounts(dice.randint(1, 4), dice.randint(1, 3)), dice.randint(0, 2)
    question = SupposeAsk(resources, f"root.q{number}", asks=dice.choice([1, 1, 2, 3]), priority=priority, user="ann")
    forecast = read(cluster.engine, PARTITION, now_ns).suppose(question)
    assert forecast is not None
    cluster.submit("what-if", f"root.q{number}")
    specs = tuple(
        AllocationSpec(
            f"what-if-{at + 1}", "what-if", PARTITION, resources, priority, allow_preempt_other=True
        )
        for at in range(question.asks)
    )  # fmt: skip
    cluster.engine.apply(UpdateAllocations(RM, specs), now_ns)
    placed: list[tuple[str, str]] = []
    victims: list[tuple[str, str, list[str]]] = []
    at_ns = now_ns
    # In small steps, as the core would be called; until all delays are over, and before victims are replaced.
    while at_ns <= now_ns + 10 * SECOND + SECOND // 2:
        for effect in cluster.cycle(at_ns):
            if isinstance(effect, Allocated):
                placed.append((effect.spec.key, effect.node_id))
            elif isinstance(effect, PreemptionDecided) and effect.outcome is Outcome.TRIGGERED:
                victims.append((effect.key, effect.node_id, [victim.key for victim in effect.victims]))
        at_ns += SECOND // 2
    assert [(found.key, found.node_id) for found in forecast.placed] == placed
    assert [(p.key, p.node_id, [v.key for v in p.victims]) for p in forecast.preempts] == victims
    waiting = question.asks - len(placed) - len(victims)
    assert sum(found.asks for found in forecast.waits) == waiting


@settings(max_examples=scale_examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_foretold_of_a_lost_node_comes_true(seed: int) -> None:
    """What ran there is lost; asked for again in the order of the forecast's queues, it goes where that says."""
    cluster = Cluster(seed)
    now_ns = 100 * SECOND
    lost = cluster.dice.choice([*cluster.state.nodes])
    forecast = read(cluster.engine, PARTITION, now_ns).suppose(SupposeNodeLost(lost))
    assert forecast is not None
    node = cluster.state.nodes[lost]
    specs = tuple(allocation.spec._replace(node_id="") for allocation in node.allocations.values())
    assert forecast.displaced == tuple(spec.key for spec in specs)
    cluster.engine.apply(UpdateNodes(RM, (NodeSpec(lost, NodeAction.DECOMISSION, PARTITION),)), now_ns)
    cluster.engine.apply(UpdateAllocations(RM, specs), now_ns)
    placed = [(e.spec.key, e.node_id) for e in cluster.cycle(now_ns) if isinstance(e, Allocated)]
    assert [(found.key, found.node_id) for found in forecast.placed] == placed


@settings(max_examples=scale_examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_foretold_of_a_priority_comes_true(seed: int) -> None:
    """An ask with another priority finds the victims that the same ask finds when it comes with that priority."""
    cluster = Cluster(seed)
    dice, now_ns = cluster.dice, 100 * SECOND
    resources = amounts(dice.randint(2, 4), dice.randint(1, 3))
    cluster.ask("late", "app3", resources, -5, now_ns)
    cluster.cycle(now_ns)
    forecast = read(cluster.engine, PARTITION, now_ns).suppose(SupposePriority("late", 2))
    asked = read(Cluster(seed).engine, PARTITION, now_ns).suppose(
        SupposeAsk(resources, application_id="app3", priority=2)
    )
    assert forecast is not None
    assert asked is not None
    if cluster.state.requests["late"].pending:
        assert shape(forecast) == shape(asked)


def shape(forecast: Forecast) -> object:
    return (
        [found.node_id for found in forecast.placed],
        [(p.node_id, [v.key for v in p.victims]) for p in forecast.preempts],
        [(w.reason, w.preemption.split(":")[0]) for w in forecast.waits],
    )
