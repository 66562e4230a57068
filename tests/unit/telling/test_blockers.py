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
from kornel.core.telling.explain import Named
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
