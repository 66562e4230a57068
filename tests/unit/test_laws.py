"""Plans that break one law each: the laws module names it, whatever any planner would have thought of the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.devices import DeviceRequest, DeviceSpec
from kornel.core.domain.settings import PreemptWithin
from kornel.core.laws import freed_devices
from kornel.core.laws.limits import check_limits
from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import Allocation
from kornel.core.model.devices import NodeDevices, Taken
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.plan import PreemptionPlan
from kornel.core.preemption.required_node import planner as required_node
from tests import judged_plans as laws
from tests.preemption_notation import parse
from tests.scenarios.stage import Stage
from tests.unit.model.test_ask_group import Asks
from tests.unit.policies.preemption.world import MINUTE_NS, NOW_NS, World


def world_and_ask(text: str) -> tuple[World, Allocation]:
    case = parse(f"case x\n{text}")[0]
    world = World.of(case)
    return world, world.ask(case.steps[0].ask)


def plan(world: World, ask: Allocation, node: str, *victims: str) -> PreemptionPlan:
    """A plan made up by hand."""
    return PreemptionPlan(
        "guarantee", ask, world.nodes[node], tuple(world.allocations[key] for key in victims), world.root
    )


def broken(world: World, made_up: PreemptionPlan) -> set[Law]:
    return {violation.law for violation in laws.check(world, made_up)}


TWO_TASKS = """
queues   v · a{G=4} · b
nodes    n1=8
running  v: v1 4@n1 t1, v2 4@n1 t2
ask      a: 4
"""


def test_lawful_plan_has_no_violations() -> None:
    """A plan as the planner makes it passes all laws."""
    world, ask = world_and_ask(TWO_TASKS)
    made = guarantee.plan_preemption(world, ask, now_ns=NOW_NS)
    assert isinstance(made, PreemptionPlan)
    assert laws.check(world, made) == ()


@pytest.mark.parametrize(
    ("text", "node", "victims", "law"),
    [
        pytest.param(
            "queues v{G=5} · a{G=5}\nnodes n1=8\nrunning v: v1 4@n1, v2 4@n1\nask a: 4",
            "n1", ["v1"], Law.GUARANTEE_KEPT, id="leaf below its guarantee",
        ),
        pytest.param(
            "queues x{G=8} · x.v · a{G=5}\nnodes n1=8\nrunning x.v: v1 4@n1, v2 4@n1\nask a: 4",
            "n1", ["v1"], Law.GUARANTEE_KEPT, id="middle queue below its guarantee",
        ),
        pytest.param(
            "queues p{G=8} · p.v · p.a{G=5}\nnodes n1=8\nrunning p.v: v1 8@n1\nask p.a: 4",
            "n1", ["v1"], Law.GUARANTEE_KEPT, id="shared queue loses more than it gets",
        ),
        pytest.param(
            "queues v{app=one} · a{G=4 app=one}\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4",
            "n1", ["v1"], Law.OTHER_APPLICATION, id="same application",
        ),
        pytest.param(
            "queues v · a\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4",
            "n1", ["v1"], Law.ENTITLED, id="no guarantee",
        ),
        pytest.param(
            "queues v · a{G=3}\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4",
            "n1", ["v1"], Law.ENTITLED, id="ask larger than the guarantee",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=8\nrunning v: v1 4@n1\nrunning a: a1 4@n1\nask a: 1",
            "n1", ["v1"], Law.ENTITLED, id="guarantee reached",
        ),
        pytest.param(
            "queues v · a{G=5}\nnodes n1=8\nrunning v: v1 4@n1\nrunning a: a1 4@n1\nask a: 2\nmode strict",
            "n1", ["v1"], Law.ENTITLED, id="guarantee exceeded, strict",
        ),
        pytest.param(
            "queues p{G=4} · p.v{G=1} · p.a · w\nnodes n1=8\nrunning p.v: v1 4@n1\nrunning w: w1 4@n1\nask p.a: 4",
            "n1", ["w1"], Law.ENTITLED, id="swap by a victim outside the guarantee",
        ),
        pytest.param(
            "queues x{G=10} · x.v · x.a\nnodes n1=2\nrunning x.v: v1 1@n1, v2 1@n1\nask x.a: 1",
            "n1", ["v1"], Law.OVER_GUARANTEE, id="inherited entitlement",
        ),
        pytest.param(
            "queues v{G=5} · a{G=5}\nnodes n1=5\nrunning v: v1 5@n1\nask a: 5",
            "n1", ["v1"], Law.OVER_GUARANTEE, id="not over its guarantee",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=4\nrunning v: v1 4@n1 p1\nask a: 4",
            "n1", ["v1"], Law.PRIORITY, id="more important victim",
        ),
        pytest.param(
            "queues v{off=2} · a{G=4}\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4 p1",
            "n1", ["v1"], Law.PRIORITY, id="more important by its queue's offset",
        ),
        pytest.param(
            "queues v{pfence off=5} · a{G=4}\nnodes n1=4\nrunning v: v1 4@n1 p-9\nask a: 4 p4",
            "n1", ["v1"], Law.PRIORITY, id="more important by its queue's fence, whatever its own priority",
        ),
        pytest.param(
            "queues t{fence} · t.a{G=4} · v\nnodes n1=4\nrunning v: v1 4@n1\nask t.a: 4",
            "n1", ["v1"], Law.FENCE, id="outside the fence",
        ),
        pytest.param(
            "queues t{M=6} · t.a{G=4} · t.b · v\nnodes n1=8\nrunning v: v1 4@n1\nrunning t.b: b1 4@n1\nask t.a: 4",
            "n1", ["v1"], Law.FENCE, id="outside a full queue",
        ),
        pytest.param(
            "queues v{disabled} · a{G=4}\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4",
            "n1", ["v1"], Law.ELIGIBLE, id="protected queue",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=4\nrunning v: v1 4@n1 ds\nask a: 4",
            "n1", ["v1"], Law.ELIGIBLE, id="required node",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=4\nrunning a: a1 2@n1\nrunning v: v1 2@n1\nask a: 2",
            "n1", ["a1"], Law.ELIGIBLE, id="own queue",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=4 n2=4\nrunning v: v1 4@n1, v2 4@n2\nask a: 4",
            "n1", ["v1", "v2"], Law.ON_NODE, id="victim elsewhere",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=4\nrunning v: v1 2@n1, v2 2@n1\nask a: 4",
            "n1", ["v1"], Law.SUFFICIENT, id="node stays too full",
        ),
        pytest.param(
            "queues p{M=6} · p.v · p.a{G=4}\nnodes n1=8\nrunning p.v: v1 1@n1, v2 5@n1\nask p.a: 4",
            "n1", ["v1"], Law.SUFFICIENT, id="queue stays too full",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=4\nrunning v: v1 2@n1, v2 2@n1\nask a: 2",
            "n1", ["v1", "v2"], Law.MINIMAL, id="victim too many",
        ),
        pytest.param(
            "queues v · a{G=4}\nnodes n1=8\nrunning v: v1 2@n1\nask a: 2",
            "n1", [], Law.MINIMAL, id="nobody needed",
        ),
        pytest.param(
            "queues v · a{G=4} · h\nnodes n1=4\nrunning v: v1 4@n1\nreserved n1 0m h: h1 1 triggered\nask a: 4",
            "n1", ["v1"], Law.NODE_USABLE, id="node held for another",
        ),
    ],
)  # fmt: skip
def test_broken_law_is_named(text: str, node: str, victims: list[str], law: Law) -> None:
    """The law that the made-up plan breaks is among those reported, with its numbers."""
    world, ask = world_and_ask(text)
    found = laws.check(world, plan(world, ask, node, *victims))
    assert law in {violation.law for violation in found}
    assert all(violation.detail for violation in found)


@pytest.mark.parametrize(
    ("text", "victims", "law"),
    [
        pytest.param("queues a\nnodes n1=4\nrunning a: a1 4@n1\nask a: 4 p3", ["a1"], None, id="lawful"),
        pytest.param("queues a\nnodes n1=4\nrunning a: a1 4@n1\nask a: 4 p1", ["a1"], Law.PRIORITY, id="too important"),
        pytest.param("queues a · v\nnodes n1=4\nrunning v: v1 4@n1\nask a: 4 p9", ["v1"], Law.FENCE, id="another leaf"),
        pytest.param(
            "queues a{app=hot}\nnodes n1=4\nrunning a: a1 4@n1\nask a: 4 p9",
            ["a1"], Law.OTHER_APPLICATION, id="same application",
        ),
        pytest.param(
            "queues a{G=4}\nnodes n1=4\nrunning a: a1 4@n1\nask a: 2 p9",
            ["a1"], Law.GUARANTEE_KEPT, id="leaf below its guarantee",
        ),
        pytest.param(
            "queues a{disabled}\nnodes n1=4\nrunning a: a1 4@n1\nask a: 4 p9",
            ["a1"], Law.ELIGIBLE, id="protected leaf",
        ),
        pytest.param(
            "queues a\nnodes n1=4\nrunning a: a1 2@n1, a2 2@n1\nask a: 2 p9",
            ["a1", "a2"], Law.MINIMAL, id="victim too many",
        ),
        pytest.param(
            "queues a\nnodes n1=4\nrunning a: a1 2@n1 p1, a2 2@n1 p0\nask a: 2 p9",
            ["a1"], Law.MILDEST, id="a less important one would do",
        ),
        pytest.param(
            "queues a{M=4}\nnodes n1=9\nrunning a: a1 1@n1, a2 3@n1\nask a: 2 p9",
            ["a1"], Law.SUFFICIENT, id="leaf stays too full",
        ),
    ],
)  # fmt: skip
def test_broken_law_within_a_leaf_is_named(text: str, victims: list[str], law: Law | None) -> None:
    """The same laws judge victims of the leaf of the ask, without a guarantee."""
    case = parse(f"case x\n{text}")[0]
    world = World.of(case)
    ask = world.ask(case.steps[0].ask, "hot")
    leaf = ask.queue
    leaf.properties = replace(leaf.properties, preempt_within=PreemptWithin.PRIORITY, preempt_within_gap=2)
    made_up = replace(plan(world, ask, "n1", *victims), kind="within")
    found = broken(world, made_up)
    assert law in found if law is not None else not found
    leaf.properties = replace(leaf.properties, preempt_within=PreemptWithin.NONE)
    assert Law.ENTITLED in broken(world, made_up)


@pytest.mark.parametrize("state", ["released", "preempted", "twice", "unplaced", "replacing"])
def test_victims_in_the_wrong_state(state: str) -> None:
    """Nobody goes who is going already, was named before, or holds nothing."""
    world, ask = world_and_ask(TWO_TASKS)
    made_up = plan(world, ask, "n1", "v2")
    victim = made_up.victims[0]
    match state:
        case "released":
            victim.place = AskPlace.RELEASED
        case "preempted":
            victim.place = AskPlace.PREEMPTED
        case "twice":
            made_up = replace(made_up, victims=(victim, victim))
        case "unplaced":
            victim.node = None
        case "replacing":
            victim.place = AskPlace.REPLACING
    assert Law.ELIGIBLE in broken(world, made_up)


def test_nobody_goes_before_he_has_run_for_his_time() -> None:
    """It ends to the nanosecond, whatever else is in order."""
    world, ask = world_and_ask(TWO_TASKS)
    made_up = plan(world, ask, "n1", "v2")
    victim = made_up.victims[0]
    victim.queue.properties = replace(victim.queue.properties, min_runtime_ns=9, min_runtime_most_ns=9)
    victim.bound_ns = world.now_ns - 8
    assert Law.RUN_TIME in broken(world, made_up)
    victim.bound_ns = world.now_ns - 9
    assert Law.RUN_TIME not in broken(world, made_up)


def test_an_ask_that_has_waited_for_long_takes_the_young() -> None:
    """Its delay counts, and then its patience."""
    world, ask = world_and_ask(TWO_TASKS)
    made_up = plan(world, ask, "n1", "v2")
    victim = made_up.victims[0]
    victim.queue.properties = replace(victim.queue.properties, min_runtime_ns=9, min_runtime_most_ns=9)
    victim.bound_ns = world.now_ns
    waited_ns = world.now_ns - ask.created_ns
    ask.queue.properties = replace(ask.queue.properties, preemption_delay_ns=7, max_wait_ns=waited_ns - 6)
    assert Law.RUN_TIME in broken(world, made_up)
    ask.queue.properties = replace(ask.queue.properties, max_wait_ns=waited_ns - 7)
    assert Law.RUN_TIME not in broken(world, made_up)


def test_drained_node() -> None:
    """A node that takes no new work takes no preemptor either."""
    world, ask = world_and_ask(TWO_TASKS)
    world.nodes["n1"].schedulable = False
    assert broken(world, plan(world, ask, "n1", "v2")) == {Law.NODE_USABLE}


@pytest.mark.parametrize(
    ("marks", "laws_broken"),
    [
        ("p0", set()),
        ("p1", set()),
        ("p0 triggered", {Law.NODE_USABLE, Law.SUFFICIENT}),
        ("p0 ds", {Law.NODE_USABLE, Law.SUFFICIENT}),
    ],
)
def test_what_is_held_by_age_shields_nobody(marks: str, laws_broken: set[Law]) -> None:
    """Who has only waited long keeps nobody from preempting there; claims that come first must not be exceeded."""
    world, ask = world_and_ask(
        f"queues v · a{{G=4}} · h\nnodes n1=4\nrunning v: v1 4@n1\nreserved n1 1m h: h1 4 {marks}\nask a: 4 p1"
    )
    assert broken(world, plan(world, ask, "n1", "v1")) <= laws_broken


def test_own_reservation_is_no_obstacle() -> None:
    """A node already held for the ask may be chosen."""
    world, ask = world_and_ask(TWO_TASKS)
    world.reserve(ask, world.nodes["n1"], NOW_NS - MINUTE_NS)
    assert broken(world, plan(world, ask, "n1", "v2")) == set()


def test_extended_plan_may_hold_more_than_resources_need() -> None:
    """Victims that a predicate asked for are not superfluous."""
    world, ask = world_and_ask(TWO_TASKS)
    made_up = plan(world, ask, "n1", "v1", "v2")
    assert broken(world, made_up) == {Law.MINIMAL}
    assert broken(world, replace(made_up, extended=True)) == set()


def test_victims_in_flight_do_not_count_as_used() -> None:
    """What already leaves a queue cannot be taken again: law 2 is reckoned without it."""
    world, ask = world_and_ask(
        "queues v{G=4} · a{G=9}\nnodes n1=12\nrunning v: v1 4@n1, v2 4@n1\nrunning a: a1 4@n1\nask a: 4"
    )
    first = plan(world, ask, "n1", "v1")
    assert broken(world, first) == set()
    world.apply(first)
    second = world.ask(parse("case y\nqueues a\nask a: 4")[0].steps[0].ask)
    assert Law.GUARANTEE_KEPT in broken(world, plan(world, second, "n1", "v2"))


@pytest.mark.parametrize(
    ("node", "victims", "laws_broken"),
    [
        ("n1", ["v1"], set()),
        ("n1", ["v2"], {Law.PRIORITY, Law.MILDEST}),
        ("n1", ["v1", "v4"], {Law.MINIMAL}),
        ("n1", [], {Law.SUFFICIENT, Law.MINIMAL}),
        ("n1", ["v3"], {Law.REQUIRED_NODE}),
        ("n2", ["v3"], {Law.NODE_USABLE}),
    ],
)
def test_plans_for_a_required_node_are_judged_by_laws_of_their_own(
    node: str, victims: list[str], laws_broken: set[Law]
) -> None:
    """The ask has to run on n1, where it lacks 4. Guarantees do not count, priorities do."""
    world, ask = world_and_ask(
        "queues v{G=99} · d\nnodes n1=12 n2=4\n"
        "running v: v1 4@n1 p1 t9, v2 4@n1 p3, v4 4@n1 p2\nrunning v: v3 4@n2\nask d: 4 p2 ds"
    )
    assert broken(world, replace(plan(world, ask, node, *victims), kind=required_node.KIND)) == laws_broken


def test_what_is_claimed_counts_in_the_limit_of_a_user() -> None:
    """Ann may have 2. A victim leaves for a1, so that nobody may leave for an ask of 2, but somebody for one of 1."""
    stage = Stage()
    stage.play(["queue root.v", "queue root.q guaranteed={vcore=9} preemption.delay=1s"])
    stage.play(["limit root.q users=* max={vcore=2}", "node n1 vcore=2", "app A queue=root.q user=ann"])
    stage.play(["run v1 queue=root.v node=n1 vcore=1", "run v2 queue=root.v node=n1 vcore=1"])
    stage.play(
        ["ask a1 app=A vcore=1 other=yes", "cycles until=2s every=1s", "ask a2 app=A vcore=1", "ask a3 app=A vcore=2"]
    )
    found = [list(check_limits((stage.state.requests[key],), stage.state.types.names)) for key in ("a2", "a3")]
    assert list(map(len, found)) == [0, 1]


@pytest.mark.parametrize(
    ("properties", "ann", "bob", "asked", "broken_"),
    [
        # properties of the leaf of 8, what ann and bob hold and have preempted for, what ann asks for
        ("originator.max=50%", "a2", "b1", "1 originator", False),
        ("originator.max=50%", "a2", "b1", "2 originator", True),
        ("originator.max=50%", "a2", "b1", "5", False),
        ('originator.max="vcore: 3m"', "a2", "b1", "1 originator", True),
        ('originator.max="vcore: 3m"', "", "", "5 originator", False),
        ("user-limit-factor=0.5", "a2", "b1", "2", False),
        ("user-limit-factor=0.5", "a2", "b1", "3", True),
        ("minimum-user-limit-percent=50", "a2", "b1", "2", False),
        ("minimum-user-limit-percent=50", "a2", "b1", "3", True),
        ("minimum-user-limit-percent=75", "a2", "b1", "4", False),
        ("minimum-user-limit-percent=50", "", "b1", "6", False),
        ("minimum-user-limit-percent=50", "a3", "b4", "2", False),
        ("minimum-user-limit-percent=50", "a3", "b2", "2", True),
    ],
)
def test_what_a_leaf_leaves_to_originators_and_users_binds_plans(
    properties: str, ann: str, bob: str, asked: str, broken_: bool
) -> None:
    """Ann and bob run originators and tasks; both ask for more, so that half of the leaf is for each."""
    stage = Stage()
    stage.play([f"queue root.q max={{vcore=8}} {properties}", "node n1 vcore=100"])
    stage.play(["app A queue=root.q user=ann", "app B queue=root.q user=bob", "ask never app=B vcore=9"])
    for app, held in (("A", ann), ("B", bob)):
        for number in range(int(held[1:] or 0)):
            stage.play([f"run {held}-{number} app={app} node=n1 vcore=1 originator"])
    amount, *flag = asked.split()
    stage.play([f"ask new app=A vcore={amount} {' '.join(flag)}"])
    found = list(check_limits((stage.state.requests["new"],), stage.state.types.names))
    assert bool(found) is broken_


@pytest.mark.parametrize(
    ("request_", "leaves", "enough"),
    [
        (DeviceRequest(number=2), "", False),
        (DeviceRequest(number=2), "g0", True),
        (DeviceRequest(number=2, linked=True), "g0", False),
        (DeviceRequest(number=2, linked=True), "g1", True),
        (DeviceRequest(share=501), "", True),
        (DeviceRequest(number=1, types=("b",)), "g0", False),
    ],
)
def test_devices_have_to_be_whole_linked_and_of_the_type(request_: DeviceRequest, leaves: str, enough: bool) -> None:
    """Half of g0 is held, and all of g1, which has the same link as the free g2."""
    node, made = Node("n", (), [0]), Asks()
    node.devices = NodeDevices(
        [DeviceSpec("g0", "a"), DeviceSpec("g1", "a", link="x"), DeviceSpec("g2", "a", link="x")]
    )
    holders = {"g0": made.made(0), "g1": made.made(0)}
    for name, share in (("g0", 500), ("g1", 1_000)):
        node.devices.book_parts(holders[name], [Taken(name, share)])
    ask = made.made(0)
    ask.shape = Shape(ask.shape.resources, ask.shape.pairs, devices=request_)
    assert freed_devices.leaves_enough(node, ask, [holders[leaves]] if leaves else [], {}) is enough
