"""The search for a domain with victims, with the bounds that let it pass over domains, against a search of all of them.

Without the bounds, each domain is searched, and every node of it is looked at for each member. Both have to come to the
same plan or to the same explanation.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.model.gang_units import UnitId
from kornel.core.preemption.guarantee.gangs import search as gang_search
from kornel.core.preemption.guarantee.gangs.domains import Way
from kornel.core.preemption.guarantee.gangs.reach import Reach, WayBound
from kornel.core.preemption.guarantee.search.planner import Within
from tests.examples import scale_examples
from tests.properties.gang_worlds import PARTITION, GangWorld, Play, Settled, random_domain_world


class _Boundless(Reach):
    """Bounds that never let a domain be passed over."""

    def look_at(self, way: Way, most: int) -> int:
        self.bound = WayBound(2**30, (False, False, False, 0, -(2**80)))
        return 1


def _search_every_node(*of_member: Any) -> Within:
    return Within(*of_member)._replace(near=None)


def _play(world: GangWorld) -> tuple[Settled, str]:
    """Returns what came of *world*, and what the gang is told. No other search takes over where few are concerned."""
    play = Play(world)
    with patch.object(gang_search, "is_small", return_value=False):
        settled = play.settle()
    state = play.engine.partition(PARTITION)
    assert state is not None
    application = state.applications.get(world.unit.application)
    unit = None if application is None else UnitId(application, "").find_unit()
    return settled, str(getattr(unit, "refusal", ""))


def _compare(world: GangWorld) -> None:
    found, told = _play(world)
    with patch.object(gang_search, "Reach", _Boundless), patch.object(gang_search, "Within", _search_every_node):
        expected, expected_told = _play(world)
    assert found == expected, world
    assert told == expected_told, world


@given(st.integers(0, 2**32))
@settings(max_examples=scale_examples(1_000), deadline=None)
def test_bounds_never_change_the_plan_or_the_explanation(seed: int) -> None:
    world = random_domain_world(seed, nodes_up_to=9, tasks_up_to=30)
    if world.racks:
        _compare(world)
