"""Why work waits, where a text shows too little: many nodes, places in line, lost work. See also ``explain.txt``."""

from __future__ import annotations

from itertools import islice

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.state.history.recent_victims import KEPT, RecentVictims
from kornel.core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    LostWork,
    Shortage,
)
from kornel.core.telling.explain import FirstBlockers, Named
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"


def explained(stage: Stage, name: str) -> AskReport:
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named(name))
    assert isinstance(report, AskReport)
    return report


def played(*lines: str) -> Stage:
    stage = Stage()
    stage.play(list(lines))
    return stage


def test_five_thousand_nodes_are_one_line() -> None:
    """Nodes are grouped by reason, with their number and the closest one."""
    stage = Stage()
    nodes = [f"node n{number} f={number % 7 + 1}" for number in range(5_000)]
    stage.play([nodes[0], *(f"+ {node}" for node in nodes[1:]), "ask k queue=root.a f=8"])
    report = explained(stage, "k")
    (blocker,) = report.blockers
    assert (blocker.kind, blocker.nodes, blocker.name, blocker.permanent) == ("node-too-small", 5_000, "n1000", True)
    assert blocker.shortages == (Shortage("f", 7, 0, 8, 1),)


def test_position_counts_who_comes_first() -> None:
    """In the application by priority and age, in the queue by application, in the partition by queue."""
    stage = played(
        "queue root.a", "queue root.b", "node n1 f=1", "app x queue=root.a", "app y queue=root.a", "app z queue=root.b",
        "ask x1 app=x f=5", "ask x2 app=x f=5 p=3", "ask y1 app=y f=5 p=2", "ask z1 app=z f=5 p=9",
    )  # fmt: skip
    assert explained(stage, "x1").position == (2, 2, 2, 3, 3, 4)
    assert explained(stage, "x2").position == (1, 2, 1, 3, 2, 4)
    assert explained(stage, "z1").position == (1, 1, 1, 1, 1, 4)


FULL = ("node n1 f=4", "run v queue=root.v node=n1 f=4")


def test_preempted_work_tells_who_took_its_room_and_goes_on_to_do_so() -> None:
    """By which kind and law, when, on which node, and what else was weighed; also when the victim is gone."""
    stage = played(
        "queue root.v", "queue root.a guaranteed={f=4}", "node n1 f=4", "node n2 f=4",
        "run v9 queue=root.v node=n1 f=4", "run w1 queue=root.v node=n2 f=2", "run w2 queue=root.v node=n2 f=2",
        "ask k queue=root.a f=4 other=yes", "cycle at=31s",
    )  # fmt: skip
    work = explained(stage, "v9").preempted
    assert work is not None
    assert (work.kind, work.taken_by, work.taken_by_application, work.taken_by_queue) == (
        "guarantee", "k", "a", "root.a",
    )  # fmt: skip
    assert (work.at_ns, work.victim.node_id) == (31 * 10**9, "n1")
    assert work.law.startswith("law 4")
    assert "2 of 2 nodes looked at" in work.alternatives
    stage.play(["release v9 app=v type=PREEMPTED_BY_SCHEDULER", "cycle"])
    lost = read(stage.engine, PARTITION, stage.now_ns).explain(Named("v9"))
    assert lost == LostWork("v9", work)
    application = read(stage.engine, PARTITION, stage.now_ns).explain(Named("a"))
    assert isinstance(application, ApplicationReport)
    assert explained(stage, "k").state == "Allocated"


def test_an_application_shows_each_kind_of_its_asks_once() -> None:
    """Equal asks are one entry with their number; those tried first come first."""
    stage = played("node n1 f=1", "app app1", *(f"ask k{n} f=5" for n in range(7)), "ask big f=9 p=2")
    report = read(stage.engine, PARTITION, 0).explain(Named("app1"))
    assert isinstance(report, ApplicationReport)
    assert [(group.size, group.first.key) for group in report.asks] == [(1, "big"), (7, "k0")]
    assert (report.pending, report.kinds) == (8, 2)


