"""What the command line says about what would happen."""

from __future__ import annotations

from kornel.cli.text.explain import render_forecast
from kornel.v1 import explain_pb2 as pb


def test_a_member_that_needs_no_victims_finds_room() -> None:
    """It belongs to a gang in which others need some."""
    first = pb.ForecastPreemption(key="what-if-1", node_id="n1", kind="guarantee")
    second = pb.ForecastPreemption(
        key="what-if-2", node_id="n2", kind="guarantee", victims=[pb.ForecastVictim(key="v1")]
    )
    lines = render_forecast(pb.WhatIfResponse(preemptions=[first, second], complete=True), 0).splitlines()
    assert "what-if-1 finds room on n1" in lines
    assert any(line.startswith("what-if-2 preempts (guarantee)") and line.endswith("v1 leaves n2") for line in lines)
