"""What metrics tell of devices: by type and state, and what of the free ones is whole."""

from __future__ import annotations

import pytest

from kornel.core.telling.partitions import device_gauges
from kornel.core.telling.partitions.device_gauges import STATES, DeviceGauges
from tests.reading import read
from tests.scenarios.stage import Stage


def look(stage: Stage) -> dict[str, DeviceGauges]:
    found = [gauges for gauges in read(stage.engine, "[rm-1]default", stage.now_ns).gauges(10) if gauges is not None]
    return {gauges.type: gauges for gauges in found[-1].devices}


@pytest.fixture
def stage() -> Stage:
    """Two open nodes and a closed one, with two types of devices and some without a type."""
    stage = Stage()
    stage.play(
        [
            "partition default",
            "queue root.a",
            "node n1 vcore=9 memory=0 devices=g0:A:0:x,g1:A:0:x,g2:A:0:x,g3:B",
            "node n2 vcore=9 memory=0 devices=g0:A:0:x,g1:A:0:x,g2",
            "node n3 vcore=9 memory=0 devices=g0:A,g1:A",
            "node n4 vcore=9 memory=0",
            "run k1 queue=root.a node=n1 want=1 held=g0",
            "run k2 queue=root.a node=n1 want=0.3 held=g1",
            "run k3 queue=root.a node=n2 want=0.5 held=g2",
            "run k4 queue=root.a node=n2 want=0.5 held=g2",
            "run k5 queue=root.a node=n3 want=0.5 held=g0",
            "drain n3",
        ]
    )
    return stage


def test_devices_are_counted_by_type_and_state(stage: Stage) -> None:
    found = look(stage)
    assert {kind: dict(zip(STATES, one.states, strict=True)) for kind, one in found.items()} == {
        "A": {"free": 3, "shared": 1, "full": 1, "closed": 2, "leaving": 0},
        "B": {"free": 1, "shared": 0, "full": 0, "closed": 0, "leaving": 0},
        "unknown": {"free": 0, "shared": 0, "full": 1, "closed": 0, "leaving": 0},
    }
    assert {kind: (one.whole, one.parts, one.linked) for kind, one in found.items()} == {
        "A": (3, 700, 2),
        "B": (1, 0, 0),
        "unknown": (0, 0, 0),
    }


def test_too_many_types_count_together(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_gauges, "MOST_TYPES", 1)
    found = look(stage)
    assert found.keys() == {"A", "others"}
    assert sum(found["others"].states) == 2
