"""The laws of the periodic policy refuse what breaks them (preemption.md A, A.0 row E, A.1 no. 17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kornel.core.domain.ask_places import AskPlace
from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.monitor import laws as monitor_laws
from kornel.core.preemption.monitor.plan import DuePlace, DueVictim, MonitorPlan, Place
from kornel.core.state.asks import reservations
from tests.scenarios.preemption.monitor_stage import Stage

SECOND_NS = 10**9


def stage(
    *, owed: int = 2, parent: int = 0, offset: int = 0, policy: str = "", fence: bool = False, willing: bool = True
) -> Stage:
    """p.a holds 4 of 4; p.b, or with a *fence* the fenced q, asks for 1 twice. q is guaranteed 2."""
    a_properties = {"priority.offset": str(offset), **({"preemption.policy": policy} if policy else {})}
    queues: dict[str, dict[str, Any]] = {
        "p": {"resources": {"guaranteed": {"f": parent}} if parent else {}},
        "p.b": {},
        "p.a": {"resources": {"guaranteed": {"f": owed}}, "properties": a_properties},
        "q": {
            "resources": {"guaranteed": {"f": 2}},
            "properties": {"preemption.policy": "fence"} if fence else {},
        },
    }
    built = Stage(queues, enabled=False)
    built.node("n", {"f": 4})
    built.application("app-a", "p.a")
    built.application("app-q", "q")
    built.submit("app-a", ["a0", "a1", "a2", "a3"], {"f": 1}, node_id="n")
    built.submit("app-q", ["q0", "q1"], {"f": 1}, allow_preempt_other=willing)
    return built


def place(built: Stage, ask: str, *keys: str, node: str = "n") -> DuePlace:
    """*keys* leave for *ask*; they were notified ten seconds ago in round 1, and this is round 3."""
    requests = built.state.requests
    return DuePlace(requests[ask], built.state.nodes[node], tuple(DueVictim(requests[key], 0, 1, 3) for key in keys))


def plan(built: Stage, *keys: str) -> MonitorPlan:
    """Each of *keys* leaves for another ask of q."""
    places = tuple(place(built, f"q{at}", key) for at, key in enumerate(keys))
    return MonitorPlan(3, 10 * SECOND_NS, 10 * SECOND_NS, places)


def broken(built: Stage, judged: MonitorPlan) -> set[Law]:
    return {violation.law for violation in monitor_laws.check(built.state, judged)}


def test_a_lawful_plan_passes() -> None:
    built = stage()
    assert broken(built, plan(built, "a3", "a2")) == set()


def test_notice_must_be_old_enough_and_selected_in_every_round_since() -> None:
    built = stage()
    lawful = plan(built, "a3")
    assert broken(built, replace(lawful, now_ns=10 * SECOND_NS - 1)) == {Law.NOTIFIED}
    skipped = lawful.places[0].victims[0]._replace(times=2)
    places = (lawful.places[0]._replace(victims=(skipped,)),)
    assert broken(built, replace(lawful, places=places)) == {Law.NOTIFIED}


def round_of(built: Stage, limit: int, *keys: str) -> set[Law]:
    """What a round breaks that may select *limit* and selects *keys*, each for another ask."""
    f = built.state.types.index_of("f")
    law = monitor_laws.RoundLimit(built.state.types.names, {f: limit})
    for at, key in enumerate(keys):
        law.count_place(
            Place(built.state.requests[f"q{at}"], built.state.nodes["n"], (built.state.requests[key],)),
        )
    return {violation.law for violation in law.broken}


def test_a_round_keeps_its_limit_but_for_one_place() -> None:
    built = stage()
    assert round_of(built, 2, "a3", "a2") == set()
    assert round_of(built, 1, "a3", "a2") == {Law.ROUND_LIMIT}
    assert round_of(built, 0, "a3") == set()


@pytest.mark.parametrize(("owed", "parent"), [(3, 0), (1, 3)])
def test_no_queue_on_the_path_ends_below_its_guarantee(owed: int, parent: int) -> None:
    built = stage(owed=owed, parent=parent)
    assert broken(built, plan(built, "a3", "a2")) == {Law.GUARANTEE_KEPT}


def test_an_ask_inside_a_queue_makes_up_for_what_leaves_it() -> None:
    """p is at its guarantee of 4: its own ask may come in where a task of p.a leaves, one of q may not."""
    built = stage(owed=1, parent=4)
    assert broken(built, plan(built, "a3")) == {Law.GUARANTEE_KEPT}
    built.application("app-b", "p.b")
    built.submit("app-b", ["b0", "b1"], {"f": 1})
    inside = (place(built, "b0", "a3"), place(built, "b1", "a2"))
    assert broken(built, replace(plan(built), places=inside)) == set()


def test_a_leaf_within_its_guarantee_is_left_alone() -> None:
    built = stage(owed=4)
    assert Law.OVER_GUARANTEE in broken(built, plan(built, "a3"))


@pytest.mark.parametrize(("how", "law"), [({"offset": 1}, Law.PRIORITY), ({"fence": True}, Law.FENCE)])
def test_the_ask_must_outrank_the_victim_and_have_a_way_in(how: dict[str, Any], law: Law) -> None:
    built = stage(**how)
    assert broken(built, plan(built, "a3")) == {law}


def test_an_ask_that_may_not_preempt_is_no_reason() -> None:
    built = stage(willing=False)
    assert broken(built, plan(built, "a3")) == {Law.ENTITLED}


def test_an_ask_whose_queue_is_owed_nothing_is_no_reason() -> None:
    """q holds its two already; in a round for balance that is none of the laws' business."""
    built = stage()
    built.node("m", {"f": 2})
    built.submit("app-q", ["q2", "q3"], {"f": 1}, node_id="m")
    assert broken(built, plan(built, "a3")) == {Law.ENTITLED}
    assert broken(built, replace(plan(built, "a3"), balance=True)) == set()