def test_the_history_is_bounded() -> None:
    """The oldest victim makes room for the newest."""
    stage = played("queue root.v", "queue root.a guaranteed={f=4}", *FULL, "ask k queue=root.a f=4 other=yes")
    result = stage.engine.cycle(31 * 10**9, 100)
    (decided,) = [effect for effect in result.effects if isinstance(effect, PreemptionDecided)]
    history = RecentVictims()
    for number in range(KEPT + 1):
        history.note_victims(decided._replace(victims=(decided.victims[0]._replace(key=f"v{number}"),)))
    assert history.find_victim("v0") is None
    assert history.find_victim("v1") is not None
    assert [victim.record.key for victim in islice(history.of_application("v"), 2)] == [f"v{KEPT}", f"v{KEPT - 1}"]


def test_what_never_fits_stands_apart_from_what_waits() -> None:
    """A max of 0 never changes by waiting; memory that is full does."""
    stage = played(
        "queue root.a max={pods=0,memory=10}", "node n1 memory=20 pods=9", "app app1", "ask v memory=10", "cycle"
    )
    stage.play(["ask k memory=5 pods=1", "cycle"])
    found = [(each.permanent, [short.type for short in each.shortages]) for each in explained(stage, "k").blockers]
    assert found == [(True, ["pods"]), (False, ["memory"])]


def test_waiting_may_help_where_the_shim_adds_nodes() -> None:
    """Nodes that are not there yet may come, if the shim is told what waits."""
    stage = played("app app1", "ask k", "cycle")
    assert [each.permanent for each in explained(stage, "k").blockers] == [True]
    stage.play(["attach scaling"])
    assert [(each.permanent, "may add nodes" in each.detail) for each in explained(stage, "k").blockers] == [
        (False, True)
    ]


def test_a_gang_that_no_empty_cluster_holds_waits_in_vain() -> None:
    """Two nodes hold two members each, and the gang has five."""
    stage = played(
        "node n1 vcore=2000", "node n2 vcore=2000", "app g style=Hard gang={vcore=5000}",
        *(f"ask p{number} app=g group=g placeholder" for number in range(5)), "cycle",
    )  # fmt: skip
    first = explained(stage, "p0").blockers[0]
    assert (first.kind, first.permanent) == ("gang-incomplete", True)
    assert "all nodes together would hold 4 of 5 such members even if they were empty" in first.detail


def test_fragments_are_named() -> None:
    """Seven of eight are free on each node, and no node is whole."""
    nodes = [f"node n{number} gpu=8" for number in range(8)]
    stage = played(
        *nodes, "app app1", *(f"run v{number} node=n{number} gpu=1" for number in range(8)), "ask k gpu=8", "cycle"
    )
    (blocker,) = explained(stage, "k").blockers
    assert (
        blocker.detail == "not enough room; nodes that are large enough have 56 of 64 gpu free in all, but in fragments"
    )
    stage.play(["decommission n0", *(f"decommission n{number}" for number in range(2, 8)), "node small gpu=7"])
    assert {each.detail for each in explained(stage, "k").blockers} == {
        "not enough room", "smaller than the ask even when empty",
    }  # fmt: skip


def test_nodes_that_could_hold_it_come_before_those_that_never_will() -> None:
    """A job for eight GPUs waits for the node that has them, and not because three others have none."""
    stage = played(
        *(f"node c{number} vcore=8000" for number in range(3)), "node g1 gpu=8", "node g2 gpu=8", "app app1",
        "run v1 node=g1 gpu=1", "run v2 node=g2 gpu=1", "ask k gpu=8", "cycle",
    )  # fmt: skip
    assert [(each.kind, each.nodes) for each in explained(stage, "k").blockers] == [
        ("node-full", 2), ("node-too-small", 3),
    ]  # fmt: skip
    (first,) = read(stage.engine, PARTITION, 0).explain(FirstBlockers(("k",))) or ()
    assert first is not None
    assert first.kind == "node-full"
    stage.play(["ask large gpu=9", "cycle"])
    (never,) = read(stage.engine, PARTITION, 0).explain(FirstBlockers(("large",))) or ()
    assert never is not None
    assert (never.kind, never.nodes, never.permanent) == ("node-too-small", 5, True)


def test_equal_asks_that_save_room_are_told_once() -> None:
    """Each on a node of its own: what keeps them is the same."""
    nodes = range(60)
    stage = played(*(f"node n{number} vcore=8000" for number in nodes), "app v", "app app1")
    stage.play(
        [f"run v{number} app=v node=n{number} vcore=7000" for number in nodes]
        + [f"ask k{number} vcore=8000" for number in range(3)]
    )
    stage.play(["cycles until=5s every=1s"])
    application = read(stage.engine, PARTITION, stage.now_ns).explain(Named("app1"))
    assert isinstance(application, ApplicationReport)
    assert [(each.size, each.first.state) for each in application.asks] == [(3, "Reserved")]


