"""What a text cannot say of the periodic policy: held nodes, endless days, laws and plans of the test's own.

Its stories are in ``monitor*.txt``. Cases with a number are those of preemption.md J.5.
"""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    ApplicationSpec,
    PreemptionNoticeAnswer,
    UpdateAllocations,
    UpdateApplications,
)
from kornel.core.domain.effects import PreemptionDecided, Released
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.laws.verdict import Law
from kornel.core.preemption.monitor import laws
from kornel.core.preemption.monitor.plan import DuePlace, DueVictim, MonitorPlan
from kornel.core.preemption.monitor.selection.victim_choice import VictimChoice
from kornel.core.state.asks import reservations
from kornel.core.state.waiting import pausing
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import Named
from tests.reading import read
from tests.scenarios.preemption.monitor_stage import (
    AT_ONCE,
    ONE,
    PARTITION,
    START_NS,
    Stage,
    decided,
    guaranteed,
    killed,
    notices,
    patient,
    withdrawn,
)


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{at:03}" for at in range(count)]


def big_among_small(**settings: Any) -> Stage:
    """Ten nodes of 10 full of a's tasks of 1; b asks for one task of 8."""
    stage = Stage(guaranteed(a=50, b=50), **settings)
    for number in range(10):
        stage.node(f"n{number}", {"f": 10})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for at, key in enumerate(numbered("a", 100)):
        stage.submit("app-a", [key], ONE, node_id=f"n{at % 10}")
    return stage


def y4() -> Stage:
    stage = Stage(guaranteed(a=40, b=40, c=20), **AT_ONCE)
    stage.node("n", {"f": 100})
    for name, count in (("a", 0), ("b", 60), ("c", 40)):
        stage.application(f"app-{name}", name)
        stage.submit(f"app-{name}", numbered(name, count), ONE, node_id="n")
    stage.submit("app-a", numbered("ask", 10), ONE)
    stage.attach()
    return stage


def test_y30_reserved_first_frees_the_node_that_is_reserved() -> None:
    """Five of a leave n1, where b's ask of 9 has 4; with guarantees of 85 and 15 nobody does."""
    for owed_a, expected in ((50, ["a1-44", "a1-43", "a1-42", "a1-41", "a1-40"]), (85, [])):
        stage = Stage(guaranteed(a=owed_a, b=100 - owed_a), **AT_ONCE, reserved_first=True)
        stage.node("n1", {"f": 50})
        stage.node("n2", {"f": 50})
        stage.application("app-a", "a")
        stage.application("app-b", "b")
        for node in (2, 1):
            stage.submit("app-a", [f"a{node}-{at:02}" for at in range(45)], ONE, node_id=f"n{node}")
        stage.submit("app-b", ["driver"], ONE, node_id="n1", originator=True)
        stage.submit("app-b", ["big"], {"f": 9})
        reservations.reserve_node(
            stage.state, stage.state.requests["big"], stage.state.nodes["n1"], START_NS, by_age=True
        )
        assert decided(stage.run_to(5), Outcome.NOTIFIED).get("a", []) == expected


def test_reserved_first_takes_nothing_for_a_queue_that_has_its_guarantee() -> None:
    """b holds its 4 and has 2 more reserved; c owes something, but not to b (law 4). With a guarantee of 6 it does."""
    for owed, expected in ((4, []), (6, ["c3", "c2"])):
        stage = Stage({**guaranteed(b=owed), "c": {}}, **AT_ONCE, reserved_first=True, max_wait_ms=0)
        stage.node("n1", {"f": 8})
        stage.application("app-b", "b")
        stage.application("app-c", "c")
        stage.submit("app-b", ["driver"], {"f": 4}, node_id="n1")
        stage.submit("app-c", [f"c{at}" for at in range(4)], ONE, node_id="n1")
        stage.submit("app-b", ["more"], {"f": 2})
        reservations.reserve_node(
            stage.state, stage.state.requests["more"], stage.state.nodes["n1"], START_NS, by_age=True
        )
        effects = stage.run_to(20)
        taken = [effect.key for effect in effects if isinstance(effect, Released)]
        assert taken == expected


def test_checkpoints_are_remembered_until_the_end() -> None:
    stage = y4()
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    key = notice.at_risk[0]
    answer = PreemptionNoticeAnswer(notice.notice, checkpoints=((key, START_NS + 1), ("a-stranger", 1)))
    stage.apply(AnswerCallbacks("rm", notices=(answer,)))
    assert stage.state.notices.checkpoints == {key: START_NS + 1}
    stage.confirm(stage.run_to(15))
    assert stage.state.notices.checkpoints == {}


