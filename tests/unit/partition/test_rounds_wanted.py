"""The periodic preemption asks to be called only while it could decide something, so that a waiting core sleeps."""

from __future__ import annotations

from tests.scenarios.stage import Stage


def test_rounds_are_wanted_while_an_attempt_is_due() -> None:
    stage = Stage()
    stage.play(["queue root.a guaranteed={vcore=90000}", "node n1", "app app1 queue=root.a", "ask k", "cycle"])
    assert stage.engine.preemption_interval_ns is None
    stage.play(["ask waits app=app1 vcore=90000 other=yes", "cycle"])
    state = stage.state
    waits = state.requests["waits"]
    assert stage.engine.preemption_interval_ns is None, "it is too young"
    assert waits.group is not None
    waits.group.attempt_is_due(waits)
    assert stage.engine.preemption_interval_ns is not None
    stage.engine.preempt(10**9)
    assert stage.engine.preemption_interval_ns is None, "nothing has changed since the last round"
