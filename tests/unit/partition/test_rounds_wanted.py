"""The periodic preemption asks to be called only while something waits, so that an idle core sleeps."""

from __future__ import annotations

from tests.scenarios.stage import Stage


def test_rounds_are_wanted_while_an_ask_waits() -> None:
    stage = Stage()
    stage.play(["node n1", "app app1", "ask k", "cycle"])
    assert stage.engine.preemption_interval_ns is None
    stage.play(["ask waits vcore=90000", "cycle"])
    assert stage.engine.preemption_interval_ns is not None
