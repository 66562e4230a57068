"""What metrics tell of domains: whole levels from the outermost on, and never more than there is room for."""

from __future__ import annotations

import pytest

from kornel.core.telling.partitions import partition_gauges
from kornel.core.telling.partitions.partition_gauges import PartitionGauges
from tests.reading import read
from tests.scenarios.stage import Stage

ZONES, RACKS = 2, 3


@pytest.fixture
def stage() -> Stage:
    """Two zones with three racks each, and two nodes in each rack."""
    stage = Stage()
    stage.play(
        [
            "partition default topology=zone,rack",
            "queue root.a",
            *(
                f"node n{zone}{rack}{n} vcore=4 memory=0 attr.zone=z{zone} attr.rack=r{rack}"
                for zone in range(ZONES)
                for rack in range(RACKS)
                for n in range(2)
            ),
            "run k queue=root.a node=n000 vcore=3",
            "drain n010",
        ]
    )
    return stage


def look(stage: Stage) -> PartitionGauges:
    found = [gauges for gauges in read(stage.engine, "[rm-1]default", stage.now_ns).gauges(10) if gauges is not None]
    return found[-1]


def test_domains_have_what_their_nodes_have(stage: Stage) -> None:
    gauges = look(stage)
    vcore = gauges.types.index("vcore")
    found = {(each.level, each.name): (each.capacity[vcore], each.free[vcore]) for each in gauges.domains}
    assert found["zone", "z0"] == (24, 17), "three are taken, and one node is drained"
    assert [found["rack", f"z0/r{rack}"] for rack in range(RACKS)] == [(8, 5), (8, 4), (8, 8)]
    assert len(found) == ZONES + ZONES * RACKS
    assert gauges.domains_omitted == 0


@pytest.mark.parametrize(("room", "shown"), [(8, 8), (7, 2), (2, 2), (1, 0)])
def test_levels_that_would_be_too_many_are_left_out_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, room: int, shown: int
) -> None:
    types = len(look(stage).types)
    monkeypatch.setattr(partition_gauges, "MOST_DOMAIN_AMOUNTS", room * types)
    gauges = look(stage)
    assert (len(gauges.domains), gauges.domains_omitted) == (shown, 8 - shown)
