"""Where an ask stands, in plain values."""

from __future__ import annotations

from core.domain.status import AskExplanation
from core.partition import placement
from tests.scenarios.language import Stage

PARTITION = "[rm-1]default"


def test_every_state_an_ask_can_be_in() -> None:
    """Allocated and Reserved name their node, Pending has none, and what is not known is not explained."""
    stage = Stage()
    stage.play(
        ["node n1", "app app1", "ask small", "cycle", "ask big vcore=99000", "foreign f node=n1 vcore=1", "cycle"]
    )
    explain = stage.engine.explain
    assert explain(PARTITION, "small") == AskExplanation("app1", "root.a", "Allocated", "n1")
    assert explain(PARTITION, "big") == AskExplanation("app1", "root.a", "Pending", "")
    assert explain(PARTITION, "f") is None
    assert explain(PARTITION, "unknown") is None
    assert explain("[rm-1]other", "small") is None


def test_a_reserved_ask_names_the_node_that_is_kept_for_it() -> None:
    """A reservation is for one node, and an ask has at most one."""
    stage = Stage()
    stage.play(["node n1", "node n2", "app app1", "ask big vcore=99000"])
    state = stage.engine.partition(PARTITION)
    assert state is not None
    placement.reserve(state, state.requests["big"], state.nodes["n2"], 5)
    assert stage.engine.explain(PARTITION, "big") == AskExplanation("app1", "root.a", "Reserved", "n2")
