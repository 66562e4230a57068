"""What would become of asks and gangs that want devices: what the engine does with such asks then, and nothing is
changed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    CommandRefused,
    UpdateAllocations,
    UpdateApplications,
)
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, DeviceSpec, read_wants, want_tags
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.telling.what_if.supposition import Forecast, SupposeAsk
from tests import supposing
from tests.driven_core import DrivenCore
from tests.reading import read
from tests.request_texts import write_devices

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
NOW: Final = 1_000 * SECOND
CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 30s}
        queues:
          - {name: owed, resources: {guaranteed: {vcore: 20}}}
          - {name: other}
"""
ONE: Final = Resources({"vcore": 1_000})


@pytest.fixture
def engine() -> Engine:
    """Two nodes with room for everything but devices: two of three are held on the first, and all on the second."""
    core = DrivenCore(CONFIG, now_ns=NOW)
    devices = write_devices(DeviceSpec(f"g{at}", link="x" if at else "") for at in range(3))
    for n in range(2):
        core.node(f"n{n}", {"vcore": 90_000}, attributes=((DEVICES_ATTRIBUTE, devices),))
    core.application("other", "root.other")
    for key, node, held, wants in (
        ("t0", "n0", "g1", {"count": 1}),
        ("t1", "n0", "g2", {"fraction": "0.4"}),
        ("t2", "n1", "g0,g1", {"count": 2}),
        ("t3", "n1", "g2", {"count": 1}),
    ):
        tags = (*want_tags(**wants), ("kornel.gpu.devices", held))
        core.submit("other", [key], ONE, node_id=node, tags=tags, devices=read_wants(tags))
    return core.engine


def suppose(engine: Engine, asks: int = 1, *, gang: bool = False, queue: str = "owed", **wants: Any) -> Forecast:
    question = SupposeAsk(ONE, f"root.{queue}", asks=asks, user="bob", gang=gang, tags=want_tags(**wants))
    return supposing.suppose(read(engine, PARTITION, NOW), question)


def do_it(engine: Engine, asks: int = 1, *, gang: bool = False, queue: str = "owed", **wants: Any) -> list[Effect]:
    """Really asks for the same."""
    asked = Resources({"vcore": 1_000 * asks}) if gang else None
    application = ApplicationSpec("a", f"root.{queue}", PARTITION, "bob", placeholder_ask=asked, gang_style="Hard")
    engine.apply(UpdateApplications("rm", (application,)), NOW)
    tags = want_tags(**wants)
    specs = (
        AllocationSpec(
            f"what-if-{at + 1}", "a", PARTITION, ONE, task_group="g" if gang else "", placeholder=gang,
            allow_preempt_other=True, tags=tags, devices=read_wants(tags),
        )
        for at in range(asks)
    )  # fmt: skip
    engine.apply(UpdateAllocations("rm", tuple(specs)), NOW)
    return [effect for at in (0, 1, 40, 41, 42) for effect in engine.cycle(NOW + at * SECOND, 1_000).effects]


@pytest.mark.parametrize(
    ("asks", "gang", "wants", "placed", "victims"),
    [
        (2, False, {"fraction": "0.5"}, {"what-if-1": "n0", "what-if-2": "n0"}, set()),
        (1, False, {"count": 1}, {"what-if-1": "n0"}, set()),
        (1, False, {"count": 2, "linked": True}, {}, {"t0", "t1"}),
        (2, True, {"fraction": "0.5"}, {"what-if-1": "n0", "what-if-2": "n0"}, set()),
        (2, True, {"count": 2}, {}, {"t0", "t2"}),
        (3, True, {"count": 2}, {}, set()),
        (1, False, {"count": 4}, {}, set()),
    ],
)
def test_forecasts_are_what_happens(
    engine: Engine, asks: int, gang: bool, wants: dict[str, Any], placed: dict[str, str], victims: set[str]
) -> None:
    said = suppose(engine, asks, gang=gang, **wants)
    assert {one.key: one.node_id for one in said.placed} == placed
    assert {victim.key for one in said.preempts for victim in one.victims} == victims
    assert bool(said.waits) == (not placed and not victims)
    done = do_it(engine, asks, gang=gang, **wants)
    assert {e.spec.key: e.node_id for e in done if isinstance(e, Allocated)} == placed
    assert {e.key for e in done if isinstance(e, Released)} == victims


def test_a_wish_that_makes_no_sense_is_refused(engine: Engine) -> None:
    assert "not 1 to 256" in suppose(engine, count=999).rejected
    tags = (*want_tags(count=1), ("kornel.gpu.devices", "g0"))
    with pytest.raises(CommandRefused, match="only the core chooses"):
        supposing.suppose(read(engine, PARTITION, NOW), SupposeAsk(ONE, "root.owed", user="bob", tags=tags))
