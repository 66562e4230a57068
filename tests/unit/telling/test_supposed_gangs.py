"""What would become of a gang: placed as a whole, after victims have left, or not at all; and nothing is changed."""

from __future__ import annotations

from typing import Final

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    CommandRefused,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import request_tags
from kornel.core.partition.engine import Engine
from kornel.core.telling.what_if.supposition import Forecast, SupposeAsk
from tests.reading import read

PARTITION: Final = "[rm]default"
NOW: Final = 1_000 * 10**9
CONFIG: Final = """
partitions:
  - name: default
    topology: [rack]
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 30s}
        queues:
          - {name: mpi, resources: {guaranteed: {vcore: 12}}}
          - {name: load, resources: {guaranteed: {vcore: 2}}}
          - {name: poor}
"""


@pytest.fixture
def engine() -> Engine:
    """Two racks of two nodes with four cores each; four tasks of two cores in the first, three in the second."""
    engine = Engine()
    engine.apply(RegisterManager("rm", CONFIG), NOW)
    nodes = (
        NodeSpec(f"n{n}", NodeAction.CREATE, PARTITION, (("rack", f"r{n // 2}"),), Resources({"vcore": 4_000}))
        for n in range(4)
    )
    engine.apply(UpdateNodes("rm", tuple(nodes)), NOW)
    engine.apply(UpdateApplications("rm", (ApplicationSpec("work", "root.load", PARTITION, "ann"),)), NOW)
    running = (
        AllocationSpec(f"t{at}", "work", PARTITION, Resources({"vcore": 2_000}), node_id=f"n{at // 2}")
        for at in range(7)
    )
    engine.apply(UpdateAllocations("rm", tuple(running)), NOW)
    engine.cycle(NOW, 1_000)
    return engine


def ask(engine: Engine, members: int, cores: int, queue: str = "root.mpi", **wish: str) -> Forecast:
    question = SupposeAsk(
        Resources({"vcore": cores * 1_000}), queue, asks=members, user="bob", gang=True, tags=request_tags(**wish)
    )
    return read(engine, PARTITION, NOW).suppose(question)


def test_a_gang_that_fits_would_be_placed_at_once(engine: Engine) -> None:
    found = ask(engine, 2, 1)
    assert [(one.key, one.node_id) for one in found.placed] == [("what-if-1", "n3"), ("what-if-2", "n3")]
    assert not found.preempts
    assert not found.waits


def test_members_that_have_to_leave_room_for_all_are_named_with_the_rack(engine: Engine) -> None:
    found = ask(engine, 4, 2, required="rack")
    assert {one.node_id for one in found.preempts} == {"n2", "n3"}
    assert sorted(victim.key for one in found.preempts for victim in one.victims) == ["t4", "t5", "t6"]
    assert {one.not_before_ns for one in found.preempts} == {NOW + 30 * 10**9}
    assert "all members start together, once all victims have left" in found.notes


def test_a_gang_that_would_not_be_whole_waits_as_one(engine: Engine) -> None:
    found = ask(engine, 6, 2, required="rack")
    assert not found.preempts
    assert not found.placed
    (waits,) = found.waits
    assert (waits.asks, waits.reason) == (6, "gang-incomplete")
    assert "no rack would hold its members" in waits.preemption


def test_a_queue_that_is_owed_nothing_has_nobody_leave(engine: Engine) -> None:
    (waits,) = ask(engine, 2, 4, "root.poor").waits
    assert waits.preemption.startswith("NO_GUARANTEE")


def test_nothing_is_changed_by_asking(engine: Engine) -> None:
    before = ask(engine, 4, 2, required="rack")
    assert ask(engine, 4, 2, required="rack") == before
    assert not engine.cycle(NOW, 1_000).effects


def test_a_wish_that_makes_no_sense_is_refused(engine: Engine) -> None:
    with pytest.raises(CommandRefused):
        ask(engine, 2, 1, required="rack", preferred="rack")
