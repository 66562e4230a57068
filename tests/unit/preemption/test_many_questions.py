"""Asks of many sizes and queues at once are served, whatever their number (preemption.md B.6)."""

from __future__ import annotations

import pytest

from kornel.core.domain.resources import Resources
from tests.owed_cluster import OwedCluster, slices_for

NODES = 1_500
ASKS = 60
FULL = Resources({"vcore": 12_000})
OWED = Resources({"vcore": 12_000 * 2 * ASKS})


def _full_cluster(nodes: int, queues: int, delay_s: int, racks: int = 0) -> OwedCluster:
    cluster = OwedCluster([FULL] * nodes, queues, OWED, delay_s, racks)
    cluster.run((at, FULL, 0) for at in range(nodes))
    return cluster


@pytest.mark.parametrize("delay_s", [1, 30])
@pytest.mark.parametrize(("sizes", "queues"), [(1, 1), (12, 1), (1, 12), (12, 12)])
def test_all_asks_are_served(sizes: int, queues: int, delay_s: int) -> None:
    """The searches for many questions, each of which takes more than one slice, do not throw each other out. With a
    delay of 30 s, the asks also hold room by their age."""
    cluster = _full_cluster(NODES, queues, delay_s)
    cluster.ask("a", [Resources({"vcore": 6_000 + 10 * at}) for at in range(sizes)], queues, ASKS)
    most = slices_for(NODES, sizes * queues, ASKS)
    found = cluster.play(most, until_placed=ASKS)
    assert len(found.placed) == ASKS, f"{found.victims} victims in {found.slices} slices"
    assert cluster.state.law_violations == 0


def test_a_gang_with_many_kinds_of_members_is_served() -> None:
    """A gang with forty kinds of members that all must run in one of two racks preempts beside twelve asking queues."""
    nodes, kinds, queues = 1_250, 40, 12
    cluster = _full_cluster(nodes, queues, 30, racks=2)
    sizes = [Resources({"vcore": 6_100 + 10 * at}) for at in range(kinds)]
    cluster.ask_for_gang(sizes)
    cluster.ask("a", [Resources({"vcore": 6_000})], queues, 2 * queues)
    found = cluster.play(slices_for(nodes, kinds + queues, kinds + 2 * queues), until_placed=kinds + 2 * queues)
    racks = {int(node.removeprefix("n")) % 2 for key, node in found.placed.items() if key.startswith("g")}
    assert len(found.placed) == kinds + 2 * queues, f"{found.victims} victims in {found.slices} slices"
    assert len(racks) == 1
    assert cluster.state.law_violations == 0


def test_a_gang_with_more_kinds_of_members_than_one_step_has_nodes_is_served() -> None:
    """The search for such a gang is not begun anew in each slice."""
    nodes, kinds = 400, 2 * ASKS
    cluster = _full_cluster(nodes, 1, 1, racks=1)
    cluster.ask_for_gang([Resources({"vcore": 6_100 + 10 * at}) for at in range(kinds)])
    found = cluster.play(slices_for(nodes, kinds, kinds), until_placed=kinds)
    assert len(found.placed) == kinds, f"{found.victims} victims in {found.slices} slices"