def test_an_application_tells_what_its_asks_do_not() -> None:
    """Since when nothing is asked for, and that placeholders timed out."""
    stage = played("node n1", "app app1", "app new", "app g style=Hard timeout=10s gang={vcore=2000}")

    def remarks_on(name: str) -> tuple[str, ...]:
        report = read(stage.engine, PARTITION, 0).explain(Named(name))
        assert isinstance(report, ApplicationReport)
        return report.remarks

    assert remarks_on("new") == ("nothing has been asked for since 1970-01-01T00:00:00Z",)
    stage.play(["cycle at=2s", "run k node=n1", "cycle at=5s"])
    assert remarks_on("app1") == ("nothing waits; the latest of what runs was asked for at 1970-01-01T00:00:02Z",)
    stage.play(["release k app=app1", "cycle"])
    assert remarks_on("app1") == ("nothing has waited or run since 1970-01-01T00:00:05Z",)
    stage.play(["ask p1 app=g group=g placeholder", "+ ask p2 app=g group=g placeholder", "cycle", "cycle at=11s"])
    stage.play(["release p1 app=g type=TIMEOUT", "release p2 app=g type=TIMEOUT"])
    report = read(stage.engine, PARTITION, stage.now_ns).explain(Named("g"))
    assert isinstance(report, ApplicationReport)
    assert report.remarks[0] == "2 placeholders of task group g timed out: no ask took their places in time"


def test_an_ask_whose_placeholder_leaves_for_it_does_not_wait() -> None:
    """It has its place, so it is neither counted nor named as the oldest."""
    stage = played("node n1", "app g gang={vcore=1000}", "ask p app=g group=g placeholder", "cycle")
    stage.play(["ask r app=g group=g", "cycle"])
    assert explained(stage, "r").state == "Allocated"
    (summary,) = read(stage.engine, PARTITION, 0).application_summaries()
    assert (summary.asks, summary.oldest_ask, summary.oldest_ask_ns) == (0, "", 0)


def test_a_parent_is_short_of_what_a_smaller_guarantee_keeps_from_it() -> None:
    """G3 of what users report: the parent holds one of its four."""
    stage = played(
        "queue root.low", "queue root.hi guaranteed={vcore=4000}",
        "queue root.hi.c1 guaranteed={vcore=1000} preemption.delay=1s", "node n1 vcore=4000",
        "run l1 queue=root.low node=n1", "run l2 queue=root.low node=n1", "run l3 queue=root.low node=n1",
        "run k1 queue=root.hi.c1 node=n1", "ask k2 queue=root.hi.c1 other=yes", "cycle at=2s",
    )  # fmt: skip
    outlook = explained(stage, "k2").preemption
    assert outlook is not None
    assert outlook.outcome == "NOT_UNDER_GUARANTEE"
    assert outlook.detail.endswith(
        "; root.hi is 3 vcore short of its 4 guaranteed, but the smaller guarantee of root.hi.c1 decides"
    )


def test_freed_room_that_others_took_is_counted() -> None:
    """A foreign pod comes to the node when the victim has left, so the ask looks elsewhere (F9 j of what users
    report)."""
    stage = played("queue root.v", "queue root.a guaranteed={f=4} preemption.delay=1s", *FULL)
    stage.play(["ask k queue=root.a f=4 other=yes", "cycle at=2s"])
    stage.play(["release v app=v type=PREEMPTED_BY_SCHEDULER", "+ foreign x node=n1 f=4", "cycle"])
    outlook = explained(stage, "k").preemption
    assert outlook is not None
    assert outlook.detail == "below root: none; room that was freed for it was lost 1 time"
    stage.play(["node n2 f=4", "run w queue=root.v node=n2 f=4"])
    outlook = explained(stage, "k").preemption
    assert outlook is not None
    assert outlook.detail == "needs f=4 on the node, fence root; room that was freed for it was lost 1 time"
    stage.play(["cycle at=30s"])
    outlook = explained(stage, "k").preemption
    assert outlook is not None
    assert outlook.detail == "1 victim is still to leave; room that was freed for it was lost 1 time"
