"""Why an ask waits for devices: how many of which node are free, held in part or linked, and never a list of them."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("held", "want", "detail"),
    [
        (
            ["want=1 held=g0", "want=0.5 held=g1"],
            "3",
            "wants 3 whole devices; 2 of 4 devices free as a whole, 1 held in part",
        ),
        (
            ["want=1 held=g0"],
            "2,same",
            "wants 2 whole devices, in one link group; 3 of 4 devices free as a whole (by link group: x 1, y 1)",
        ),
        (
            ["want=1 held=g0", "want=1 held=g1", "want=1 held=g2"],
            "1,A100",
            "wants 1 whole device of type A100; 0 of 3 devices of type A100 free as a whole",
        ),
        (
            ["want=0.7 held=g0", "want=0.8 held=g1", "want=1 held=g2", "want=1 held=g3"],
            "0.5",
            "wants 0.5 of a device; at most 0.3 of one is free",
        ),
        (
            ["want=0.7 held=g0", "want=0.8 held=g1", "want=1 held=g2"],
            "40Gi",
            "wants 40Gi of a device; at most 0.3 of one with so much memory is free",
        ),
    ],
)
def test_devices_that_are_held_now_are_counted(held: list[str], want: str, detail: str) -> None:
    stage = played(f"node n1 {FOUR}", *(f"run r{n} queue=root.a node=n1 {text}" for n, text in enumerate(held)))
    stage.play([f"ask k queue=root.a want={want}", "cycle"])
    report = explained(stage)
    (blocker,) = report.blockers
    assert (blocker.kind, blocker.level, blocker.name, blocker.nodes) == ("node-devices", "node", "n1", 1)
    assert blocker.detail == detail
    assert not blocker.permanent
    assert 0 < blocker.distance <= 1
    assert report.fitting_nodes == 0
    assert "with" in report.failures[0].message


@pytest.mark.parametrize(
    ("want", "detail"),
    [
        ("5", "wants 5 whole devices; the node has 4 devices"),
        (
            "3,same",
            "wants 3 whole devices, in one link group; the node has 4 devices (by link group: x 2, y 1)",
        ),
        ("1,H100", "wants 1 whole device of type H100; the node has 0 devices of type H100"),
        ("100Gi", "wants 100Gi of a device; the node has 0 devices with so much memory"),
    ],
)
def test_devices_that_a_node_never_has_are_told_as_lasting(want: str, detail: str) -> None:
    stage = played(f"node n1 {FOUR}", "node n2", f"ask k queue=root.a want={want}", "cycle")
    (blocker,) = explained(stage).blockers
    assert (blocker.kind, blocker.nodes, blocker.permanent) == ("node-without-devices", 2, True)
    assert blocker.detail == detail


def test_a_node_without_a_report_says_so() -> None:
    (blocker,) = explained(played("node n1", "ask k queue=root.a want=1", "cycle")).blockers
    assert blocker.detail == "wants 1 whole device; the node has reported no devices"


def test_what_lacks_is_told_before_devices() -> None:
    """A node without room for the amounts is full, whatever its devices are."""
    stage = played(f"node n1 vcore=1000 {FOUR}", "run r queue=root.a node=n1", "ask k queue=root.a want=1", "cycle")
    assert [blocker.kind for blocker in explained(stage).blockers] == ["cluster-size", "node-full"]


def test_one_node_is_explained_and_preemption_told() -> None:
    stage = played(f"node n1 {FOUR}", "node n2 devices=h0", "run r queue=root.a node=n2 want=1 held=h0")
    stage.play(["ask k queue=root.a want=4 other=yes", "run s queue=root.a node=n1 want=0.5", "cycle"])
    found = read(stage.engine, PARTITION, stage.now_ns).explain(NamedOnNode("k", "n1"))
    assert isinstance(found, AskOnNode)
    assert [blocker.kind for blocker in found.blockers] == ["node-devices"]
    assert found.first_node == ""
    report = explained(stage)
    assert [blocker.kind for blocker in report.blockers] == ["node-without-devices", "node-devices"]
    assert report.preemption is not None
    assert report.preemption.verdict is PreemptionVerdict.FORBIDDEN


def test_a_required_node_names_its_devices() -> None:
    stage = played("node n1 devices=g0,g1", "run r queue=root.a node=n1 want=0.5 held=g0")
    stage.play(["ask k queue=root.a want=2 required=n1", "ask l queue=root.a want=3 required=n1", "cycle"])
    assert [blocker.kind for blocker in explained(stage).blockers] == ["node-devices"]
    (never,) = explained(stage, "l").blockers
    assert (never.kind, never.permanent) == ("node-without-devices", True)


def test_a_domain_counts_those_who_find_their_devices() -> None:
    lines = ["partition default topology=rack", "queue root.a", "node n1 attr.rack=r1 devices=g0,g1", "app mpi"]
    asks = [f"ask k{n} app=mpi placeholder group=g topology=required:rack want=1" for n in range(3)]
    report = explained(played(*lines, *asks, "cycle"), "k0")
    (blocker,) = report.blockers
    assert (blocker.kind, blocker.permanent) == ("domain-full", True)
    assert blocker.detail == "2 of 3, 1 short; not even an empty one would do"


def test_preemption_is_foretold_with_the_victims_that_leave_the_devices() -> None:
    stage = played("partition default", "queue root.a guaranteed={gpu=2000} preemption.delay=60s", "queue root.b")
    stage.play(["node n1 gpu=2000 devices=g0,g1", "run b1 queue=root.b node=n1 want=0.5 held=g0 gpu=500"])
    stage.play(
        [
            "run b2 queue=root.b node=n1 want=0.6 held=g1 gpu=500",
            "run b3 queue=root.b node=n1 want=0.4 held=g1 gpu=0 vcore=1",
        ]
    )
    stage.play(["ask k queue=root.a want=1 gpu=1000 other=yes", "cycle"])
    report = explained(stage)
    assert report.preemption is not None
    assert report.preemption.verdict is PreemptionVerdict.WOULD_HELP
    assert [victim.key for victim in report.preemption.victims] == ["b1"]
