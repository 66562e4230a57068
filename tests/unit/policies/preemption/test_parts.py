"""What the planner says of its choice: ties, numbers, refusals, and the shim's predicate. Who may go and who does is in
``guarantee.cases``."""

from __future__ import annotations

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.state.records.victim_index import VictimIndex
from tests.preemption_notation import TaskCase, parse
from tests.unit.policies.preemption.world import NOW_NS, World


def world_and_ask(text: str) -> tuple[World, Allocation]:
    (case,) = parse(f"case x\n{text}")
    world = World.of(case)
    return world, world.ask(case.steps[0].ask)


def test_equal_age_is_settled_by_earlier_preemptions() -> None:
    """Of two tasks alike in all else goes the one whose application lost fewer before (K15)."""
    world, ask = world_and_ask("queues v · a{G=1}\nnodes n1=2\nask a: 1")
    first = world.run(TaskCase("v", "v1", {"f": 1}, "n1"), "first")
    world.run(TaskCase("v", "v2", {"f": 1}, "n1"), "second")
    first.application.preempted_count = 1
    result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(result, PreemptionPlan)
    assert [victim.key for victim in result.victims] == ["v2"]


def test_equal_solutions_are_settled_by_nearness() -> None:
    """Of two victims alike goes the one of the nearer queue, whatever its node is called (K5)."""
    world, ask = world_and_ask(
        "queues p · p.a{G=1} · p.v · w\nnodes n1=1 n2=1\nrunning w: w1 1@n1\nrunning p.v: v1 1@n2\nask p.a: 1"
    )
    result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(result, PreemptionPlan)
    assert result.node.node_id == "n2"


def test_plan_shows_its_numbers() -> None:
    """A plan names what had to be freed, the fence, and each victim's priority as the fence sees it."""
    world, ask = world_and_ask(
        "queues p{M=8} · p.v{off=2} · p.a{G=5}\nnodes n1=8\nrunning p.v: v1 6@n1 p-1\nask p.a: 5 p9"
    )
    result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(result, PreemptionPlan)
    assert result.fence.path == "root.p"
    assert result.needs == {"node": {"f": 3}, "queue": {"f": 3}}
    assert result.adjusted == (1,)


def test_refusal_counts_what_each_filter_kept_back() -> None:
    """Nobody may go: the refusal says how many stayed for which reason."""
    world, ask = world_and_ask(
        """queues p · p.a{G=1 app=one} · p.v · p.w{disabled} · p.x{G=3} · p.y{app=one} · p.z
        nodes n1=c:1,f:12
        running p.v: v1 1@n1 p1, v2 1@n1, v3 1@n1, v4 1@n1 ds
        running p.w: w1 1@n1
        running p.x: x1 3@n1
        running p.y: y1 1@n1
        running p.z: z1 c:1@n1
        ask p.a: 1"""
    )
    world.allocations["v2"].place = AskPlace.RELEASED
    world.allocations["v3"].place = AskPlace.PREEMPTED
    result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(result, Refusal)
    assert result.outcome is Outcome.NO_CANDIDATES
    for part in (
        "law 6 1",
        "released 1",
        "preempted 1",
        "required node 1",
        "disabled 1",
        "law 2 1",
        "law 3 1",
        "type 1",
    ):
        assert part in result.detail


@pytest.mark.parametrize(
    ("problem", "verdict"), [("drained", "not schedulable"), ("small", "too small"), ("claimed", "claimed")]
)
def test_refusal_says_what_is_wrong_with_the_nodes(problem: str, verdict: str) -> None:
    """No node will do: the refusal counts them by reason."""
    world, ask = world_and_ask("queues v · a{G=4} · h\nnodes n1=4\nrunning v: v1 2@n1, v2 2@n1\nask a: 4")
    node = world.nodes["n1"]
    match problem:
        case "drained":
            node.schedulable = False
        case "small":
            node.resize([3])
        case "claimed":
            first = world.ask(TaskCase("h", "h1", {"f": 1}))
            first.triggered = True
            world.reserve(first, node, NOW_NS)
    result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(result, Refusal)
    assert result.outcome is Outcome.NO_NODE
    assert f"{verdict} 1" in result.detail


def test_predicate_refuses_every_node() -> None:
    """Solutions that no predicate accepts are no solutions."""
    world, ask = world_and_ask("queues v · a{G=4}\nnodes n1=4 n2=4\nrunning v: v1 4@n1, v2 4@n2\nask a: 4")
    result = guarantee.plan_preemption(world, ask, predicate=lambda *question: None, now_ns=NOW_NS)
    assert isinstance(result, Refusal)
    assert result.outcome is Outcome.PREDICATE_REFUSED


def test_predicate_chooses_another_node() -> None:
    """The best node refused, the next best is taken."""
    world, ask = world_and_ask("queues v · a{G=4}\nnodes n1=4 n2=4\nrunning v: v1 4@n1 t1, v2 4@n2 t2\nask a: 4")
    result = guarantee.plan_preemption(
        world,
        ask,
        predicate=lambda _, node, victims, start: start if node.node_id == "n1" else None,
        now_ns=NOW_NS,
    )
    assert isinstance(result, PreemptionPlan)
    assert result.node.node_id == "n1"


def test_predicate_without_victims_on_the_node_is_the_ordinary_check() -> None:
    """Where the node has room and the victims run elsewhere, the node is asked about as it is."""
    world, ask = world_and_ask("queues p{M=4} · p.v · p.a{G=4}\nnodes n0=4 n1=4\nrunning p.v: v1 4@n1\nask p.a: 4")
    questions: list[tuple[str, int, int]] = []

    def predicate(_: Allocation, node: object, victims: tuple[Allocation, ...], start: int) -> int | None:
        questions.append((repr(node), len(victims), start))
        return 0

    result = guarantee.plan_preemption(world, ask, predicate=predicate, now_ns=NOW_NS)
    assert isinstance(result, PreemptionPlan)
    assert questions == [("Node(n0)", 0, -1)]
    assert (result.node.node_id, [victim.key for victim in result.victims]) == ("n0", ["v1"])


def test_index_notices_what_leaves_a_queue() -> None:
    """What leaves a leaf and what that leaf is guaranteed change in place, and nothing has to be announced."""
    world, _ = world_and_ask("queues p · p.a{G=1} · p.b\nnodes n1=9\nrunning p.a: a1 2@n1\nask p.b: 1")
    leaf, parent, index = world.queues["p.a"], world.queues["p"], VictimIndex()
    (t,) = leaf.guaranteed

    def gives() -> bool:
        return any(t in alike.given and leaf in group for alike, group in index.sort_below(parent).leaves.items())

    assert gives()
    leaf.preempting[t] += 1
    assert not gives()
    leaf.set_limits({}, {})
    assert gives()
