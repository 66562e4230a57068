"""Why an ask is not on a node, and why a node is used as it is."""

from __future__ import annotations

import pytest

from kornel.core.telling.allocations import blockers
from kornel.core.telling.allocations.explanation import BlockerKind
from kornel.core.telling.explain import NamedOnNode, NodeUse
from kornel.core.telling.reader import PartitionReader, Reader
from tests.scenarios.stage import Stage


def read(*lines: str) -> PartitionReader:
    stage = Stage()
    stage.play(list(lines))
    return Reader(stage.engine, lambda: stage.now_ns)["default"]


CLUSTER = (
    "queue root.a",
    "queue root.low max={f=1}",
    "node big f=4",
    "node small f=1",
    "node shut f=4",
    "drain shut",
    "run full queue=root.a node=big f=3",
)


@pytest.mark.parametrize(
    ("node", "kinds"),
    [
        ("big", [BlockerKind.NODE_FULL]),
        ("small", [BlockerKind.NODE_TOO_SMALL]),
        ("shut", [BlockerKind.NODE_DRAINING]),
    ],
)
def test_everything_about_the_node_that_is_in_the_way_is_named(node: str, kinds: list[BlockerKind]) -> None:
    found = read(*CLUSTER, "ask k queue=root.a f=2", "cycle").explain(NamedOnNode("k", node))
    assert found is not None
    assert [blocker.kind for blocker in found.blockers] == kinds
    assert (found.runs_on, found.elsewhere, found.first_node) == ("", (), "")


def test_a_drained_node_that_is_full_is_both() -> None:
    found = read(*CLUSTER, "drain big", "ask k queue=root.a f=2", "cycle").explain(NamedOnNode("k", "big"))
    assert found is not None
    assert [blocker.kind for blocker in found.blockers] == [BlockerKind.NODE_DRAINING, BlockerKind.NODE_FULL]
    (short,) = found.blockers[1].shortages
    assert (short.asked, short.used, short.limit, short.short) == (2, 3, 4, 1)


def test_a_limit_keeps_the_ask_off_a_node_that_has_room() -> None:
    """The node is not to blame: what is, is told beside it."""
    found = read(*CLUSTER, "ask k queue=root.low f=2", "node free f=4", "cycle").explain(NamedOnNode("k", "free"))
    assert found is not None
    assert found.blockers == ()
    assert [(blocker.kind, blocker.name) for blocker in found.elsewhere] == [(BlockerKind.QUEUE_QUOTA, "root.low")]
    assert found.first_node == "free"


def test_an_ask_that_must_run_on_another_node() -> None:
    found = read(*CLUSTER, "ask k queue=root.a f=2 required=big", "cycle").explain(NamedOnNode("k", "small"))
    assert found is not None
    assert [(blocker.kind, blocker.detail) for blocker in found.blockers] == [
        (BlockerKind.NODE_NOT_REQUIRED, "it must run on big")
    ]


def test_an_allocation_runs_where_it_runs() -> None:
    reader = read(*CLUSTER)
    found = reader.explain(NamedOnNode("full", "big"))
    assert found is not None
    assert (found.state, found.runs_on, found.blockers) == ("Allocated", "big", ())
    assert reader.explain(NamedOnNode("full", "nowhere")) is None
    assert reader.explain(NamedOnNode("nobody", "big")) is None


def test_a_node_tells_what_keeps_those_who_wait_off_it() -> None:
    """Asks with the same obstacle are counted together; one that fits elsewhere is kept back by its queue."""
    reader = read(
        *CLUSTER,
        "ask a1 queue=root.a f=2",
        "ask a2 queue=root.a f=2",
        "ask huge queue=root.a f=9",
        "run low0 queue=root.low node=small f=1",
        "ask low1 queue=root.low f=1",
        "cycle",
    )
    found = reader.explain(NodeUse("big"))
    assert found is not None
    assert (found.waiting, found.allocations, found.schedulable) == (4, 1, True)
    assert [(v.kind, v.asks) for v in found.verdicts] == [("node-full", 2), ("node-too-small", 1), ("queue-quota", 1)]
    assert found.verdicts[2].blocker is not None
    assert found.verdicts[2].blocker.name == "root.low"
    assert reader.explain(NodeUse("nowhere")) is None


def test_a_node_that_nobody_wants() -> None:
    found = read("node idle f=4").explain(NodeUse("idle"))
    assert found is not None
    assert (found.waiting, found.verdicts, found.last_placed_ns) == (0, (), 0)


def test_no_other_node_is_looked_at_for_asks_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of nodes and of asks below a limit, an answer stopped the core for eight seconds."""
    asks = [f"ask k{n} queue=root.low f=1" for n in range(5)]
    reader = read(*CLUSTER, "run low queue=root.low node=small f=1", *asks, "cycle")
    looked: list[str] = []
    monkeypatch.setattr(blockers, "node_blockers", lambda state, ask: looked.append(ask.spec.key))
    found = reader.explain(NodeUse("big"))
    assert found is not None
    assert [(v.kind, v.asks) for v in found.verdicts] == [("queue-quota", 5)]
    assert looked == []