@pytest.mark.parametrize("pace", [{}, AT_ONCE])
@pytest.mark.parametrize("offered", [0, 1, 50])
def test_originators_offered_in_exchange_put_nothing_off(pace: dict[str, Any], offered: int) -> None:
    """Issue 30, row 13: a answers each notice with its originators, and the same goes as without an answer."""
    stage = Stage(patient(guaranteed(a=50, b=50)), **pace)
    stage.node("n", {"f": 100})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    drivers = [f"driver-{at:02}" for at in range(50)]
    stage.submit("app-a", drivers, ONE, node_id="n", originator=True)
    stage.submit("app-a", [f"plain-{at:02}" for at in range(50)], ONE, node_id="n")
    stage.submit("app-b", [f"b{at}" for at in range(50)], ONE)
    stage.attach()
    gone: list[str] = []
    for second in range(1, 61):
        effects = stage.run_to(second)
        for notice in notices(effects):
            answer = PreemptionNoticeAnswer(notice.notice, True, tuple(drivers[:offered]))
            stage.apply(AnswerCallbacks("rm", notices=(answer,)))
        gone += killed(effects)
        stage.confirm(effects)
    assert len(gone) == (50 if pace else 8)
    assert gone == [f"plain-{at:02}" for at in range(49, -1, -1)][: len(gone)]


def test_an_ask_that_the_shim_refused_on_a_node_gets_no_place_there() -> None:
    stage = big_among_small(**AT_ONCE)
    stage.submit("app-b", ["picky"], {"f": 2})
    others = {f"n{number}": "no" for number in range(9)}
    pausing.leave_out(stage.state, stage.state.requests["picky"], others, others, START_NS)
    gone = killed(stage.run_to(20))
    assert {int(key[1:]) % 10 for key in gone} == {9}
    assert len(gone) == 2


def test_a_small_job_every_five_minutes_waits_no_longer_each_time() -> None:
    """18 s each: 15 s of notice and the round it began in. Before, each took twice as long as the one before."""
    stage = Stage(guaranteed(a=0, b=10), interval_ms=3000, max_wait_ms=15_000)
    stage.node("n", {"f": 20})
    stage.application("app-a", "a")
    stage.submit("app-a", numbered("a", 20), ONE, node_id="n")
    stage.submit("app-a", numbered("wait", 40), ONE)
    waits = []
    for turn in range(12):
        start = turn * 300 + 1
        while stage.now_s < start:
            stage.confirm(stage.run_to(min(start, stage.now_s + 1)))
        if "app-b" not in stage.state.applications:
            stage.application("app-b", "b")
        key = f"job{turn}"
        stage.submit("app-b", [key], ONE)
        while stage.state.requests[key].node is None and stage.now_s < start + 280:
            stage.confirm(stage.run_to(stage.now_s + 1))
        waits.append(stage.now_s - start)
        stage.run_to(stage.now_s + 10)
        stage.release("app-b", key)
    assert max(waits) <= 21, waits


def test_with_the_monitor_on_no_ask_with_a_kept_node_preempts() -> None:
    """A node is kept for b's ask because of its age; the ask still waits for notice and deadline like all."""
    stage = big_among_small(interval_ms=60_000)
    stage.submit("app-b", ["big"], {"f": 8})
    ask = stage.state.requests["big"]
    reservations.reserve_node(stage.state, ask, stage.state.nodes["n0"], START_NS, by_age=True)
    effects = stage.run_to(59)
    assert killed(effects) == []
    assert {e.kind for e in effects if isinstance(e, PreemptionDecided)} <= {"monitor"}


def test_whose_application_is_prepared_goes_first_where_fewer_are_needed() -> None:
    """Half of the demand goes away: of ten at risk those five go whose work was saved, and explain names one."""
    stage = y4()
    (notice,) = notices(stage.run_to(5))
    saved = notice.at_risk[5:]
    checkpoints = tuple((key, START_NS + 5 * 10**9) for key in saved)
    stage.apply(AnswerCallbacks("rm", notices=(PreemptionNoticeAnswer(notice.notice, True, (), checkpoints),)))
    stage.release("app-a", *numbered("ask", 5))
    effects = stage.run_to(10)
    assert withdrawn(effects) == list(notice.at_risk[:5])
    report = read(stage.engine, "[rm]default", START_NS + 10 * 10**9).explain(Named("ask005"))
    assert isinstance(report, AskReport)
    assert report.preemption is not None
    assert "its application prepares for it, its work was saved 10 s before then" in report.preemption.detail
    assert sorted(killed(stage.run_to(15))) == sorted(saved)


