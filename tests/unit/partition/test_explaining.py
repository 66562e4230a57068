"""Where an ask stands, in plain values."""

from __future__ import annotations

from core.domain.status import AskExplanation
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
    """An ask that fits a node once its load is gone holds it."""
    stage = Stage()
    stage.play(["node n1 vcore=10000", "app app1", "ask small", "cycle", "ask wide vcore=9500", "cycle"])
    state = stage.engine.partition(PARTITION)
    assert state is not None
    assert state.requests["wide"].reservation is not None
    assert stage.engine.explain(PARTITION, "wide") == AskExplanation("app1", "root.a", "Reserved", "n1")
