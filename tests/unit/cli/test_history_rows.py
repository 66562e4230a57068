"""The rows of `kornel history preemptions`."""

from __future__ import annotations

import pytest

from kornel.cli.text.history import render_preemptions
from kornel.v1 import history_pb2 as pb


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ("plan 7: 2 members of a gang get places in rack r1", "g1 (plan 7)"),
        ("needs vcore=2 on the node, fence root", "g1"),
        ("plan x: y", "g1"),
        ("", "g1"),
    ],
)
def test_a_member_of_a_gang_is_shown_with_the_plan_of_the_decision(detail: str, shown: str) -> None:
    record = pb.PreemptionRecord(for_allocation_key="g1", detail=detail, kind="guarantee")
    _, row = render_preemptions([record]).splitlines()
    assert f" {shown} " in row.replace("  ", " ").replace("  ", " ")
    assert ("(plan" in row) is ("(plan" in shown)
