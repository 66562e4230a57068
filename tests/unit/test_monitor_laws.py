"""The laws of the periodic policy refuse what breaks them (preemption.md A.0 row E, A.1 no. 17)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.laws import Law
from core.laws import monitor as monitor_laws
from core.model.allocations import Allocation
from core.policies.preemption.monitor.plan import Doomed, MonitorPlan
from tests.scenarios.preemption.monitor_stage import Stage

SECOND_NS = 10**9


def stage(
    *, owed: int = 2, parent: int = 0, offset: int = 0, policy: str = "", fence: bool = False, asking: bool = True
) -> Stage:
    """p.a holds 4 of 4; p.b, or with a *fence* the fenced q, asks for 2."""
    a_properties = {"priority.offset": str(offset), **({"preemption.policy": policy} if policy else {})}
    queues = {
        "p": {"resources": {"guaranteed": {"f": parent}} if parent else {}},
        "p.b": {},
        "p.a": {"resources": {"guaranteed": {"f": owed}}, "properties": a_properties},
        "q": {"properties": {"preemption.policy": "fence"} if fence else {}},
    }
    built = Stage(queues, enabled=False)
    built.node("n", {"f": 4})
    built.application("app-a", "p.a")
    built.application("app-q", "q")
    built.submit("app-a", ["a0", "a1", "a2", "a3"], {"f": 1}, node_id="n")
    if asking:
        built.submit("app-q", ["q0", "q1"], {"f": 1})
    return built


def plan(built: Stage, *keys: str) -> MonitorPlan:
    """*keys* were notified ten seconds ago in round 1, and this is round 3."""
    victims = tuple(Doomed(built.state.requests[key], 0, 1, 3) for key in keys)
    f = built.state.types.index("f")
    return MonitorPlan(3, 10 * SECOND_NS, 10 * SECOND_NS, victims, {f: 2}, {f: len(keys)})


def broken(built: Stage, judged: MonitorPlan) -> set[Law]:
    return {violation.law for violation in monitor_laws.check(built.state, judged)}


def test_a_lawful_plan_passes() -> None:
    built = stage()
    assert broken(built, plan(built, "a3", "a2")) == set()


def test_notice_must_be_old_enough_and_selected_in_every_round_since() -> None:
    built = stage()
    lawful = plan(built, "a3")
    assert broken(built, replace(lawful, now_ns=10 * SECOND_NS - 1)) == {Law.NOTIFIED}
    skipped = replace(lawful.victims[0], times=2)
    assert broken(built, replace(lawful, victims=(skipped,))) == {Law.NOTIFIED}


def test_a_round_keeps_its_limit() -> None:
    built = stage()
    judged = plan(built, "a3")
    assert broken(built, replace(judged, selected=dict.fromkeys(judged.selected, 3))) == {Law.ROUND_LIMIT}


@pytest.mark.parametrize(("owed", "parent"), [(3, 0), (1, 3)])
def test_no_queue_on_the_path_ends_below_its_guarantee(owed: int, parent: int) -> None:
    built = stage(owed=owed, parent=parent)
    assert broken(built, plan(built, "a3", "a2")) == {Law.GUARANTEE_KEPT}


def test_demand_inside_a_queue_makes_up_for_what_leaves_it() -> None:
    """p is at its guarantee of 4: an ask of p.b comes in where a task of p.a leaves."""
    built = stage(owed=1, parent=4)
    assert broken(built, plan(built, "a3")) == {Law.GUARANTEE_KEPT}
    built.application("app-b", "p.b")
    built.submit("app-b", ["b0"], {"f": 1})
    assert broken(built, plan(built, "a3")) == set()
    assert broken(built, plan(built, "a3", "a2")) == {Law.GUARANTEE_KEPT}


def test_a_leaf_within_its_guarantee_is_left_alone() -> None:
    built = stage(owed=4)
    assert Law.OVER_GUARANTEE in broken(built, plan(built, "a3"))


@pytest.mark.parametrize("how", [{"offset": 1}, {"fence": True}, {"asking": False}])
def test_somebody_elsewhere_must_outrank_the_victim(how: dict[str, Any]) -> None:
    built = stage(**how)
    assert broken(built, plan(built, "a3")) == {Law.PRIORITY}


def _mark_released(victim: Allocation) -> None:
    victim.released = True


def _mark_preempted(victim: Allocation) -> None:
    victim.preempted = True


@pytest.mark.parametrize("spoil", [_mark_released, _mark_preempted])
def test_who_is_leaving_already_is_no_victim(spoil: Callable[[Allocation], None]) -> None:
    built = stage()
    judged = plan(built, "a3")
    spoil(judged.victims[0].allocation)
    assert broken(built, judged) == {Law.ELIGIBLE}


def test_protected_queues_lose_nothing() -> None:
    built = stage(policy="disabled")
    assert broken(built, plan(built, "a3")) == {Law.ELIGIBLE}