def test_whoever_leaves_must_be_needed() -> None:
    """Two for an ask of one; or one where there is room already."""
    built = stage()
    two = replace(plan(built), places=(place(built, "q0", "a3", "a2"),))
    assert broken(built, two) == {Law.MINIMAL}
    built.release("app-a", "a1")
    assert broken(built, plan(built, "a3")) == {Law.MINIMAL}


def test_the_ask_must_run_once_they_have_left() -> None:
    built = stage()
    built.submit("app-q", ["big"], {"f": 2})
    assert broken(built, replace(plan(built), places=(place(built, "big", "a3"),))) == {Law.SUFFICIENT}
    assert broken(built, replace(plan(built), places=(place(built, "big", "a3", "a2"),))) == set()


def test_room_that_was_planned_away_is_not_there_twice() -> None:
    """A task of 2 leaves room for two asks of 1, but not for three."""
    built = stage(owed=1)
    built.release("app-a", "a2", "a3")
    built.submit("app-a", ["large"], {"f": 2}, node_id="n")
    built.submit("app-q", ["q2"], {"f": 1})
    fits = (place(built, "q0", "large"), place(built, "q1"))
    assert broken(built, replace(plan(built), places=fits)) == set()
    assert Law.SUFFICIENT in broken(built, replace(plan(built), places=(*fits, place(built, "q2"))))


def test_what_another_ask_has_reserved_is_not_there_either() -> None:
    built = stage()
    reservations.reserve_node(built.state, built.state.requests["q1"], built.state.nodes["n"], 0)
    built.release("app-a", "a0")
    assert broken(built, plan(built, "a3")) == set()


def test_what_victims_leave_over_goes_to_preemptors_before_one_that_has_waited_long() -> None:
    """A task of 2 leaves room for two asks of 1 (E.5 no. 3), although 2 are held by age on the node: such claims come
    after those of preemptors (B.7). Free room that is held by age stays held."""
    built = stage(owed=1)
    built.release("app-a", "a2", "a3")
    built.submit("app-a", ["large"], {"f": 2}, node_id="n")
    built.submit("app-q", ["q2", "old"], {"f": 1})
    reservations.reserve_node(built.state, built.state.requests["old"], built.state.nodes["n"], 0, by_age=True)
    fits = (place(built, "q0", "large"), place(built, "q1"))
    assert broken(built, replace(plan(built), places=fits)) == set()
    assert Law.SUFFICIENT in broken(built, replace(plan(built), places=(*fits, place(built, "q2"))))
    built.release("app-a", "a1")
    assert broken(built, replace(plan(built), places=fits)) == set()
    assert Law.SUFFICIENT in broken(built, replace(plan(built), places=(*fits, place(built, "q2"))))


