"""Plans for required nodes and lowered maxima that break one law each (preemption.md A.0, A.1 no. 16 and 18)."""

from __future__ import annotations

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.laws.verdict import Law
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.quota.plan import QuotaPlan
from tests import judged_plans as laws
from tests.preemption_notation import parse
from tests.unit.policies.preemption.world import World

CROWDED = """
queues   v · ds
nodes    n1=10 n2=4
running  v: a 4@n1, b 4@n1 X, c 2@n1 p9, d 4@n2
"""


def broken(world: World, plan: PreemptionPlan | QuotaPlan) -> set[Law]:
    return {violation.law for violation in laws.check(world, plan)}


@pytest.mark.parametrize(
    ("ask", "node", "victims", "expected"),
    [
        pytest.param("ds: 4 ds", "n1", "a", set(), id="lawful"),
        pytest.param("ds: 8 ds", "n1", "a b", set(), id="opted out where nobody milder would do"),
        pytest.param("ds: 4 ds", "n1", "b", {Law.MILDEST}, id="opted out although a milder one would do"),
        pytest.param("ds: 2 p1 ds", "n1", "c", {Law.PRIORITY, Law.MILDEST}, id="more important than the ask"),
        pytest.param("ds: 4 ds", "n1", "a d", {Law.REQUIRED_NODE, Law.MINIMAL}, id="elsewhere"),
        pytest.param("ds: 4 ds", "n2", "d", {Law.NODE_USABLE}, id="another node than the required one"),
        pytest.param("ds: 8 ds", "n1", "a", {Law.SUFFICIENT}, id="not enough"),
        pytest.param("ds: 4 p9 ds", "n1", "a c", {Law.MINIMAL}, id="one too many"),
        pytest.param("ds: 4 ds", "n1", "", {Law.SUFFICIENT, Law.MINIMAL}, id="nobody"),
        pytest.param("ds: 8 ds", "n1", "a a", {Law.ELIGIBLE}, id="named twice"),
    ],
)
def test_required_node(ask: str, node: str, victims: str, expected: set[Law]) -> None:
    """Every law that binds this kind is named when a plan breaks it, and no other."""
    case = parse(f"case x\n{CROWDED}\nask {ask}")[0]
    world = World.of(case)
    chosen = tuple(world.allocations[key] for key in victims.split())
    plan = PreemptionPlan("required-node", world.ask(case.steps[0].ask), world.nodes[node], chosen, world.root)
    assert broken(world, plan) == expected


@pytest.mark.parametrize("state", ["bound", "released", "leaving"])
def test_required_node_spares_whoever_is_out_of_reach(state: str) -> None:
    """Tasks bound to the node, being released or leaving already are no victims."""
    mark = {"bound": "ds", "leaving": "leaving"}.get(state, "")
    case = parse(f"case x\nqueues v · ds\nnodes n1=4\nrunning v: a 4@n1 {mark}\nask ds: 4 ds")[0]
    world = World.of(case)
    if state == "released":
        world.allocations["a"].place = AskPlace.RELEASED
    plan = PreemptionPlan(
        "required-node", world.ask(case.steps[0].ask), world.nodes["n1"], (world.allocations["a"],), world.root
    )
    # What is leaving already makes the room: no more has to go.
    assert broken(world, plan) - {Law.MINIMAL} == {Law.ELIGIBLE}


OVERFULL = """
queues   p{M=10 G=6} · p.v{G=4} · p.w · q
nodes    n1=f:100,g:100
running  p.v: a 4@n1, b 4@n1, d 4@n1 ds
running  p.w: c 3@n1, e 1@n1, g g:5@n1
running  q: x 4@n1
"""


