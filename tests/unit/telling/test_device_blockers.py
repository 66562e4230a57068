"""Why an ask waits for devices: how many of which node are free, held in part or linked, and never a list of them."""

from __future__ import annotations

from kornel.core.preemption.foresight import PreemptionVerdict
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import Named, NamedOnNode
from kornel.core.telling.nodes.node_reports import AskOnNode
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"
FOUR = "devices=g0:A100:80Gi:x,g1:A100:80Gi:x,g2:A100:80Gi:y,g3:T4:16Gi"


def played(*lines: str) -> Stage:
    stage = Stage()
    stage.play(list(lines))
    return stage


def explained(stage: Stage, name: str = "k") -> AskReport:
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named(name))
    assert isinstance(report, AskReport)
    return report


def test_one_node_is_explained_and_preemption_told() -> None:
    stage = played(f"node n1 {FOUR}", "node n2 devices=h0", "run r queue=root.a node=n2 want=1 held=h0")
    stage.play(["ask k queue=root.a want=4 other=yes", "run s queue=root.a node=n1 want=0.5", "cycle"])
    found = read(stage.engine, PARTITION, stage.now_ns).explain(NamedOnNode("k", "n1"))
    assert isinstance(found, AskOnNode)
    assert [blocker.kind for blocker in found.blockers] == ["node-devices"]
    assert found.first_node == ""
    report = explained(stage)
    assert [blocker.kind for blocker in report.blockers] == ["node-devices", "node-without-devices"]
    assert report.preemption is not None
    assert report.preemption.verdict is PreemptionVerdict.FORBIDDEN
