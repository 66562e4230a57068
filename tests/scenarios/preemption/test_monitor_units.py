"""The periodic monitor serves gangs as units: planned whole, their victims go at its pace (preemption.md B.11, E.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec, UpdateAllocations, UpdateApplications
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from tests.scenarios.preemption.monitor_stage import PARTITION, Stage, decided, killed, placed
from tests.scenarios.preemption.test_monitor import AT_ONCE, ONE, guaranteed


def ask_gang(stage: Stage, name: str, queue: str, count: int, size: int = 1, **details: Any) -> list[str]:
    """Has a Hard gang ask for *count* places of *size* in *queue*, and returns the keys of its members."""
    everything = Resources({"f": count * size})
    spec = ApplicationSpec(
        name, f"root.{queue}", PARTITION, user="tester", placeholder_ask=everything, gang_style="Hard",
        placeholder_timeout_ms=3_600_000,
    )  # fmt: skip
    stage.apply(UpdateApplications("rm", (spec,)))
    keys = [f"{name}-{at}" for at in range(1, count + 1)]
    about = {"task_group": "team", "placeholder": True, "created_s": 10, "allow_preempt_other": True, **details}
    members = tuple(AllocationSpec(key, name, PARTITION, Resources({"f": size}), **about) for key in keys)
    stage.apply(UpdateAllocations("rm", members))
    return keys


def full_nodes(count: int, size: int, *, a: int = 0, b: int, **settings: Any) -> Stage:
    """Nodes n1 … of *size*, full of tasks of 1 of queue a (guaranteed *a*); queue b is guaranteed *b*."""
    stage = Stage(guaranteed(a=a, b=b), **settings)
    stage.attach()
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for at in range(1, count + 1):
        stage.node(f"n{at}", {"f": size})
        stage.submit("app-a", [f"a{at}-{k}" for k in range(size)], ONE, node_id=f"n{at}")
    return stage


def run_confirming(stage: Stage, until_s: int) -> tuple[list[tuple[float, int]], list[str]]:
    """Lets time pass and confirms each victim at once. Returns when how many left, and who was placed."""
    left: list[tuple[float, int]] = []
    found: list[str] = []
    while stage.now_s < until_s:
        effects = stage.run_to(stage.now_s + 1)
        gone = killed(effects)
        if gone:
            left.append((stage.now_s, len(gone)))
            effects += stage.confirm(effects)
        found += placed(effects)
    return left, found


@pytest.mark.parametrize("coexist", [False, True])
def test_a_gang_that_is_owed_its_guarantee_is_served_within_a_few_rounds(coexist: bool) -> None:
    """Failed before without coexist: the gang was never served."""
    stage = full_nodes(4, 4, b=8, coexist=coexist, **AT_ONCE)
    keys = ask_gang(stage, "g", "b", 4)
    left, found = run_confirming(stage, 60)
    assert sum(count for _, count in left) == 4
    assert sorted(found) == keys


def test_a_unit_larger_than_the_pace_is_planned_whole_and_its_victims_go_at_the_pace() -> None:
    """16 cores, 8 for the gang, a round selects no more than 4: 2 x 4 go, and no member runs before the last left."""
    stage = full_nodes(4, 4, b=8, per_round=0.25, natural_factor=1)
    keys = ask_gang(stage, "g", "b", 8)
    left, found = run_confirming(stage, 120)
    assert [count for _, count in left] == [4, 4]
    assert left[1][0] - left[0][0] >= 10
    assert sorted(found) == keys


def test_nobody_is_told_for_a_unit_that_would_not_find_all_its_places() -> None:
    """b is owed 4 x 4, and a's guarantee keeps one place back."""
    stage = full_nodes(4, 4, a=4, b=16, **AT_ONCE)
    ask_gang(stage, "g", "b", 4, 4)
    effects = stage.run_to(120)
    assert decided(effects, Outcome.NOTIFIED) == {}
    assert killed(effects) == []


def test_nobody_takes_what_the_first_turn_of_a_unit_left() -> None:
    """Tasks of a and c wait for any core that becomes free; what leaves for the gang is held for it."""
    stage = full_nodes(4, 4, b=8, per_round=0.25, natural_factor=1)
    keys = ask_gang(stage, "g", "b", 8)
    stage.submit("app-a", [f"more-{k}" for k in range(8)], ONE)
    _, found = run_confirming(stage, 120)
    assert sorted(found) == keys


def test_a_unit_whose_rest_stands_no_more_gets_other_places() -> None:
    """After the first turn a node of the rest goes away: its members get places elsewhere."""
    stage = full_nodes(5, 4, b=8, per_round=0.2, natural_factor=1)
    keys = ask_gang(stage, "g", "b", 8)
    while not killed(effects := stage.run_to(stage.now_s + 1)):
        assert stage.now_s < 60
    stage.confirm(effects)
    rest = {place.node.node_id for place in next(iter(stage.state.gangs.proposed.values())).plan.places}
    for node in rest:
        stage.drain(node)
    _, found = run_confirming(stage, stage.now_s + 90)
    assert sorted(found) == keys
    assert not stage.state.gangs.proposed


def test_a_unit_that_is_withdrawn_ends_its_notices() -> None:
    stage = full_nodes(4, 4, b=8, **AT_ONCE)
    keys = ask_gang(stage, "g", "b", 4)
    while not decided(stage.run_to(stage.now_s + 1), Outcome.NOTIFIED):
        assert stage.now_s < 60
    stage.release("g", *keys)
    effects = stage.run_to(stage.now_s + 60)
    assert decided(effects, Outcome.WITHDRAWN)
    assert killed(effects) == []
    assert not stage.state.gangs.proposed


def test_single_asks_and_a_unit_are_served_in_the_same_rounds() -> None:
    stage = full_nodes(6, 4, b=12, **AT_ONCE)
    keys = ask_gang(stage, "g", "b", 4)
    stage.submit("app-b", ["b1", "b2"], ONE)
    _, found = run_confirming(stage, 90)
    assert sorted(found) == sorted([*keys, "b1", "b2"])
