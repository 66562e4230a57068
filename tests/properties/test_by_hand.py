"""What a person preempts by hand is what the words of the rule allow, against every set of tasks (preemption.md N)."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import Waivable
from tests.examples import scale_examples
from tests.oracles.by_hand import Task, World, complaints
from tests.scenarios.stage import Stage

LEAVES = ("p.a", "p.b")
NOW_S, OLD_S = 1_000, 600


@st.composite
def worlds(draw: st.DrawFn) -> World:
    tasks = [
        Task(
            f"t{number}",
            draw(st.sampled_from(LEAVES)),
            draw(st.integers(1, 3)),
            draw(st.integers(0, 2)),
            draw(st.sampled_from(["", "", "g"])),
            draw(st.integers(0, 5)) == 0,
            draw(st.integers(0, 4)) == 0,
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    # A gang is one application, and so runs in one leaf.
    tasks = [Task(t.name, "p.a" if t.gang else t.leaf, t.size, t.priority, t.gang, t.bound, t.young) for t in tasks]
    held = {place: sum(t.size for t in tasks if place in ("p", t.leaf)) for place in ("p", *LEAVES)}
    below = {leaf: draw(st.integers(0, held[leaf])) for leaf in LEAVES}
    return World(
        tuple(tasks), {"p": draw(st.integers(sum(below.values()), max(held["p"], sum(below.values())))), **below}
    )


def play(world: World) -> Stage:
    stage = Stage()
    shares = {place: f"guaranteed={{f={least}}}" if least else "" for place, least in world.guarantees.items()}
    lines = [f"queue root.p parent {shares['p']} preemption.min-runtime=2h"]
    lines += [f"queue root.{leaf} {shares[leaf]} preemption.min-runtime={OLD_S}s" for leaf in LEAVES]
    lines += ["node n1 f=100", "app g queue=root.p.a style=Hard"]
    lines += [f"app app-{leaf} queue=root.{leaf}" for leaf in LEAVES]
    # A gang counts from when it was first whole, so it is young as soon as one that came last is.
    for task in sorted(world.tasks, key=lambda task: task.young):
        at_s = NOW_S - 10 if task.young else 10
        runs = "app=g group=w" if task.gang else f"app=app-{task.leaf}"
        bound = " required=n1" if task.bound else ""
        lines.append(f"at={at_s}s run {task.name} {runs} node=n1 f={task.size} p={task.priority}{bound}")
    stage.play(lines)
    stage.play([f"at={NOW_S}s cycle"])
    return stage


def gone_of(stage: Stage, world: World, line: str) -> list[Task]:
    """Who is asked to leave; the dry run has said the same before."""
    would = stage.play([f"{line} dry"])
    stage.play([line])
    state = stage.state
    gone = [task for task in world.tasks if state.requests[task.name].preempted]
    assert sorted(answer.removeprefix("would end ") for answer in would[1:]) == sorted(t.name for t in gone)
    return gone


def normalize(world: World) -> World:
    """Members of the gang are as young as the gang, which counts from its first member."""
    gang = [task for task in world.tasks if task.gang]
    young = bool(gang) and all(task.young for task in gang)
    tasks = [
        Task(t.name, t.leaf, t.size, t.priority, t.gang, t.bound, young if t.gang else t.young) for t in world.tasks
    ]
    return World(tuple(tasks), world.guarantees)


WAIVED = st.frozensets(st.sampled_from([str(law) for law in Waivable]), max_size=3)


@given(world=worlds(), waived=WAIVED, among=st.sampled_from(["app-p.a", "g", "t0", "n1"]))
@settings(max_examples=scale_examples(400))
def test_of_named_tasks_all_go_that_may(world: World, waived: frozenset[str], among: str) -> None:
    world, stage = normalize(world), play(world)
    named = {
        "app-p.a": [task for task in world.tasks if task.leaf == "p.a" and not task.gang],
        "g": [task for task in world.tasks if task.gang],
        "t0": [task for task in world.tasks if task.name == "t0"],
        "n1": list(world.tasks),
    }[among]
    kind = {"t0": "allocation", "n1": "node"}.get(among, "application")
    stage.play(["drain n1"])
    option = f" waived={','.join(sorted(waived))} reason=x" if waived else ""
    gone = gone_of(stage, world, f"preempt {kind} {among}{option}")
    event(f"{len(gone)} of {len(named)}")
    assert not complaints(world, named, gone, waived)


@given(world=worlds(), waived=WAIVED, place=st.sampled_from(["p", *LEAVES]), part=st.integers(1, 6))
@settings(max_examples=scale_examples(400))
def test_of_an_amount_nobody_goes_without_need(world: World, waived: frozenset[str], place: str, part: int) -> None:
    world, stage = normalize(world), play(world)
    amount = min(part, world.held(place))
    if not amount:
        return
    named = [task for task in world.tasks if place in ("p", task.leaf)]
    option = f" waived={','.join(sorted(waived))} reason=x" if waived else ""
    gone = gone_of(stage, world, f"preempt queue root.{place} f={amount}{option}")
    event(f"{len(gone)} of {len(named)}")
    assert not complaints(world, named, gone, waived, amount)