def test_nothing_is_taken_on_a_node_that_takes_no_asks_or_was_refused() -> None:
    built = stage()
    built.state.requests["q0"].refused = {"n": "no"}
    assert broken(built, plan(built, "a3")) == {Law.NODE_USABLE}
    built.state.requests["q0"].refused = None
    built.state.nodes["n"].schedulable = False
    assert broken(built, plan(built, "a3")) == {Law.NODE_USABLE}


def test_a_victim_elsewhere_makes_no_room_on_the_node() -> None:
    built = stage()
    built.node("m", {"f": 1})
    built.submit("app-a", ["a4"], {"f": 1}, node_id="m")
    assert Law.ON_NODE in broken(built, plan(built, "a4"))


class Everybody:
    """A choice from everybody, or from *some*, of whom the pace lets at most *most* go together."""

    def __init__(self, some: Sequence[str] = (), most: int = 9) -> None:
        self.some = some
        self.most = most

    def gives_amount(self, task: Allocation, t: int) -> bool:
        return not self.some or task.key in self.some

    def allows_loss(self, tasks: Sequence[Allocation]) -> bool:
        return len(tasks) <= self.most


def chosen(built: Stage, *keys: str, ask: str = "q0", choice: Everybody | None = None) -> set[Law]:
    """What a place breaks for which *keys* leave, where a1, a2 and a3 are looked at before a0, which opted out."""
    requests = built.state.requests
    judged = Place(requests[ask], built.state.nodes["n"], tuple([requests[key] for key in keys]))
    order = [requests[key] for key in ("a1", "a2", "a3", "a0")]
    law = monitor_laws.MildestPlaces(built.state)
    return {violation.law for violation in law.judge_place((), judged, order, choice or Everybody())}


def with_reluctant(owed: int = 2) -> Stage:
    """As :func:`stage`, with a0 opted out."""
    built = stage(owed=owed)
    built.release("app-a", "a0")
    built.submit("app-a", ["a0"], {"f": 1}, node_id="n", allow_preempt_self=False)
    return built


def test_nobody_leaves_where_a_milder_class_would_do() -> None:
    built = with_reluctant()
    assert chosen(built, "a1") == set()
    assert chosen(built, "a0") == {Law.MILDEST}
    assert chosen(built, "a2") == {Law.MILDEST}
    assert chosen(built, "a0", choice=Everybody(["a0"])) == set()
    assert chosen(built, "a0", choice=Everybody(most=0)) == set()


def test_a_class_that_is_not_enough_may_be_left() -> None:
    """Three of the four are ordinary, and the ask wants all four; or a guarantee keeps everybody."""
    built = with_reluctant(owed=0)
    built.submit("app-q", ["all"], {"f": 4})
    assert chosen(built, "a1", "a2", "a3", "a0", ask="all") == set()
    assert chosen(with_reluctant(owed=4), "a0") == set()


def _mark_released(victim: Allocation) -> None:
    victim.place = AskPlace.RELEASED


def _mark_preempted(victim: Allocation) -> None:
    victim.place = AskPlace.PREEMPTED


@pytest.mark.parametrize("spoil", [_mark_released, _mark_preempted])
def test_who_is_leaving_already_is_no_victim(spoil: Callable[[Allocation], None]) -> None:
    built = stage()
    judged = plan(built, "a3")
    spoil(judged.places[0].victims[0].allocation)
    assert Law.ELIGIBLE in broken(built, judged)


def test_protected_queues_lose_nothing() -> None:
    built = stage(policy="disabled")
    assert broken(built, plan(built, "a3")) == {Law.ELIGIBLE}
