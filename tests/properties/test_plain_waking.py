"""Waking few gives what waking everybody gives (tests/oracles/plain_waking.py): the same decisions, in the same order
and at the same times.

What differs today is listed, so that whoever changes waking sees what gets better or worse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kornel.core.state.waiting import waking
from tests.examples import mark_rest_long
from tests.properties import waking_worlds
from tests.properties.claims.random_worlds import random_world
from tests.properties.waking_worlds import compare_episode, compare_scenario, compare_world
from tests.scenarios.language import load
from tests.scenarios.test_scenarios import list_files

WORLDS: Final = 200
WORLDS_IN_BRIEF: Final = 50
PARTS: Final = 6
WORLDS_THAT_DIFFER: Final = frozenset({780, 883, 957})
"""In 883, a gang that plain waking tries in vain keeps a holder of its leaf waiting meanwhile."""
EPISODES: Final = 20
STEPS: Final = 100
EPISODES_THAT_DIFFER: Final = frozenset({19})


SCENARIOS_THAT_DIFFER: Final = frozenset(
    {"a gang saves below a max when another has taken a part of what came free at the same moment"}
)
"""Scenarios in which one who was woken begins to save as soon as too little is left: plainly woken, it waits for its
turn, and only those that wait can be chosen."""


@pytest.mark.parametrize("first", mark_rest_long((0, WORLDS_IN_BRIEF, *range(WORLDS, PARTS * WORLDS, WORLDS))))
def test_worlds_of_claims(first: int) -> None:
    """Limits, claims, gangs, priorities, preemption and churn meet in small worlds."""
    numbers = range(first, WORLDS_IN_BRIEF if first == 0 else WORLDS * (first // WORLDS + 1))
    differ = {number for number in numbers if compare_world(random_world(number)) is not None}
    assert differ <= WORLDS_THAT_DIFFER


@pytest.mark.parametrize("episodes", mark_rest_long((range(5), range(5, EPISODES))), ids=str)
def test_episodes_of_the_random_machine(episodes: range) -> None:
    differ = {number for number in episodes if compare_episode(f"waking/{number}", STEPS) is not None}
    assert differ <= EPISODES_THAT_DIFFER


@pytest.mark.parametrize("path", list_files("claims", "limits-headroom", "reservations", "preemption/order_of_owed"))
def test_scenarios(path: Path) -> None:
    differ = {scenario.title for scenario in load(path) if compare_scenario(scenario) is not None}
    assert differ <= SCENARIOS_THAT_DIFFER


def test_forgotten_waiters_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that wakes nobody when a node has room again differs in many worlds."""
    monkeypatch.setattr(waking, "wake_for_node", lambda state, node: None)
    found = [compare_world(random_world(number)) for number in range(20)]
    assert sum(each is not None for each in found) > 5


def test_a_difference_is_told() -> None:
    """Of two streams of decisions, the first that differ are told, also if one stream is longer."""
    streams = iter([[(1, "a"), (2, "b")], [(1, "a")]])
    assert waking_worlds.compare(lambda: next(streams)) == (1, (2, "b"), None)
