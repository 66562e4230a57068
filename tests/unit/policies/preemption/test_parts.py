"""The parts of the planner on their own: fences, adjusted priorities, entitlement, needs, the search for victims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.entitlement import Entitlement, fence_root, find_entitlement
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search.frontier import Solver
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.preemption.priorities import adjustment_of
from kornel.core.preemption.walk import Candidate, Effects
from kornel.core.state.records.victim_index import VictimIndex
from tests.preemption_notation import Case, TaskCase, parse
from tests.unit.policies.preemption.world import NOW_NS, World


def case_of(text: str) -> Case:
    return parse(f"case x\n{text}")[0]


def world_and_ask(text: str) -> tuple[World, Allocation]:
    case = case_of(text)
    world = World.of(case)
    return world, world.ask(case.steps[0].ask)


@pytest.mark.parametrize(
    ("queues", "ask", "fence"),
    [
        ("p · p.a", "p.a: 1", "root"),
        ("p{fence} · p.a", "p.a: 1", "root.p"),
        ("p{fence} · p.a{fence}", "p.a: 1", "root.p.a"),
        ("root{fence} · p · p.a", "p.a: 1", "root"),
        ("p{disabled} · p.a", "p.a: 1", "root"),
        ("p{M=4} · p.a", "p.a: 4", "root"),
        ("p{M=4} · p.a", "p.a: 5", "root.p.a"),
        ("p{M=9} · p.a{M=4} · p.x", "p.a: 5", "root.p.a"),
        ("p{M=c:0} · p.a", "p.a: 5", "root"),
        ("p{M=0} · p.a", "p.a: 1", "root.p.a"),
    ],
)
def test_fence_root(queues: str, ask: str, fence: str) -> None:
    """The lowest fence, policy or exceeded effective max; a max on other types, or just reached, is none."""
    _, waiting = world_and_ask(f"queues {queues}\nnodes n1=c:9,f:9\nask {ask}")
    assert fence_root(waiting).path == fence


def test_max_fence_counts_victims_in_flight_as_gone_and_claims_as_used() -> None:
    """What leaves makes room below a max, what is claimed fills it."""
    text = "queues p{M=8} · p.a · p.v\nnodes n1=20\nrunning p.v: v1 4@n1, v2 4@n1\nask p.a: 4"
    world, ask = world_and_ask(text)
    assert fence_root(ask).path == "root.p"
    for queue in world.queues["p.v"].lineage():
        queue.preempting[0] += 4
    assert fence_root(ask).path == "root"
    for queue in world.queues["p.a"].lineage():
        queue.claimed[0] += 4
    assert fence_root(ask).path == "root.p"


@pytest.mark.parametrize(
    ("queues", "seen_at_root", "seen_at_p"),
    [
        ("p · p.a", 7, 7),
        ("p{off=10} · p.a{off=-1}", 16, 6),
        ("p{pfence off=3} · p.a{off=5}", 3, 12),
        ("p{off=1} · p.a{pfence off=5}", 6, 5),
        ("root{off=99} · p · p.a", 7, 7),
    ],
)
def test_adjusted_priority(queues: str, seen_at_root: int, seen_at_p: int) -> None:
    """Offsets add up, a fence puts its own in their place, and the queue that looks has no say itself."""
    world = World.of(case_of(f"queues {queues}\nnodes n1=1"))
    leaf = world.queues["p.a"]
    assert adjustment_of(leaf, world.root).of(7) == seen_at_root
    assert adjustment_of(leaf, world.queues["p"]).of(7) == seen_at_p
    assert adjustment_of(leaf, leaf).of(7) == 7


def test_adjusted_priority_is_not_clamped() -> None:
    """Beyond the ends of an int32 priorities still compare."""
    world = World.of(case_of("queues a{off=2147483647}\nnodes n1=1"))
    assert adjustment_of(world.queues["a"], world.root).of(10) == 2**31 + 9


@pytest.mark.parametrize(
    ("queues", "used", "ask", "mode", "expected"),
    [
        ("p · p.a", 0, 1, "reach", Outcome.NO_GUARANTEE),
        ("p · p.a{G=c:4}", 0, 1, "reach", Outcome.NO_GUARANTEE),
        ("p · p.a{G=4}", 0, 5, "reach", Outcome.ASK_EXCEEDS_GUARANTEE),
        ("p · p.a{G=4}", 4, 1, "reach", Outcome.NOT_UNDER_GUARANTEE),
        ("p · p.a{G=4}", 3, 4, "reach", {}),
        ("p · p.a{G=4}", 3, 4, "strict", Outcome.NOT_UNDER_GUARANTEE),
        ("p · p.a{G=4}", 3, 1, "strict", {}),
        ("p{G=4} · p.a", 5, 2, "reach", Outcome.NOT_UNDER_GUARANTEE),
        ("p{G=4} · p.a", 4, 2, "reach", {"f": 2}),
        ("p{G=4} · p.a", 3, 2, "strict", {"f": 1}),
        ("p{G=1} · p.a{G=4}", 3, 2, "reach", {}),
    ],
)
def test_entitlement(queues: str, used: int, ask: int, mode: str, expected: Outcome | dict[str, int]) -> None:
    """The lowest guarantee of each type decides; one that is spent further up may be swapped for."""
    text = f"queues {queues}\nnodes n1=c:9,f:9\nask p.a: {ask}"
    if used:
        text += f"\nrunning p.a: a1 {used}@n1"
    world, waiting = world_and_ask(text)
    result = find_entitlement(waiting, GuaranteeMode(mode), world.types.names)
    if isinstance(expected, Outcome):
        assert isinstance(result, Refusal)
        assert result.outcome is expected
        assert result.detail
    else:
        assert isinstance(result, Entitlement)
        assert {world.types.names[t]: amount for t, amount in result.swaps.items()} == expected


def test_needs_take_the_largest_of_what_lacks() -> None:
    """Node and queues are made room on by the same victims: the larger shortage counts, negative room included."""
    world, ask = world_and_ask(
        "queues p{M=10} · p.v · p.a{G=5}\nnodes n1=6 n2=20\nrunning p.v: v1 4@n1, v2 6@n2\nask p.a: 5"
    )
    entitled = find_entitlement(ask, GuaranteeMode.REACH, world.types.names)
    assert isinstance(entitled, Entitlement)
    needs = Needs(ask, fence_root(ask), entitled)
    assert needs.base == [5]
    assert needs.needs_on(world.nodes["n1"]) == [5]
    world.nodes["n1"].book_foreign("foreign", ((0, 7),))
    assert needs.needs_on(world.nodes["n1"]) == [10]


def candidates(*sizes: int, rooms: tuple[tuple[int, int], ...] = ()) -> list[Candidate]:
    """Victims of one type in order; *rooms* gives by position the room that the victim draws on, and how much."""
    _, ask = world_and_ask("queues a\nnodes n1=1\nask a: 1")
    drawn = dict(rooms)
    return [
        (0, at, 0, f"v{at}", ask, Effects(((0, size),), ((drawn[at], size),) if at in drawn else (), (0,)))
        for at, size in enumerate(sizes)
    ]


def keys(victims: list[Candidate] | None) -> list[str] | None:
    return None if victims is None else [victim[3] for victim in victims]


@pytest.mark.parametrize(
    ("need", "sizes", "expected"),
    [
        (3, (1, 1, 1, 5), ["v0", "v1", "v2"]),
        (5, (1, 1, 1, 5), ["v3"]),
        (4, (1, 2, 3), ["v0", "v2"]),
        (9, (1, 2, 3), None),
    ],
)
def test_first_come_and_prune(need: int, sizes: tuple[int, ...], expected: list[str] | None) -> None:
    """Victims are taken in order until they are enough; then the superfluous go back, the most protected first."""
    assert keys(Solver([], [True]).solve([need], [candidates(*sizes)])) == expected


def test_a_failed_walk_begins_again_with_whom_a_law_kept() -> None:
    """Taking the first spends the room that law 2 leaves; the second alone is enough and fits."""
    pool = candidates(2, 3, rooms=((0, 0), (1, 0)))
    assert keys(Solver([4], [True]).solve([3], [pool])) == ["v1"]


def test_a_failed_walk_begins_again_with_two() -> None:
    """One of them in front is not enough, because the first of the others excludes the next one of them."""
    pool = candidates(7, 7, 5, 5, 5, rooms=tuple((at, 0) for at in range(5)))
    assert keys(Solver([15], [True]).solve([15], [pool])) == ["v2", "v3", "v4"]


def test_a_failed_walk_ends_after_a_limited_number_of_others() -> None:
    """Candidates of many sizes without a solution cost a limited number of walks, and nodes alike cost one search."""
    pool = candidates(*range(200, 800, 2), rooms=tuple((at, 0) for at in range(300)))
    solver = Solver([1001], [True])
    assert solver.solve([1001], [pool]) is None
    assert solver.begin_again([1001], [pool]) is None


def test_index_notices_every_change_of_a_leaf() -> None:
    """Allocations that come, go or change their size are seen by the next attempt; nothing has to be announced."""
    world, _ = world_and_ask("queues v\nnodes n1=9\nrunning v: v1 1@n1 t1, v2 1@n1 t2\nask v: 1")
    leaf = world.queues["v"]
    index = VictimIndex()
    before = index.rank_leaf(leaf)
    assert [entry[2] for entry in before.in_order(0)] == ["v2", "v1"]
    assert index.rank_leaf(leaf) is before
    world.run(TaskCase("v", "v3", {"f": 1}, "n1", tick=3))
    assert [entry[2] for entry in index.rank_leaf(leaf).in_order(0)] == ["v3", "v2", "v1"]
    world.remove(world.allocations["v2"])
    assert [entry[2] for entry in index.rank_leaf(leaf).in_order(0)] == ["v3", "v1"]
    shape = world.types.shape_of(world.allocations["v1"].shape.resources)
    assert index.rank_leaf(leaf).shapes == {shape}
    index.keep_only(set())
    assert index.rank_leaf(leaf) is not before


def test_index_notices_what_a_queue_may_give_up() -> None:
    """Leaves are sorted by the types of which they hold more than their guarantee, and sorted again when what they
    hold, what leaves or what they are guaranteed changes, or when they are gone; nothing has to be announced."""
    world, _ = world_and_ask("queues p · p.a{G=2} · p.b\nnodes n1=9\nrunning p.a: a1 2@n1\nask p.b: 1")
    top, parent, a, b = world.root, world.queues["p"], world.queues["p.a"], world.queues["p.b"]
    t = next(iter(a.guaranteed))
    index = VictimIndex()

    def giving() -> list[str]:
        leaves = index.sort_below(parent).leaves
        return sorted(leaf.name for alike, group in leaves.items() if t in alike.given for leaf in group)

    assert (list(index.sort_below(top).parents), giving()) == ([parent], [])
    world.run(TaskCase("p.a", "a2", {"f": 1}, "n1"))
    world.run(TaskCase("p.b", "b1", {"f": 1}, "n1"))
    assert giving() == ["a", "b"]
    a.preempting[t] += 1
    assert giving() == ["b"]
    a.set_limits({t: 1}, {})
    assert giving() == ["a", "b"]
    world.remove(world.allocations["b1"])
    assert giving() == ["a"]
    del parent.children["a"]
    assert giving() == []
    assert b not in index.sort_below(parent).parents


def test_leaves_with_the_same_traits_share_their_rules() -> None:
    """One object stands for all leaves that are alike, other settings make others, also from one attempt to the next,
    and a leaf with a guarantee gets rooms of its own, but only when it is looked at."""
    world, ask = world_and_ask(
        "queues p · p.a · p.b · p.c{G=1} · p.d{G=1} · q{G=9}\nnodes n1=9\n"
        "running p.a: a 1@n1\nrunning p.b: b 1@n1\nrunning p.c: c 2@n1\nrunning p.d: d 2@n1\nask q: 1"
    )
    index = VictimIndex()
    a, b, c, d = (world.queues[f"p.{name}"] for name in "abcd")

    def find_terms() -> Terms:
        entitled = find_entitlement(ask, world.guarantee_mode, world.types.names)
        assert not isinstance(entitled, Refusal)
        found = Terms(ask, world.root, entitled, Needs(ask, world.root, entitled))
        found.open_leaves(world.root, index, ())
        return found

    terms = find_terms()
    assert terms.open[a] is terms.open[b] is terms.own_terms(b)
    assert terms.open[c] is terms.open[d] is not terms.open[a]
    assert terms.own_terms(c) is terms.open[c] is not terms.own_terms(d)
    assert {len(leaves) for _, leaves in terms.alike} == {2}
    b.properties = replace(b.properties, priority_offset=3)
    terms = find_terms()
    assert (terms.open[a].adjusted.of(1), terms.open[b].adjusted.of(1)) == (1, 4)


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


def test_own_reservation_is_kept() -> None:
    """A node on which the ask already holds room may be chosen; what it holds itself is in nobody's way."""
    world, ask = world_and_ask("queues v · a{G=4}\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4")
    world.reserve(ask, world.nodes["n1"], NOW_NS)
    result = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(result, PreemptionPlan)
    assert result.needs == {"node": {"f": 4}}


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
