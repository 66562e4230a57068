"""What a reader keeps of allocations: shown again while nothing changes, and dropped when they are gone."""

from __future__ import annotations

import gc
import weakref

import pytest

from kornel.core.domain.commands import RegisterManager, UnregisterManager
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.telling.allocations import allocation_views
from kornel.core.telling.allocations.allocation_views import AllocationView, KeptViews
from kornel.core.telling.reader import PartitionReader, Reader
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"


def played(*lines: str) -> tuple[Stage, Reader]:
    stage = Stage()
    stage.play(list(lines))
    return stage, Reader(stage.engine, lambda: stage.now_ns)


def views_on(reader: Reader, node_id: str) -> list[AllocationView]:
    node = reader[PARTITION].node(node_id)
    assert node is not None
    return list(node.allocations)


def test_no_record_of_the_engine_has_room_for_what_a_reader_makes() -> None:
    for record in (Allocation, Application):
        assert not {"view", "rendered", "shown", "json"} & set(record.__slots__)
        assert "__dict__" not in dir(record)


def test_an_allocation_is_the_same_view_wherever_it_is_shown_until_it_changes() -> None:
    stage, reader = played("node n1", "app app1", "ask k1", "ask k2", "cycle")
    first, other = views_on(reader, "n1")
    application = reader[PARTITION].application("app1")
    assert application is not None
    assert application.allocations[0] is first
    stage.play(["resize-ask k1 vcore=2000"])
    changed, same = views_on(reader, "n1")
    assert same is other
    assert (dict(first.resources), dict(changed.resources)) == ({"vcore": 1000}, {"vcore": 2000})


def test_views_of_what_is_gone_are_dropped_while_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come and go, about as many views are kept as there are requests."""
    monkeypatch.setattr(allocation_views, "_SPARE", 4)
    stage, reader = played("node n1 vcore=64000", "app app1", "ask stays", "cycle")
    kept = KeptViews(stage.state)
    node = stage.state.nodes["n1"]
    most = 0
    for number in range(100):
        stage.play([f"ask k{number}", "cycle"])
        assert [view.spec.key for view in kept.on_node(node)] == [f"k{number}", "stays"]
        stage.play([f"release k{number} app=app1"])
        most = max(most, len(kept))
    assert most <= 10
    assert [view.spec.key for view in views_on(reader, "n1")] == ["stays"]


def test_what_left_while_it_was_told_is_not_kept() -> None:
    """Its view was made without a node; should it get one, its version says nothing of that."""
    stage, _ = played("node n1 vcore=2000", "node n2 vcore=1000", "app app1", "ask k1", "ask k2", "cycle")
    kept, application = KeptViews(stage.state), stage.state.applications["app1"]
    pieces = kept.in_pieces(application, 1)
    assert [view.spec.key for view in next(pieces)] == ["k1"]
    stage.play(["release k2 app=app1"])
    assert [(view.spec.key, view.node_id) for piece in pieces for view in piece] == [("k2", "")]
    assert len(kept) == 1
    assert [view.spec.key for view in kept.of_application(application)] == ["k1"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_add_up_to_the_whole(size: int) -> None:
    stage, _ = played("node n1 vcore=64000", "app app1", *[f"ask k{number}" for number in range(7)], "cycle")
    kept, application = KeptViews(stage.state), stage.state.applications["app1"]
    for _ in range(2):  # What is made, and then what is kept.
        pieces = list(kept.in_pieces(application, size))
        assert max(map(len, pieces)) == size
        assert [view.spec.key for piece in pieces for view in piece] == [f"k{number}" for number in range(7)]


def test_a_partition_that_is_no_more_is_not_kept_alive_by_its_reader() -> None:
    stage, reader = played("node n1", "app app1", "ask k1", "cycle")
    assert views_on(reader, "n1")
    assert isinstance(reader[PARTITION], PartitionReader)
    left = weakref.ref(stage.state)
    stage.engine.apply(UnregisterManager("rm-1"), stage.now_ns)
    while stage.engine.cycle(stage.now_ns, 1_000).more:
        pass
    gc.collect()
    assert left() is None
    stage.engine.apply(RegisterManager("rm-1", ""), stage.now_ns)
    assert list(reader[PARTITION].nodes()) == []
