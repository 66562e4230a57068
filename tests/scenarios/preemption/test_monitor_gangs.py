"""The periodic monitor takes whole gangs where nothing else helps, and never a part of what a gang needs (B.10)."""

from __future__ import annotations

from typing import Any

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec, UpdateAllocations, UpdateApplications
from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.laws.verdict import Law
from kornel.core.preemption.monitor import laws
from kornel.core.preemption.monitor.plan import DuePlace, DueVictim, MonitorPlan
from tests.scenarios.preemption.monitor_stage import PARTITION, Stage, decided, killed, placed
from tests.scenarios.preemption.test_monitor import AT_ONCE, ONE, guaranteed


def run_gang(stage: Stage, name: str, queue: str, where: str, minimum: int | None = None, **details: Any) -> None:
    """Has a Hard gang run: a member of 1 on each node that *where* names, so "n1 n1 n2" are three."""
    nodes = where.split()
    sum_of_all = Resources({"f": len(nodes)})
    spec = ApplicationSpec(
        name, f"root.{queue}", PARTITION, user="tester", placeholder_ask=sum_of_all, gang_style="Hard"
    )
    stage.apply(UpdateApplications("rm", (spec,)))
    tags = () if minimum is None else (("kornel.gangMinimum", str(minimum)),)
    about = {"task_group": "team", "placeholder": True, "tags": tags, "created_s": 10, **details}
    members = tuple(
        AllocationSpec(f"{name}-{at}", name, PARTITION, Resources({"f": 1}), node_id=node, **about)
        for at, node in enumerate(nodes, 1)
    )
    stage.apply(UpdateAllocations("rm", members))


def two_nodes(*, a: int = 2, b: int = 4, **settings: Any) -> Stage:
    """Two nodes of 4; queues a and b with guarantees."""
    stage = Stage(guaranteed(a=a, b=b), **AT_ONCE, **settings)
    stage.attach()
    for node in ("n1", "n2"):
        stage.node(node, {"f": 4})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    return stage


def members(name: str, count: int) -> list[str]:
    return [f"{name}-{at}" for at in range(1, count + 1)]


def test_a_whole_gang_leaves_where_nothing_else_helps() -> None:
    """Failed before: the minimum of a gang stayed, and b waited for ever. All members are told and leave together."""
    stage = two_nodes()
    run_gang(stage, "g", "a", "n1 n1 n2 n2")
    stage.submit("app-a", ["a1", "a2"], ONE, node_id="n1", required_node="n1")
    stage.submit("app-a", ["a3", "a4"], ONE, node_id="n2", required_node="n2")
    stage.submit("app-b", ["b1", "b2"], ONE)
    assert decided(stage.run_to(5), Outcome.NOTIFIED) == {"a": members("g", 4)}
    effects = stage.run_to(15)
    assert sorted(killed(effects)) == members("g", 4)
    stage.confirm(effects)
    assert placed(stage.run_to(20)) == ["b1", "b2"]


def test_a_whole_gang_leaves_before_originators_that_opted_out() -> None:
    """Failed before: both originators went, and with them the work of two applications."""
    stage = two_nodes(b=2)
    stage.drain("n2")
    run_gang(stage, "g", "a", "n1 n1", created_s=20)
    stage.submit("app-a", ["o1", "o2"], ONE, node_id="n1", originator=True, allow_preempt_self=False)
    stage.submit("app-b", ["b1"], {"f": 2})
    assert sorted(killed(stage.run_to(15))) == members("g", 2)


def test_single_tasks_and_surplus_leave_before_a_whole_gang() -> None:
    """One task by itself and one member beyond the minimum make room for two asks: the gang stays."""
    stage = two_nodes()
    run_gang(stage, "g", "a", "n1 n1 n1 n2 n2 n2", minimum=5)
    stage.submit("app-a", ["a1"], ONE, node_id="n1")
    stage.submit("app-a", ["a2"], ONE, node_id="n2", required_node="n2")
    stage.submit("app-b", ["b1", "b2"], ONE)
    gone = killed(stage.run_to(15))
    assert len(gone) == 2
    assert "a1" in gone


def test_a_gang_stays_whose_queue_would_end_below_its_guarantee() -> None:
    """The queue holds 8 and is guaranteed 3: two may go, and six of a gang may not (law 2)."""
    stage = two_nodes(a=3, b=5)
    run_gang(stage, "g", "a", "n1 n1 n1 n2 n2 n2")
    stage.submit("app-a", ["a1"], ONE, node_id="n1", required_node="n1")
    stage.submit("app-a", ["a2"], ONE, node_id="n2", required_node="n2")
    stage.submit("app-b", ["b1"], ONE)
    effects = stage.run_to(120)
    assert not [e for e in effects if isinstance(e, PreemptionDecided) and e.outcome is Outcome.NOTIFIED]


def test_two_gangs_leave_where_only_a_queue_is_full() -> None:
    """J-Y55, failed before: of gangs on several nodes, one at a time was looked at for room below the max of p."""
    queues = {
        "p": {"resources": {"max": {"f": 4}, "guaranteed": {"f": 4}}},
        "p.a": {},
        "p.b": {"resources": {"guaranteed": {"f": 4}}},
    }
    stage = Stage(queues, **AT_ONCE)
    stage.attach()
    for node, size in (("n1", 2), ("n2", 2), ("n3", 4)):
        stage.node(node, {"f": size})
    stage.application("app-b", "p.b")
    run_gang(stage, "g", "p.a", "n1 n1")
    run_gang(stage, "h", "p.a", "n2 n2")
    stage.submit("app-b", ["b1"], {"f": 4})
    assert sorted(killed(stage.run_to(15))) == [*members("g", 2), *members("h", 2)]


