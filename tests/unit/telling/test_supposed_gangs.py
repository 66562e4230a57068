"""What would become of a gang: placed as a whole, after victims have left, or not at all; and nothing is changed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    AttachCallbacks,
    UpdateAllocations,
    UpdateApplications,
)
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.preemption.guarantee.gangs import packing as gang_packing
from kornel.core.telling.what_if.supposition import Forecast, SupposeAsk
from tests.driven_core import DrivenCore
from tests.reading import read
from tests.request_texts import request_tags
from tests.supposing import suppose

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
    return build_engine(CONFIG)


def build_engine(config: str) -> Engine:
    core = DrivenCore(config, now_ns=NOW)
    for n in range(4):
        core.node(f"n{n}", {"vcore": 4_000}, attributes=(("rack", f"r{n // 2}"),))
    core.application("work", "root.load")
    for at in range(7):
        core.submit("work", [f"t{at}"], {"vcore": 2_000}, node_id=f"n{at // 2}")
    core.cycle()
    return core.engine


def ask(
    engine: Engine, members: int, cores: int, queue: str = "root.mpi", *, priority: int = 0, **wish: Any
) -> Forecast:
    tags = request_tags(**wish)
    question = SupposeAsk(
        Resources({"vcore": cores * 1_000}), queue, asks=members, priority=priority, user="bob", gang=True, tags=tags
    )
    return suppose(read(engine, PARTITION, NOW), question)


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
    assert "the members would be in rack r1" in found.notes


def test_the_domains_of_members_that_find_room_at_once_are_named(engine: Engine) -> None:
    assert ask(engine, 2, 1, required="rack").notes == ("the members would be in rack r1",)
    assert ask(engine, 2, 1).notes == ()


@pytest.mark.parametrize(
    ("queue", "priority", "placed"),
    [("root.mpi", 0, ["n3", "n3"]), ("root.poor", 1, ["n3", "n3"]), ("root.poor", 0, [])],
    ids=["owed", "more-important", "later"],
)
def test_room_saved_for_another_is_lent_to_a_gang_that_may_pass(
    engine: Engine, queue: str, priority: int, placed: list[str]
) -> None:
    engine.apply(UpdateApplications("rm", (ApplicationSpec("big", "root.poor", PARTITION, "ann"),)), NOW)
    waiting = AllocationSpec("big-1", "big", PARTITION, Resources({"vcore": 4_000}))
    engine.apply(UpdateAllocations("rm", (waiting,)), NOW)
    for second in range(5):
        engine.cycle(NOW + second * 10**9, 1_000)
    state = engine.partition(PARTITION)
    assert state is not None
    assert [claim.node.node_id for claim in state.reserving.saved] == ["n3"]
    assert [one.node_id for one in ask(engine, 2, 1, queue, priority=priority).placed] == placed


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ("cycle: {limit: 0}", "ROUND_LIMIT: preemption.cycle.limit is 0"),
        ("governor: {queue: {victims: 2}}", "BUDGET_SPENT"),
        ("governor: {shadow: [guarantee]}", "SHADOW"),
    ],
)
def test_bounds_that_forbid_a_plan_are_named(settings: str, refusal: str) -> None:
    config = CONFIG.replace("    topology:", f"    preemption: {{{settings}}}\n    topology:")
    found = ask(build_engine(config), 4, 2, required="rack")
    assert not found.preempts
    (waits,) = found.waits
    assert waits.preemption.startswith(refusal)


def test_a_gang_that_would_not_be_whole_waits_as_one(engine: Engine) -> None:
    found = ask(engine, 6, 2, required="rack")
    assert not found.preempts
    assert not found.placed
    (waits,) = found.waits
    lacks = "rack r1: 1 of 6, 5 short; then rack r0 0; not even an empty one would do"
    assert (waits.asks, waits.reason) == (6, f"gang-incomplete: {lacks}")
    assert "no rack would hold its members" in waits.preemption


def test_the_racks_are_named_whatever_keeps_preemption_from_helping(engine: Engine) -> None:
    """The queue is owed nothing, so the answer about victims names no rack."""
    (waits,) = ask(engine, 3, 2, "root.poor", required="rack").waits
    assert waits.reason == "gang-incomplete: rack r1: 1 of 3, 2 short; then rack r0 0"
    assert waits.preemption.startswith("NO_GUARANTEE")


def test_slices_that_find_no_rack_are_named_with_the_rack_that_comes_closest(engine: Engine) -> None:
    (waits,) = ask(engine, 4, 2, "root.poor", required="rack", slice_size=2).waits
    assert waits.reason == "gang-incomplete: rack r1: 1 of 4 in slices of 2, 1 short; then rack r0 0"


def test_a_level_that_the_topology_does_not_have_is_named(engine: Engine) -> None:
    refused = ask(engine, 3, 2, "root.poor", required="block").rejected
    assert refused.startswith("invalid-topology: no level 'block' in the topology of the partition")


def test_a_gang_without_a_topology_is_told_how_many_find_a_place(engine: Engine) -> None:
    (waits,) = ask(engine, 3, 2, "root.poor").waits
    assert waits.reason == "gang-incomplete: 1 of 3 places"


def test_an_answer_that_is_not_exhaustive_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster counts as too large for trying all ways."""
    monkeypatch.setattr(gang_packing, "MOST_NODES", 0)
    found = ask(engine, 4, 2, required="rack")
    assert found.preempts
    assert not any("not all ways" in note for note in found.notes), "milder victims than these there are none"
    assert found.complete, "the engine would do the same"
    refused = ask(engine, 4, 2, priority=-1, required="rack")
    (waits,) = refused.waits
    assert "not all ways were tried" in waits.preemption
    assert not refused.complete
    assert "not all ways to make room were tried" in refused.notes


def test_a_queue_that_is_owed_nothing_has_nobody_leave(engine: Engine) -> None:
    (waits,) = ask(engine, 2, 4, "root.poor").waits
    assert waits.preemption.startswith("NO_GUARANTEE")


def test_nothing_is_changed_by_asking(engine: Engine) -> None:
    before = ask(engine, 4, 2, required="rack")
    assert ask(engine, 4, 2, required="rack") == before
    assert not engine.cycle(NOW, 1_000).effects


def test_a_note_says_that_the_shim_was_not_asked(engine: Engine) -> None:
    note = "the shim, which has the last word, was not asked"
    assert note not in ask(engine, 2, 1).notes
    engine.apply(AttachCallbacks("rm", predicates=True), NOW)
    assert note in ask(engine, 2, 1).notes


def test_a_wish_that_makes_no_sense_would_be_rejected(engine: Engine) -> None:
    assert ask(engine, 2, 1, required="rack", preferred="rack").rejected.startswith("invalid-topology: ")


def test_a_gang_beyond_the_limit_of_its_user_hears_that_waiting_is_in_vain() -> None:
    """Each member would fit by itself."""
    limit = "{name: poor, limits: [{limit: l, users: ['*'], maxresources: {vcore: 3}}]}"
    engine = build_engine(CONFIG.replace("{name: poor}", limit))
    vain = "waiting will not help: user-quota user bob in root.poor: asks for more than the limit ever allows"
    assert ask(engine, 4, 1, "root.poor").notes == (vain,)
    assert vain not in ask(engine, 3, 1, "root.poor").notes
