"""Stories of the periodic policy through the whole engine: selectors, two phases, contracts, coexistence.

Cases with a number are those of preemption.md J.5.
"""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.commands import (
    AnswerCallbacks,
    PreemptionNoticeAnswer,
    ReleaseSpec,
    UpdateAllocations,
    UpdateConfiguration,
)
from kornel.core.domain.effects import Effect, PreemptionDecided, PreemptionNotice, PreemptionNoticeWithdrawn, Released
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.state.asks import reservations
from tests.scenarios.preemption.monitor_stage import PARTITION, START_NS, Stage, decided, killed, placed

AT_ONCE: dict[str, Any] = {"per_round": 1, "natural_factor": 1}
ONE = {"f": 1}


def guaranteed(**amounts: int) -> dict[str, dict[str, Any]]:
    return {name: {"resources": {"guaranteed": {"f": amount}} if amount else {}} for name, amount in amounts.items()}


def patient(queues: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """*queues* whose asks do not preempt by themselves, old as they are."""
    return {"root": {"properties": {"preemption.delay": "1000h"}}, **queues}


def two_queues(*, delayed: bool = False, **settings: Any) -> Stage:
    """a holds the whole cluster of 100, b is owed half of it. *delayed*: asks do not preempt by themselves so soon."""
    queues = guaranteed(a=50, b=50)
    stage = Stage(patient(queues) if delayed else queues, **{**AT_ONCE, **settings})
    stage.node("n", {"f": 100})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", [f"a{at:03}" for at in range(100)], ONE, node_id="n")
    return stage


def notices(effects: list[Effect]) -> list[PreemptionNotice]:
    return [effect for effect in effects if isinstance(effect, PreemptionNotice)]


def withdrawn(effects: list[Effect]) -> list[str]:
    return [key for effect in effects if isinstance(effect, PreemptionNoticeWithdrawn) for key in effect.keys]


@pytest.mark.parametrize("coexist", [False, True])
def test_two_queues_share_once_the_second_wants_its_half(coexist: bool) -> None:
    """The seed's example: with the monitor both end at what they were promised, and it stops there."""
    stage = two_queues(natural_factor=0.2, per_round=0.1, dead_zone=0, coexist=coexist)
    stage.submit("app-b", [f"b{at}" for at in range(60)], ONE)
    started: list[str] = []
    for second in range(5, 900, 5):
        effects = stage.run_to(second)
        stage.confirm(effects)
        started += placed(stage.run_to(second))
    f = stage.state.types.index_of("f")
    used = {name: stage.state.queues[f"root.{name}"].used[f] for name in ("a", "b")}
    assert used == {"a": 50, "b": 50}
    assert len(started) == 50
    assert decided(stage.run_to(1000), Outcome.NOTIFIED) == {}


def test_two_queues_without_the_monitor_stay_as_they_are() -> None:
    """The seed's example the other way: nobody who may not preempt for itself gets anything."""
    stage = two_queues(enabled=False)
    stage.submit("app-b", [f"b{at}" for at in range(60)], ONE, allow_preempt_other=False)
    effects = stage.run_to(900)
    assert killed(effects) == placed(effects) == []


def test_y27_newest_applications_first_and_their_originators_spared() -> None:
    stage = Stage(guaranteed(a=50, b=50), **AT_ONCE)
    stage.node("n", {"f": 100})
    for number in (1, 2, 3, 4):
        stage.application(f"app{number}", "a")
        stage.submit(f"app{number}", [f"{number}-driver"], ONE, node_id="n", originator=True)
        stage.submit(f"app{number}", [f"{number}-{at:02}" for at in range(24)], ONE, node_id="n")
    stage.application("app-b", "b")
    stage.submit("app-b", [f"b{at}" for at in range(50)], ONE)
    chosen = decided(stage.run_to(5), Outcome.NOTIFIED)["a"]
    counts = [sum(key.startswith(f"{number}-") for key in chosen) for number in (4, 3, 2, 1)]
    assert counts == [24, 24, 2, 0]
    assert not any("driver" in key for key in chosen)
    assert [key for key in chosen if key.startswith("2-")] == ["2-23", "2-22"]


def test_y28_originators_go_last() -> None:
    stage = Stage(guaranteed(a=10, b=90), **AT_ONCE)
    stage.node("n", {"f": 100})
    for number in (1, 2, 3, 4):
        stage.application(f"app{number}", "a")
        stage.submit(f"app{number}", [f"{number}-driver"], {"f": 5}, node_id="n", originator=True)
        stage.submit(f"app{number}", [f"{number}-{at}" for at in range(4)], {"f": 5}, node_id="n")
    stage.application("app-b", "b")
    stage.submit("app-b", [f"b{at}" for at in range(90)], ONE)
    chosen = decided(stage.run_to(5), Outcome.NOTIFIED)["a"]
    counts = [sum(key.startswith(f"{number}-") for key in chosen) for number in (4, 3, 2, 1)]
    assert counts == [5, 5, 4, 4]


@pytest.mark.parametrize(("reserve", "expected"), [(0, 4), (0.5, 2)])
def test_originators_within_the_reserve_are_spared(reserve: float, expected: int) -> None:
    """Half of the guarantee of 4 in originators stays, although nobody else may be taken."""
    stage = Stage(guaranteed(a=4, b=4), **AT_ONCE, originator_reserve=reserve)
    stage.node("n", {"f": 8})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", [f"important-{at}" for at in range(4)], ONE, node_id="n", priority=9)
    stage.submit("app-a", [f"driver-{at}" for at in range(4)], ONE, node_id="n", originator=True)
    stage.submit("app-b", [f"b{at}" for at in range(4)], ONE)
    chosen = decided(stage.run_to(5), Outcome.NOTIFIED)["a"]
    assert chosen == [f"driver-{at}" for at in (3, 2, 1, 0)][:expected]


@pytest.mark.parametrize(("size", "expected"), [(2, ["large"]), (3, [])])
def test_no_originator_goes_that_the_reserve_needs(size: int, expected: list[str]) -> None:
    """Of originators of 4 together, 2 stay. Failed before: the last to go might be larger than what is beyond them."""
    stage = Stage(guaranteed(a=4, b=4), **AT_ONCE, originator_reserve=0.5)
    stage.node("n", {"f": 8})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", ["important"], {"f": 4}, node_id="n", priority=9)
    stage.submit("app-a", ["small"], {"f": 4 - size}, node_id="n", originator=True, priority=9)
    stage.submit("app-a", ["large"], {"f": size}, node_id="n", originator=True)
    stage.submit("app-b", ["b"], {"f": size})
    assert decided(stage.run_to(5), Outcome.NOTIFIED).get("a", []) == expected


def test_opted_out_tasks_go_before_originators_and_after_all_others() -> None:
    stage = Stage(guaranteed(a=1, b=3), **AT_ONCE, dead_zone=0)
    stage.node("n", {"f": 4})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", ["plain"], ONE, node_id="n")
    stage.submit("app-a", ["unwilling"], ONE, node_id="n", allow_preempt_self=False)
    stage.submit("app-a", ["driver"], ONE, node_id="n", originator=True)
    stage.submit("app-a", ["both"], ONE, node_id="n", originator=True, allow_preempt_self=False)
    stage.submit("app-b", ["b1", "b2", "b3"], ONE)
    assert decided(stage.run_to(5), Outcome.NOTIFIED) == {"a": ["plain", "unwilling", "driver"]}


def y4() -> Stage:
    stage = Stage(patient(guaranteed(a=40, b=40, c=20)), **AT_ONCE)
    stage.node("n", {"f": 100})
    for name, count in (("a", 0), ("b", 60), ("c", 40)):
        stage.application(f"app-{name}", name)
        stage.submit(f"app-{name}", [f"{name}{at:02}" for at in range(count)], ONE, node_id="n")
    stage.submit("app-a", [f"ask{at}" for at in range(10)], ONE)
    return stage


def test_y29_notice_then_nothing_then_kill() -> None:
    """10 notices in the first round, nothing in the second, and the same ten go in the third."""
    stage = y4()
    stage.attach()
    first = stage.run_to(5)
    (notice,) = notices(first)
    assert len(notice.at_risk) == 10
    assert (notice.need, notice.deadline_ns) == (Resources({"f": 10}), START_NS + 15 * 10**9)
    assert notices(stage.run_to(10)) == killed(stage.effects) == []
    third = stage.run_to(15)
    assert sorted(killed(third)) == sorted(notice.at_risk)
    messages = {effect.message for effect in third if isinstance(effect, Released)}
    assert messages == {"preempted by the monitor in round 3: queue root.c holds more than its share"}
    stage.confirm(third)
    assert len(placed(stage.run_to(16))) == 10


def test_y29_demand_that_vanishes_withdraws_the_notices() -> None:
    stage = y4()
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    stage.apply(
        UpdateAllocations("rm", releases=tuple(ReleaseSpec(PARTITION, "app-a", f"ask{at}") for at in range(10)))
    )
    effects = stage.run_to(10)
    assert sorted(withdrawn(effects)) == sorted(notice.at_risk)
    assert decided(effects, Outcome.WITHDRAWN) == {"c": list(notice.at_risk)}
    assert killed(stage.run_to(60)) == []


def test_selected_again_after_a_withdrawal_is_notified_again() -> None:
    """K19: the wait starts anew; nobody goes on the strength of an old notice."""
    stage = y4()
    stage.run_to(5)
    stage.release("app-a", *[f"ask{at}" for at in range(10)])
    stage.run_to(10)
    stage.submit("app-a", [f"again{at}" for at in range(10)], ONE)
    effects = stage.run_to(24)
    assert len(decided(effects, Outcome.NOTIFIED)["c"]) == 10
    assert killed(effects) == []
    assert len(killed(stage.run_to(25))) == 10


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


def test_y33_a_shrinks_by_a_fifth_of_what_is_left_each_turn() -> None:
    """10, 8, 7, 5, 4, 4, 3, 2, 2 and then nothing: the dead zone of 55 is reached."""
    stage = two_queues(natural_factor=0.2, interval_ms=1000, max_wait_ms=1000)
    stage.submit("app-b", [f"b{at}" for at in range(60)], ONE)
    turns = []
    for second in range(1, 30):
        effects = stage.run_to(second)
        if killed(effects):
            turns.append(len(killed(effects)))
        stage.confirm(effects)
        stage.run_to(second)
    assert turns == [10, 8, 7, 5, 4, 4, 3, 2, 2]


def test_y44_the_last_container_does_not_break_the_guarantee() -> None:
    """13 held, 10 guaranteed, containers of 2: one goes; the second would leave 9."""
    stage = Stage(guaranteed(a=10, b=10), **AT_ONCE)
    stage.node("n", {"f": 20})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", ["a-odd"], ONE, node_id="n", required_node="n")
    stage.submit("app-a", [f"a{at}" for at in range(6)], {"f": 2}, node_id="n")
    stage.submit("app-b", ["b-old"], {"f": 7}, node_id="n")
    stage.submit("app-b", ["b1", "b2", "b3"], ONE)
    assert decided(stage.run_to(5), Outcome.NOTIFIED) == {"a": ["a5"]}


def test_law_6_protects_what_is_more_important_than_all_demand() -> None:
    stage = two_queues()
    stage.application("app-urgent", "a")
    stage.release("app-a", *[f"a{at:03}" for at in range(60)])
    stage.submit("app-urgent", [f"u{at:03}" for at in range(60)], ONE, node_id="n", priority=5)
    stage.submit("app-b", [f"b{at}" for at in range(60)], ONE, priority=4)
    chosen = decided(stage.run_to(5), Outcome.NOTIFIED)["a"]
    assert len(chosen) == 40
    assert all(key.startswith("a") for key in chosen)


def test_negotiable_need_is_met_by_other_allocations() -> None:
    """What the application releases instead counts: the listed ones are spared, and told so."""
    stage = y4()
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    instead = [f"c{at:02}" for at in range(40) if f"c{at:02}" not in notice.at_risk][:10]
    stage.release("app-c", *instead)
    effects = stage.run_to(10)
    assert sorted(withdrawn(effects)) == sorted(notice.at_risk)
    assert killed(stage.run_to(60)) == []


def test_negotiable_need_met_in_part_spares_as_many() -> None:
    stage = y4()
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    others = [f"c{at:02}" for at in range(40) if f"c{at:02}" not in notice.at_risk]
    stage.release("app-c", *others[:4])
    stage.run_to(14)
    assert len(killed(stage.run_to(15))) == 6


def test_strict_contract_takes_the_listed_ones_whatever_else_is_released() -> None:
    """As long as they are selected: other releases lower what the queue gives up only in number."""
    stage = y4()
    stage.apply(UpdateConfiguration("rm", stage.configuration(**AT_ONCE, contract="strict")))
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    assert len(notice.strict) == 10
    assert (notice.at_risk, notice.need) == ((), None)
    answer = PreemptionNoticeAnswer(notice.notice, True, ("c00",), ((notice.strict[0], START_NS),))
    stage.apply(AnswerCallbacks("rm", notices=(answer,)))
    assert sorted(killed(stage.run_to(15))) == sorted(notice.strict)


def test_an_application_names_others_to_be_taken() -> None:
    """Same deadline, other victims, once a round has seen that they would do; keys of strangers are ignored."""
    stage = y4()
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    answer = PreemptionNoticeAnswer(notice.notice, True, ("b00", "c00", "c01"))
    assert withdrawn(stage.apply(AnswerCallbacks("rm", notices=(answer,)))) == []
    spared = withdrawn(stage.run_to(10))
    assert set(spared) == set(notice.at_risk[-2:])
    expected = {*notice.at_risk, "c00", "c01"} - set(spared)
    assert set(killed(stage.run_to(15))) == expected


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


def test_a_shim_that_attaches_later_hears_what_still_stands() -> None:
    stage = y4()
    assert notices(stage.run_to(5)) == []
    stage.attach()
    (notice,) = notices(stage.effects)
    assert len(notice.at_risk) == 10


def test_observing_reports_a_change_once_and_sends_nothing() -> None:
    stage = two_queues(observe_only=True, delayed=True)
    stage.attach()
    stage.submit("app-b", [f"b{at}" for at in range(60)], ONE)
    effects = stage.run_to(60)
    assert [len(e.victims) for e in effects if isinstance(e, PreemptionDecided)] == [50]
    assert notices(effects) == killed(effects) == []


def test_switching_off_withdraws_everything() -> None:
    stage = y4()
    stage.attach()
    (notice,) = notices(stage.run_to(5))
    gone = stage.apply(UpdateConfiguration("rm", stage.configuration(enabled=False)))
    assert sorted(withdrawn(gone)) == sorted(notice.at_risk)
    assert killed(stage.run_to(60)) == []


def test_an_unrelated_configuration_change_does_not_disturb_a_notice() -> None:
    stage = y4()
    stage.run_to(5)
    stage.apply(UpdateConfiguration("rm", stage.configuration(**AT_ONCE, coexist=True)))
    assert len(killed(stage.run_to(15))) == 10


@pytest.mark.parametrize(
    ("settings", "victims_for_an_ask"),
    [({}, 0), ({"coexist": True}, 1), ({"observe_only": True}, 1), ({"enabled": False}, 1)],
)
def test_guarantee_driven_preemption_rests_beside_the_monitor(
    settings: dict[str, Any], victims_for_an_ask: int
) -> None:
    """H: exclusive unless told otherwise; observing only is no reason to rest."""
    stage = two_queues(interval_ms=3_600_000, **settings)
    stage.submit("app-b", ["b0"], ONE, allow_preempt_other=True)
    assert len(killed(stage.run_to(60))) == victims_for_an_ask


def test_claims_of_guarantee_driven_preemption_are_no_demand() -> None:
    """H: what an ask has already preempted for is not taken a second time."""
    stage = two_queues(coexist=True, interval_ms=60_000, dead_zone=0)
    stage.submit("app-b", ["b0"], ONE, allow_preempt_other=True)
    first = stage.run_to(60)
    assert len(killed(first)) == 1
    assert not [e for e in stage.run_to(130) if isinstance(e, PreemptionDecided) and e.kind == "monitor"]


def test_gang_placeholders_may_be_selected_and_required_nodes_never() -> None:
    stage = Stage(guaranteed(a=1, b=3), **AT_ONCE, dead_zone=0)
    stage.node("n", {"f": 4})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", ["older"], ONE, node_id="n")
    stage.submit("app-a", ["daemon-1", "daemon-2"], ONE, node_id="n", required_node="n")
    stage.submit("app-a", ["youngest"], ONE, node_id="n")
    stage.submit("app-b", ["b1", "b2", "b3"], ONE)
    assert decided(stage.run_to(5), Outcome.NOTIFIED) == {"a": ["youngest", "older"]}


def test_balance_has_a_wait_of_its_own() -> None:
    """Rebalancing queues that have theirs gives five minutes' notice."""
    stage = Stage(guaranteed(a=40, b=40, c=20), **AT_ONCE, balance=True)
    stage.attach()
    stage.node("n", {"f": 100})
    for name, count in (("a", 55), ("b", 45)):
        stage.application(f"app-{name}", name)
        stage.submit(f"app-{name}", [f"{name}{at:02}" for at in range(count)], ONE, node_id="n")
        stage.submit(f"app-{name}", [f"{name}-ask{at:02}" for at in range(10)], ONE)
    (notice,) = notices(stage.run_to(5))
    assert notice.deadline_ns == START_NS + 305 * 10**9
    assert killed(stage.run_to(304)) == []
    assert len(killed(stage.run_to(305))) == 5


def test_queue_priority_frees_a_reserved_node_for_the_more_important_queue() -> None:
    """An ask that waits for its node longer than the timeout takes from a less important queue there."""
    queues = guaranteed(high=4, low=4)
    queues["high"]["properties"] = {"priority.offset": "10"}
    stage = Stage(
        queues,
        **AT_ONCE,
        queue_priority=True,
        queue_priority_wait_ms=11_000,
        dead_zone=10,
        reservation_delay_ns=2 * 10**9,
    )
    stage.node("n1", {"f": 4})
    stage.node("n2", {"f": 4})
    stage.node("n3", {"f": 4}, draining=True)
    stage.application("app-high", "high")
    stage.application("app-low", "low")
    stage.submit("app-low", ["l1", "l2", "l3"], ONE, node_id="n1")
    stage.submit("app-low", ["l4", "l5", "l6"], ONE, node_id="n2")
    stage.submit("app-low", ["l7"], ONE, node_id="n2", originator=True)
    stage.submit("app-high", ["big"], {"f": 3})
    assert decided(stage.run_to(10), Outcome.NOTIFIED) == {}
    assert decided(stage.run_to(15), Outcome.NOTIFIED) == {"low": ["l3", "l2"]}
    effects = stage.run_to(25)
    assert sorted(killed(effects)) == ["l2", "l3"]
    stage.confirm(effects)
    assert placed(stage.run_to(26)) == ["big"]


def spent(**used: int) -> Stage:
    """t is guaranteed 8, of which a has 3, b 1 and c nothing of its own; x is guaranteed 1, v nothing; all of 12 is
    used."""
    paths = {"t": 8, "t.a": 3, "t.b": 1, "t.c": 0, "x": 1, "v": 0}
    stage = Stage(patient(guaranteed(**paths)), **AT_ONCE)
    stage.node("n", {"f": 12})
    for path in ("t.a", "t.b", "t.c", "x", "v"):
        stage.application(path, path)
        name = path.removeprefix("t.")
        stage.submit(path, [f"{name}{at}" for at in range(used.get(name, 0))], ONE, node_id="n")
    return stage


def ends_within(stage: Stage, seconds: int) -> tuple[list[str], list[str]]:
    """Who goes in *seconds*, victims leaving at once, and what is placed."""
    before = len(stage.effects)
    for second in range(seconds):
        stage.confirm(stage.run_to(second))
    return killed(stage.effects[before:]), placed(stage.effects[before:])


def test_y50_an_ask_that_law_4_refuses_has_no_part_in_the_shares() -> None:
    """Issue 30, row 11: c asks for more of what t has used up already; x, which is owed one, is served."""
    stage = spent(a=3, b=4, c=2, v=3)
    stage.submit("t.c", ["more"], {"f": 2})
    stage.submit("x", ["owed"], ONE)
    assert ends_within(stage, 300) == (["v2"], ["owed"])


def test_y51_those_inside_a_spent_guarantee_make_room_for_each_other() -> None:
    stage = spent(a=3, b=5, v=4)
    stage.submit("t.c", ["swap"], ONE)
    assert ends_within(stage, 300) == (["b4"], ["swap"])


def test_law_4_counts_what_the_round_has_planned_already() -> None:
    """The first ask of c makes t hold what it is guaranteed; the others go in for tasks of t."""
    stage = spent(a=3, b=4, v=5)
    stage.submit("t.c", ["c1", "c2", "c3"], ONE)
    assert ends_within(stage, 300) == (["v4", "b3", "b2"], ["c1", "c2", "c3"])


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
