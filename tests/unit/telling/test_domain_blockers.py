"""Why a group waits for a domain of the topology: domains by name, with how many members fit, and not nodes."""

from __future__ import annotations

from kornel.core.domain.reasons import Outcome
from kornel.core.state.asks import group_domains, reservations
from kornel.core.telling.allocations.explanation import ApplicationReport, AskReport
from kornel.core.telling.explain import Named, NamedOnNode
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"
RACKS = (
    "partition default topology=rack",
    "queue root.a",
    *(f"node n{rack}{n} f={4 if rack == 7 else 2} attr.rack=r{rack}" for rack in (7, 8, 9) for n in range(3)),
    "app mpi",
)


def played(*lines: str) -> Stage:
    stage = Stage()
    stage.play(list(lines))
    return stage


def gang(members: int, topology: str) -> list[str]:
    return [f"ask k{n} app=mpi placeholder group=g topology={topology} f=1" for n in range(members)]


def explained(stage: Stage, name: str) -> AskReport:
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named(name))
    assert isinstance(report, AskReport)
    return report


def test_a_late_member_is_told_where_its_group_stands() -> None:
    stage = played(*RACKS, *gang(6, "required:rack"), "cycle", *gang(7, "required:rack")[6:], "cycle")
    report = explained(stage, "k6")
    (blocker,) = report.blockers
    assert (blocker.name, blocker.detail) == (
        "rack r8",
        "6 of its group stand there, and it has no room for another one",
    )
    on_node = read(stage.engine, PARTITION, stage.now_ns).explain(NamedOnNode("k6", "n70"))
    assert on_node is not None
    assert [blocker.detail for blocker in on_node.blockers] == ["its group stands in rack r8"]


def test_equal_asks_of_two_task_groups_are_told_apart() -> None:
    asks = [f"ask k{n} app=mpi placeholder group=g{n % 2} topology=required:rack f=4" for n in range(8)]
    stage = played(*RACKS, "app mpi", *asks, "cycle")
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named("mpi"))
    assert isinstance(report, ApplicationReport)
    assert [entry.size for entry in report.asks] == [4, 4]


TWO_RACKS = (
    "partition default topology=rack",
    "queue root.a guaranteed={f=3} preemption.delay=1s",
    "queue root.v",
    "node n1 f=1 attr.rack=r1",
    "node n2 f=1 attr.rack=r1",
    "node n3 f=4 attr.rack=r2",
    "run v1 queue=root.v node=n1 f=1",
    "run v3 queue=root.v node=n3 f=4",
    "app mpi queue=root.a",
)


def test_members_that_wait_beside_one_that_holds_room_count_as_well() -> None:
    """Three members have room for one in r1: no victim helps, whether or not room is held for the first of them."""
    stage = played(*TWO_RACKS, *(f"ask k{n} app=mpi topology=required:rack f=1 other=yes" for n in range(3)))
    state = stage.state
    first = state.requests["k0"]
    assert group_domains.nodes_for_victims(state, first) == []
    reservations.reserve_node(state, first, state.nodes["n1"], stage.now_ns, by_age=True)
    assert first.group is None
    assert group_domains.nodes_for_victims(state, first) == []
    report = explained(stage, "k0")
    assert report.preemption is not None
    assert report.preemption.outcome is Outcome.NO_NODE
    assert report.preemption.detail == "no rack would hold its group if one place there were freed"


def test_members_that_hold_their_places_wait_for_the_victims_of_all() -> None:
    """None of them lacks room in the rack, whatever is free there, and they are explained once."""
    asks = [f"ask k{n} app=g placeholder group=g topology=required:rack f=1 other=yes" for n in range(2)]
    stage = played(*TWO_RACKS, "app g queue=root.a gang={f=2} style=Hard", *asks, "cycle at=2s")
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named("g"))
    assert isinstance(report, ApplicationReport)
    (members,) = report.asks
    assert members.size == 2
    (blocker,) = members.first.blockers
    assert (blocker.kind, blocker.detail) == ("waiting-for-victims", "1 victim of its gang is still there")
