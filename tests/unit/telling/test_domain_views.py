"""What a topology shows of itself: its levels, and its domains with what they have, what is free and what is held."""

from __future__ import annotations

from kornel.core.domain.resources import Resources
from kornel.core.telling.nodes.domain_views import DomainView, LevelView
from kornel.core.telling.reader import PartitionReader
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"


def reading(*lines: str) -> PartitionReader:
    stage = Stage()
    stage.play(list(lines))
    return read(stage.engine, PARTITION, stage.now_ns)


CLUSTER = (
    "partition default topology=zone,rack",
    "queue root.a",
    "node n1 f=4 attr.zone=b attr.rack=r1",
    "node n2 f=4 attr.zone=b attr.rack=r1",
    "node n3 f=8 attr.zone=a attr.rack=r1",
    "node n4 f=8 attr.zone=a",
    "node n5 f=1 attr.rack=r1",
    "run one queue=root.a node=n1 f=3",
)


def test_domains_are_shown_with_what_their_nodes_have_and_what_is_free() -> None:
    views = reading(*CLUSTER, "drain n2")
    assert [(view.path, view.level, view.nodes, view.schedulable) for view in views.domains()] == [
        (("a",), "zone", 2, 2),
        (("a", "r1"), "rack", 1, 1),
        (("b",), "zone", 2, 1),
        (("b", "r1"), "rack", 2, 1),
    ]
    (first, second) = views.domains("rack")
    assert first == DomainView("rack", ("a", "r1"), Resources({"f": 8}), Resources({"f": 8}), Resources(), 1, 1)
    assert second == DomainView("rack", ("b", "r1"), Resources({"f": 8}), Resources({"f": 1}), Resources(), 2, 1)


def test_what_is_held_for_an_ask_is_told_beside_what_is_free() -> None:
    """n1 has one left, which is held for an ask that must run there and does not fit yet."""
    views = reading(*CLUSTER, "app big", "ask k app=big f=4 required=n1", "cycles until=10s every=500ms")
    held = {view.path: (view.free.get("f"), view.held.get("f", 0)) for view in views.domains("rack")}
    assert held == {("a", "r1"): (8, 0), ("b", "r1"): (5, 1)}


def test_nodes_without_an_attribute_stand_outside() -> None:
    assert reading(*CLUSTER).topology_levels() == [
        LevelView("zone", "zone", 2, 4, 1),
        LevelView("rack", "rack", 2, 3, 2),
    ]


def test_without_a_topology_there_is_nothing_to_show() -> None:
    views = reading("partition default", "queue root.a", "node n1 f=4 attr.rack=r1")
    assert views.topology_levels() == list(views.domains()) == []
