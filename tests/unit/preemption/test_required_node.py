"""Decisions for asks that must run on one node (preemption.md C)."""

from __future__ import annotations

from kornel.core.domain.effects import PreemptionDecided
from tests.scenarios.stage import Stage


def test_the_refusal_counts_who_is_protected_and_why() -> None:
    """All ten that run on the node are more important than the ask."""
    stage = Stage()
    stage.play(["queue root.v", "queue root.d", "node n1 f=10"])
    stage.play([f"run v{at} queue=root.v node=n1 f=1 p=1000" for at in range(10)])
    stage.play(["ask d queue=root.d f=5 required=n1"])
    effects = stage.engine.cycle(0, 100).effects
    said = [effect.detail for effect in effects if isinstance(effect, PreemptionDecided)]
    assert said == ["n1 lacks f=5; protected: 10 of higher priority"]
