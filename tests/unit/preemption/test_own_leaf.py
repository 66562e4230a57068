"""What is recorded of preemption within a leaf (preemption.md M)."""

from __future__ import annotations

import pytest

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.state.partition_state import PartitionState
from tests.scenarios.stage import Stage

FULL_LEAF = """\
queue root.a preemption.within={within} preemption.delay=1s guaranteed={{f={owed}}}
queue root.b
node n1 f=2
run t1 queue=root.{leaf} app=a node=n1 f=1 created=1s
+ run t2 queue=root.{leaf} app=a node=n1 f=1 created=2s
ask k queue=root.a app=hot f=1 other=yes p=5
cycle at=10s
ask l queue=root.a app=hotter f=1 other=yes p=9
cycle at=20s"""


@pytest.mark.parametrize(
    ("leaf", "owed", "within", "kind"),
    [
        ("a", 0, "priority", "within"),
        ("b", 2, "priority", "guarantee"),
        ("b", 2, "none", "guarantee"),
    ],
)
def test_a_claim_is_passed_on_by_the_kind_that_let_its_victims_go(
    leaf: str, owed: int, within: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Victims of the same leaf never go for a guarantee, and those of another one never go within the leaf."""
    told: list[PreemptionDecided] = []
    report = PartitionState.report_decision

    def keep(state: PartitionState, decided: PreemptionDecided) -> None:
        told.append(decided)
        report(state, decided)

    monkeypatch.setattr(PartitionState, "report_decision", keep)
    Stage().play(FULL_LEAF.format(leaf=leaf, owed=owed, within=within).splitlines())
    assert [(each.kind, each.key) for each in told if each.outcome == "TRIGGERED"] == [(kind, "k"), (kind, "l")]
