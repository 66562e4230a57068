"""Why a group waits for a domain of the topology: domains by name, with how many members fit, and not nodes."""

from __future__ import annotations

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.foresight import PreemptionVerdict
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


def test_the_domain_that_comes_closest_is_named_with_what_it_is_short_of() -> None:
    report = explained(played(*RACKS, *gang(16, "required:rack"), "cycle"), "k0")
    (blocker,) = report.blockers
    assert (blocker.kind, blocker.level, blocker.name, blocker.permanent) == ("domain-full", "node", "rack r7", True)
    assert blocker.detail == "12 of 16, 4 short; then rack r8 6, rack r9 6; not even an empty one would do"
    assert report.fitting_nodes == 0
    assert report.preemption is not None
    assert report.preemption.verdict is PreemptionVerdict.FORBIDDEN
    assert report.failures[0].message.startswith("No domain has enough room for its group (required: rack)")


def test_what_is_full_now_may_have_room_later() -> None:
    lines = [*RACKS, *(f"run b{n} queue=root.a node=n7{n} f=2" for n in range(3)), *gang(8, "required:rack"), "cycle"]
    (blocker,) = explained(played(*lines), "k0").blockers
    assert (blocker.name, blocker.detail) == ("rack r7", "6 of 8, 2 short; then rack r8 6, rack r9 6")
    assert not blocker.permanent


def test_what_a_gang_lacks_is_counted_for_its_minimum() -> None:
    """Eight of sixteen members are placed together, so the best rack lacks two places and not ten."""
    load = [f"run b{n} queue=root.a node=n7{n} f=2" for n in range(3)]
    asks = [f"ask k{n} app=mpi placeholder group=g minimum=8 topology=required:rack f=1" for n in range(16)]
    announced = [line.replace("app mpi", "app mpi gang={f=16} style=Hard") for line in RACKS]
    kinds = {str(one.kind): one for one in explained(played(*announced, *load, *asks, "cycle"), "k0").blockers}
    assert kinds["domain-full"].detail == "6 of 8, 2 short; then rack r8 6, rack r9 6"
    assert kinds["gang-incomplete"].detail == "0 of 8 places; no rack has room for the group of k0"


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


def test_a_level_that_the_configuration_no_longer_has_is_named() -> None:
    lines = [*RACKS, *gang(16, "required:rack"), "partition default topology=zone", "queue root.a", "update-config"]
    (blocker,) = explained(played(*lines, "cycle"), "k0").blockers
    assert (blocker.kind, blocker.name, blocker.permanent) == ("domain-unknown", "rack", True)


def test_who_only_prefers_a_domain_waits_for_nodes() -> None:
    report = explained(played(*RACKS, *gang(25, "preferred:rack"), "cycle"), "k24")
    assert [blocker.kind for blocker in report.blockers] == ["cluster-size", "node-full"]


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


def test_a_single_ask_is_told_of_the_victims_that_its_domain_would_give() -> None:
    """r1 has room for one of two members: one more place there holds both, and that is what the next attempt takes."""
    stage = played(*TWO_RACKS, *(f"ask k{n} app=mpi topology=required:rack f=1 other=yes" for n in range(2)))
    report = explained(stage, "k0")
    assert report.preemption is not None
    assert report.preemption.verdict is PreemptionVerdict.WOULD_HELP
    assert [victim.key for victim in report.preemption.victims] == ["v1"]
    assert "release v1 PREEMPTED_BY_SCHEDULER for=k0" in stage.play(["cycle at=2s"])


def test_a_place_that_could_be_freed_only_where_room_is_already_is_told_with_the_node() -> None:
    """n1 would hold both members without v1, but victims make room only on a node that has none for the ask."""
    one_node = [line for line in TWO_RACKS if "n2" not in line and "n1 " not in line]
    one_node += ["node n1 f=2 attr.rack=r1", "run v1 queue=root.v node=n1 f=1"]
    asks = [f"ask k{n} app=mpi topology=required:rack f=1 other=yes" for n in range(2)]
    why = "its group lacks one more place: room on n1 of rack r1 is for one member, and nobody leaves the same node for"
    for more in ([], ["cycle at=2s"]):
        report = explained(played(*one_node, *asks, *more), "k0")
        assert report.blockers[0].detail == "1 of 2, 1 short; then rack r2 0"
        assert report.preemption is not None
        assert report.preemption.outcome is Outcome.NO_NODE
        assert report.preemption.detail.startswith(f"{why} another one; nodes: has room 1")


def test_members_that_wait_beside_one_that_holds_room_count_as_well() -> None:
    """Three members have room for one in r1: no victim helps, whether or not room is held for the first of them."""
    stage = played(*TWO_RACKS, *(f"ask k{n} app=mpi topology=required:rack f=1 other=yes" for n in range(3)))
    state = stage.engine.partition(PARTITION)
    assert state is not None
    first = state.requests["k0"]
    assert group_domains.nodes_for_victims(state, first) == []
    reservations.reserve_node(state, first, state.nodes["n1"], stage.now_ns, by_age=True)
    assert first.group is None
    assert group_domains.nodes_for_victims(state, first) == []
    report = explained(stage, "k0")
    assert report.preemption is not None
    assert report.preemption.outcome is Outcome.NO_NODE
    assert report.preemption.detail == "no rack would hold its group if one place there were freed"


def test_a_gang_whose_members_may_not_preempt_is_told_so_and_which_level_lacks_room() -> None:
    for may, outcome in (("no", Outcome.ASK_MAY_NOT_PREEMPT), ("yes", Outcome.GANG_INCOMPLETE)):
        asks = [f"{ask} other={may}" for ask in gang(16, "required:rack")]
        report = explained(
            played(*RACKS, "app g gang={f=16} style=Hard", *[a.replace("=mpi", "=g") for a in asks], "cycle"), "k0"
        )
        details = {str(blocker.kind): blocker.detail for blocker in report.blockers}
        assert details["gang-incomplete"] == "0 of 16 places; no rack has room for the group of k0"
        assert report.preemption is not None
        assert (report.preemption.verdict, report.preemption.outcome) == (PreemptionVerdict.FORBIDDEN, outcome)


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