def test_the_smallest_gang_of_the_least_important_leaves() -> None:
    """Of three gangs, the one of two members leaves, and not the larger one or the more important one."""
    stage = two_nodes(a=0, b=4)
    run_gang(stage, "h", "a", "n1 n1", priority=-1)
    run_gang(stage, "large", "a", "n1 n2 n2", priority=-2)
    run_gang(stage, "small", "a", "n1 n2", priority=-2)
    stage.submit("app-a", ["a1"], ONE, node_id="n2", required_node="n2")
    stage.submit("app-b", ["b1"], ONE)
    assert sorted(killed(stage.run_to(15))) == members("small", 2)


def test_a_gang_counts_with_all_members_for_the_bound_of_a_round() -> None:
    """A round may take 2 of 8: the first gang goes as its first place, a second one has to wait for the next turn."""
    stage = Stage(guaranteed(a=0, b=8), per_round=0.25, natural_factor=1, dead_zone=0)
    stage.attach()
    stage.node("n1", {"f": 8})
    stage.application("app-b", "b")
    run_gang(stage, "g", "a", "n1 n1 n1 n1")
    run_gang(stage, "h", "a", "n1 n1 n1 n1")
    stage.submit("app-b", ["b1", "b2"], {"f": 3})
    assert sorted(killed(stage.run_to(15))) == members("g", 4)


def test_a_budget_of_the_governor_counts_all_members() -> None:
    """At most three tasks of a queue may be taken in a day, so a gang of four stays; with four it leaves."""
    for most, gone in ((3, []), (4, members("g", 4))):
        stage = two_nodes(governor={"window_ms": 86_400_000, "queue": {"victims": most}})
        run_gang(stage, "g", "a", "n1 n1 n2 n2")
        stage.submit("app-a", ["a1", "a2"], ONE, node_id="n1", required_node="n1")
        stage.submit("app-a", ["a3", "a4"], ONE, node_id="n2", required_node="n2")
        stage.submit("app-b", ["b1", "b2"], ONE)
        assert sorted(killed(stage.run_to(60))) == gone


def test_a_single_task_that_comes_later_spares_the_gang() -> None:
    """Between notice and kill, a task that may leave by itself starts: the gang's notice is withdrawn."""
    stage = two_nodes(a=2, b=4)
    run_gang(stage, "g", "a", "n1 n1 n1 n2 n2 n2")
    stage.submit("app-a", ["a1"], ONE, node_id="n1", required_node="n1")
    stage.submit("app-a", ["a2"], ONE, node_id="n2", required_node="n2")
    stage.submit("app-b", ["b1"], ONE)
    assert decided(stage.run_to(5), Outcome.NOTIFIED) == {"a": members("g", 6)}
    stage.release("app-a", "a1")
    stage.release("app-b", "b1")
    stage.submit("app-a", ["later"], ONE, node_id="n1")
    stage.submit("app-b", ["b2"], ONE)
    effects = stage.run_to(40)
    assert killed(effects) == ["later"]
    assert sorted(decided(effects, Outcome.WITHDRAWN)["a"]) == members("g", 6)


def due_plan(stage: Stage, *victims: str) -> MonitorPlan:
    """The plan to take *victims*, all of them due, for b1 on n1."""
    requests = stage.state.requests
    due = tuple(DueVictim(requests[key], 0, 1, 1) for key in victims)
    return MonitorPlan(1, stage.state.notices.now_ns, 0, (DuePlace(requests["b1"], stage.state.nodes["n1"], due),))


def test_the_laws_judge_a_gang_as_one_victim() -> None:
    """A part of a gang is a breach; all of it is none, whether or not each member is needed; beside enough others it
    is."""
    stage = two_nodes(a=1, b=4)
    run_gang(stage, "g", "a", "n1 n2")
    stage.submit("app-a", ["a1", "a2", "a3"], ONE, node_id="n1")
    stage.submit("app-a", ["a4", "a5", "a6"], ONE, node_id="n2")
    stage.submit("app-b", ["b1"], ONE)

    def broken(*victims: str) -> set[Law]:
        return {violation.law for violation in laws.check(stage.state, due_plan(stage, *victims))}

    assert broken("g-1") == {Law.GANG_WHOLE}
    assert broken("g-1", "g-2") == set()
    assert broken("g-1", "g-2", "a1") == {Law.MINIMAL}


def test_law_2_counts_all_members_of_a_gang() -> None:
    """The queue holds 8 and is guaranteed 7: one member could go, two may not."""
    stage = two_nodes(a=7, b=1)
    run_gang(stage, "g", "a", "n1 n2")
    stage.submit("app-a", ["a1", "a2", "a3"], ONE, node_id="n1")
    stage.submit("app-a", ["a4", "a5", "a6"], ONE, node_id="n2")
    stage.submit("app-b", ["b1"], ONE)
    found = laws.check(stage.state, due_plan(stage, "g-1", "g-2"))
    assert {violation.law for violation in found} == {Law.GUARANTEE_KEPT}
