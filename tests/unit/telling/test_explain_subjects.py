"""One way to ask why, whatever it is about."""

from __future__ import annotations

import pytest

from kornel.core.telling.allocations.explanation import ApplicationReport, AskReport, BlockerKind, LostWork
from kornel.core.telling.explain import AskStanding, Named, QueueAt, UserNamed
from kornel.core.telling.reader import Reader, UnknownPartition
from tests.scenarios.stage import Stage

LINES = (
    "queue root.v",
    "queue root.a guaranteed={f=2}",
    "node n1 f=2",
    "run v1 queue=root.v node=n1 f=1 created=3s",
    "run v2 queue=root.v node=n1 f=1 created=2s",
    "ask k1 queue=root.a f=1 other=yes",
    "cycle at=31s",
)


@pytest.fixture
def reader() -> Reader:
    stage = Stage()
    stage.play(list(LINES))
    return Reader(stage.engine, lambda: stage.now_ns)


def test_an_ask_an_application_and_a_victim_have_one_name_space(reader: Reader) -> None:
    """Keys come before IDs of applications."""
    ask = reader["default"].explain(Named("k1"))
    assert isinstance(ask, AskReport)
    assert ask.blockers[0].kind is BlockerKind.WAITING_FOR_VICTIMS
    assert isinstance(reader["default"].explain(Named("a")), ApplicationReport)
    assert reader["default"].explain(Named("nobody")) is None


def test_what_is_gone_is_explained_by_who_took_its_room() -> None:
    stage = Stage()
    stage.play([*LINES, "release v1 app=v type=PREEMPTED_BY_SCHEDULER"])
    found = Reader(stage.engine, lambda: stage.now_ns)["[rm-1]default"].explain(Named("v1"))
    assert isinstance(found, LostWork)
    assert (found.preempted.taken_by, found.preempted.kind) == ("k1", "guarantee")


def test_where_an_ask_stands_is_told_without_looking_for_what_is_in_its_way(reader: Reader) -> None:
    found = reader["default"].explain(AskStanding("k1"))
    assert found is not None
    assert (found.state, found.node_id, found.blockers, found.position) == ("Reserved", "n1", (), None)
    assert reader["default"].explain(AskStanding("a")) is None, "no application"


def test_queues_and_users_are_explained_the_same_way(reader: Reader) -> None:
    partition = reader["default"]
    queue = partition.explain(QueueAt("root.A"))
    assert queue is not None
    assert [level.path for level in queue.levels] == ["root.a", "root"]
    assert partition.explain(QueueAt("root.b")) is None
    assert partition.explain(UserNamed("nobody")) is None


def test_a_manager_that_is_gone_is_the_first_thing_in_the_way() -> None:
    """Of whatever waits, through the same door."""
    stage = Stage()
    stage.play(list(LINES))
    reader = Reader(stage.engine, lambda: stage.now_ns, lambda: "no stream open since noon")
    found = reader["default"].explain(Named("k1"))
    assert isinstance(found, AskReport)
    assert (found.blockers[0].kind, found.blockers[0].name) == (BlockerKind.SHIM_GONE, "rm-1")
    assert "no stream open since noon" in found.blockers[0].detail


def test_an_unknown_partition_is_said_to_be_unknown(reader: Reader) -> None:
    assert reader.get("other") is None
    with pytest.raises(UnknownPartition):
        reader["other"]