def test_nobody_is_told_to_leave_where_a_milder_class_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that begins with the tasks that opted out is stopped before notice is given."""
    sound = VictimChoice.choose_victims

    def begin_with_last(self: VictimChoice, want: Any, node: Any, candidates: Any, whom: Any, **rest: Any) -> Any:
        return sound(self, want, node, list(candidates)[::-1], whom, **rest)

    monkeypatch.setattr(VictimChoice, "choose_victims", begin_with_last)
    stage = Stage(guaranteed(a=0, b=3), **AT_ONCE)
    stage.attach()
    stage.node("n", {"f": 4})
    for name in "ab":
        stage.application(f"app-{name}", name)
    stage.submit("app-a", ["a0"], {"f": 2}, node_id="n", allow_preempt_self=False)
    stage.submit("app-a", ["a1", "a2"], ONE, node_id="n")
    stage.submit("app-b", ["b"], {"f": 3})
    with pytest.raises(AssertionError, match="LAW_BROKEN"):
        stage.run_to(5)
    assert not stage.state.notices.entries


def test_nobody_is_told_for_a_unit_that_would_not_find_all_its_places() -> None:
    """b is owed 4 x 4, and a's guarantee keeps one place back. No member holds room because of its age."""
    stage = Stage(guaranteed(a=4, b=16), **AT_ONCE)
    stage.application("app-a", "a")
    for at in range(1, 5):
        stage.node(f"n{at}", {"f": 4})
        stage.submit("app-a", [f"a{at}-{k}" for k in range(4)], ONE, node_id=f"n{at}")
    run_gang(stage, "g", "b", ["", "", "", ""], 4, allow_preempt_other=True)
    effects = stage.run_to(120)
    assert decided(effects, Outcome.NOTIFIED) == {}
    assert killed(effects) == []


def run_gang(stage: Stage, name: str, queue: str, nodes: list[str], size: int = 1, **details: Any) -> None:
    """Has a Hard gang run with a member on each of *nodes*; a member without one asks."""
    sum_of_all = Resources({"f": size * len(nodes)})
    spec = ApplicationSpec(
        name, f"root.{queue}", PARTITION, user="tester", placeholder_ask=sum_of_all, gang_style="Hard"
    )
    stage.apply(UpdateApplications("rm", (spec,)))
    about = {"task_group": "team", "placeholder": True, "created_s": 10, **details}
    members = tuple(
        AllocationSpec(f"{name}-{at}", name, PARTITION, Resources({"f": size}), node_id=node, **about)
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


def due_plan(stage: Stage, *victims: str) -> MonitorPlan:
    """The plan to take *victims*, all of them due, for b1 on n1."""
    requests = stage.state.requests
    due = tuple(DueVictim(requests[key], 0, 1, 1) for key in victims)
    return MonitorPlan(1, stage.state.notices.now_ns, 0, (DuePlace(requests["b1"], stage.state.nodes["n1"], due),))


def test_the_laws_judge_a_gang_as_one_victim() -> None:
    """A part of a gang is a breach; all of it is none, whether or not each member is needed; beside enough others it
    is."""
    stage = two_nodes(a=1, b=4)
    run_gang(stage, "g", "a", ["n1", "n2"])
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
    run_gang(stage, "g", "a", ["n1", "n2"])
    stage.submit("app-a", ["a1", "a2", "a3"], ONE, node_id="n1")
    stage.submit("app-a", ["a4", "a5", "a6"], ONE, node_id="n2")
    stage.submit("app-b", ["b1"], ONE)
    found = laws.check(stage.state, due_plan(stage, "g-1", "g-2"))
    assert {violation.law for violation in found} == {Law.GUARANTEE_KEPT}


def test_a_place_that_needs_denied_victims_waits_in_the_next_piece_of_work_too() -> None:
    """After thirty-one places, the place of ten for six is the last one of its piece."""
    stage = Stage(guaranteed(a=0, b=0, c=0, d=44), **AT_ONCE, dead_zone=0, governor={"cooldown_ms": 30_000})
    stage.node("n", {"f": 44})
    for name in "abcd":
        stage.application(f"app-{name}", name)
    stage.submit("app-b", ["b-large"], {"f": 10}, node_id="n")
    stage.submit("app-b", ["b-small"], ONE, node_id="n")
    stage.submit("app-c", ["c0"], {"f": 2}, node_id="n")
    small = [f"a{at:02}" for at in range(31)]
    stage.submit("app-a", small, ONE, node_id="n", required_node="n")
    stage.submit("app-d", ["d"], ONE)
    effects = stage.run_to(15)
    assert killed(effects) == ["b-small"]
    stage.confirm(effects)
    stage.release("app-a", *small)
    stage.submit("app-a", [f"{key}-again" for key in small], ONE, node_id="n")
    stage.submit("app-d", [f"d{at:02}" for at in range(31)], ONE)
    stage.submit("app-d", ["d-one", "d-two"], {"f": 6})
    waiting = stage.run_to(44, budget=10_000)
    decisions = [each for each in waiting if isinstance(each, PreemptionDecided) and each.kind == "governor"]
    assert [(each.queue, each.outcome) for each in decisions] == [("root.b", Outcome.COOLING_DOWN)]
    assert sorted(killed(waiting)) == [f"{key}-again" for key in small]