@pytest.mark.parametrize(
    ("target", "victims", "expected"),
    [
        pytest.param(4, "a", set(), id="lawful"),
        pytest.param(6, "a c", set(), id="lawful with two"),
        pytest.param(6, "a", set(), id="lawful although not all of it"),
        pytest.param(7, "a", {Law.WITHIN_QUOTA}, id="more aimed at than the queue is above its max"),
        pytest.param(4, "x", {Law.ELIGIBLE}, id="outside the queue"),
        pytest.param(4, "d", {Law.ELIGIBLE}, id="bound to its node"),
        pytest.param(4, "g", {Law.ELIGIBLE, Law.MINIMAL}, id="of another type"),
        pytest.param(4, "c e a", {Law.WITHIN_QUOTA, Law.MINIMAL}, id="one too many"),
        pytest.param(4, "a e", {Law.WITHIN_QUOTA, Law.MINIMAL}, id="one too many, and what it frees with it"),
        pytest.param(4, "a a", {Law.ELIGIBLE, Law.WITHIN_QUOTA, Law.MINIMAL}, id="named twice"),
    ],
)
def test_quota(target: int, victims: str, expected: set[Law]) -> None:
    """Every law that binds this kind is named when a plan breaks it, and no other."""
    world = World.of(parse(f"case x\n{OVERFULL}")[0])
    chosen = tuple(world.allocations[key] for key in victims.split())
    t = world.types.index_of("f")
    plan = QuotaPlan(world.queues["p"], {t: 10}, {t: target}, chosen, {}, Outcome.PARTIAL)
    assert broken(world, plan) == expected


@pytest.mark.parametrize(
    ("queues", "victims"),
    [
        pytest.param("p{M=1} · p.v{G=6}", "a", id="the leaf"),
        pytest.param("p{M=1 G=6} · p.v", "a", id="the queue itself"),
        pytest.param("p · p.v{M=1 G=6}", "a", id="of its own"),
        pytest.param("p{G=6} · p.v{M=1}", "a", id="an ancestor"),
        pytest.param("p{M=1} · p.v{G=g:2}", "b", id="of another type"),
    ],
)
def test_no_queue_on_any_level_ends_below_its_guarantee(queues: str, victims: str) -> None:
    """Law 2 binds leaf, queue and ancestors, for every type a victim uses."""
    text = f"queues {queues}\nnodes n1=f:100,g:100\nrunning p.v: a 4@n1, b f:4,g:2@n1"
    world = World.of(parse(f"case x\n{text}")[0])
    enforced = next(queue for queue in world.queues.values() if queue.max)
    t = world.types.index_of("f")
    plan = QuotaPlan(enforced, enforced.max, {t: 4}, (world.allocations[victims],), {}, Outcome.PARTIAL)
    assert broken(world, plan) == {Law.GUARANTEE_KEPT}


TWO_TYPES = """
queues   v{M=f:4,g:0}
nodes    n1=f:100,g:100
running  v: a f:4@n1, b f:4,g:1@n1, c f:2@n1, d g:9@n1 ds
"""


@pytest.mark.parametrize(
    ("victims", "expected"),
    [
        pytest.param("a b", set(), id="both types, one of them not met"),
        pytest.param("b c", set(), id="exactly"),
        pytest.param("a b c", {Law.WITHIN_QUOTA, Law.MINIMAL}, id="one too many for the type that is met"),
        pytest.param("a c", set(), id="without the one that would do more"),
    ],
)
def test_every_type_of_the_target_counts(victims: str, expected: set[Law]) -> None:
    """A type that cannot be met excuses nobody who goes for another one."""
    world = World.of(parse(f"case x\n{TWO_TYPES}")[0])
    f, g = world.types.index_of("f"), world.types.index_of("g")
    chosen = tuple(world.allocations[key] for key in victims.split())
    plan = QuotaPlan(world.queues["v"], {f: 4, g: 0}, {f: 6, g: 10}, chosen, {}, Outcome.PARTIAL)
    assert broken(world, plan) == expected


@pytest.mark.parametrize(
    ("staying", "outcome", "expected"),
    [
        pytest.param(0, Outcome.FULL, set(), id="within the max"),
        pytest.param(2, Outcome.FULL, {Law.WITHIN_QUOTA}, id="victims in flight stay"),
        pytest.param(2, Outcome.PARTIAL, set(), id="and that is said"),
        pytest.param(5, Outcome.PARTIAL, {Law.WITHIN_QUOTA}, id="more stays than is in flight"),
    ],
)
def test_full_is_said_of_nobody_above_its_max(staying: int, outcome: Outcome, expected: set[Law]) -> None:
    """What the victims leave above the max is no full enforcement, whatever the target was."""
    world = World.of(parse("case x\nqueues v{M=4}\nnodes n1=100\nrunning v: a 4@n1, b 4@n1, c 4@n1 leaving")[0])
    t = world.types.index_of("f")
    plan = QuotaPlan(world.queues["v"], {t: 4}, {t: 4}, (world.allocations["a"],), {}, outcome, {t: staying})
    assert broken(world, plan) == expected
