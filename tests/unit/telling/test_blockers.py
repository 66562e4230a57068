"""Why work waits: one case for each kind of blocker, with its numbers, and the ranking."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import pytest

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.preemption.foresight import PreemptionVerdict
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


class Case(NamedTuple):
    """``blocker``: (kind, level, name, nodes, permanent), and the numbers, of the ask k."""

    lines: tuple[str, ...]
    blocker: tuple[str, str, str, int, bool]
    shortages: tuple[Shortage, ...] = ()


def short(limit: int, used: int, asked: int, name: str = "f") -> tuple[Shortage, ...]:
    return (Shortage(name, limit, used, asked, asked + used - limit),)


CASES: dict[str, Case] = {
    "leaf": Case(
        ("queue root.a max={f=3}", "node n1 f=9", "run v queue=root.a node=n1 f=2", "ask k queue=root.a f=2"),
        ("queue-quota", "queue", "root.a", 0, False),
        short(3, 2, 2),
    ),
    "parent": Case(
        (
            "queue root.p max={f=3}",
            "queue root.p.a",
            "node n1 f=9",
            "run v queue=root.p.a node=n1 f=2",
            "ask k queue=root.p.a f=2",
        ),
        ("queue-quota", "queue", "root.p", 0, False),
        short(3, 2, 2),
    ),
    "more than the queue ever has": Case(
        ("queue root.a max={f=3}", "node n1 f=9", "ask k queue=root.a f=4"),
        ("queue-quota", "queue", "root.a", 0, True),
        short(3, 0, 4),
    ),
    "cluster": Case(
        ("node n1 f=3", "ask k queue=root.a f=4"),
        ("cluster-size", "node", "root", 0, True),
        short(3, 0, 4),
    ),
    "user": Case(
        ("queue root.a", "limit root.a users=user max={f=1}", "node n1 f=9", "ask k queue=root.a f=2"),
        ("user-quota", "user", "user user in root.a", 0, True),
        short(1, 0, 2),
    ),
    "group": Case(
        (
            "queue root.a",
            "limit root.a groups=g max={f=3}",
            "node n1 f=9",
            "app app1 queue=root.a user=u groups=g",
            "ask v f=2",
            "cycle",
            "ask k f=2",
        ),
        ("group-quota", "user", "group g in root.a", 0, False),
        short(3, 2, 2),
    ),
    "applications of a queue": Case(
        (
            "queue root.a maxapplications=1",
            "node n1 f=9",
            "app app1 queue=root.a",
            "app app2 queue=root.a",
            "ask v app=app1 f=1",
            "cycle",
            "ask k app=app2 f=1",
        ),
        ("queue-applications", "application", "root.a", 0, False),
        short(1, 1, 1, "applications"),
    ),
    "applications of a user": Case(
        (
            "queue root.a",
            "limit root.a users=u apps=1",
            "node n1 f=9",
            "app app1 queue=root.a user=u",
            "app app2 queue=root.a user=u",
            "ask v app=app1 f=1",
            "cycle",
            "ask k app=app2 f=1",
        ),
        ("user-applications", "user", "user u in root.a", 0, False),
        short(1, 1, 1, "applications"),
    ),
    "full nodes, the closest named": Case(
        (
            "node n1 f=4",
            "node n2 f=5",
            "node n3 f=9",
            "drain n3",
            "run v queue=root.a node=n1 f=3",
            "run w queue=root.a node=n2 f=3",
            "ask k queue=root.a f=3",
        ),
        ("node-full", "node", "n2", 2, False),
        short(5, 3, 3),
    ),
    "draining": Case(
        ("node n1 f=4", "drain n1", "ask k queue=root.a f=3"),
        ("node-draining", "node", "n1", 1, False),
    ),
    "too small for ever": Case(
        ("node n1 f=4", "node n2 f=3", "ask k queue=root.a f=5"),
        ("node-too-small", "node", "n1", 2, True),
        short(4, 0, 5),
    ),
    "reserved for another": Case(
        (
            "node n1 f=4",
            "node n2 f=4",
            "run v queue=root.a node=n1 f=2",
            "run w queue=root.a node=n2 f=3",
            "ask big queue=root.a f=3",
            "cycles until=5s every=1s",
            "ask k queue=root.a f=2",
        ),
        ("node-reserved", "node", "n1", 1, False),
    ),
    "kept for another below a limit": Case(
        (
            "queue root.a max={f=3}",
            "node n1 f=9",
            "run v queue=root.a node=n1 f=2",
            "ask big queue=root.a f=3",
            "cycles until=5s every=1s",
            "ask k queue=root.a f=1",
        ),
        ("limit-reserved", "queue", "root.a", 0, False),
    ),
    "kept for itself": Case(
        (
            "node n1 f=4",
            "node n2 f=4",
            "run v queue=root.a node=n1 f=2",
            "run w queue=root.a node=n2 f=2",
            "ask k queue=root.a f=3",
            "cycles until=5s every=1s",
        ),
        ("reserved-node-full", "reservation", "n1", 1, False),
        short(4, 2, 3),
    ),
    "no nodes": Case(("ask k queue=root.a f=1",), ("no-nodes", "node", "", 0, True)),
    "required node unknown": Case(
        ("node n1 f=4", "ask k queue=root.a f=1 required=n9"), ("required-node-unknown", "node", "n9", 0, True)
    ),
    "required node full": Case(
        ("node n1 f=4", "node n2 f=4", "run v queue=root.a node=n1 f=4 p=9", "ask k queue=root.a f=1 required=n1"),
        ("node-full", "node", "n1", 1, False),
        short(4, 4, 1),
    ),
    "waits for victims": Case(
        (
            "queue root.v",
            "queue root.a guaranteed={f=4}",
            "node n1 f=4",
            "run v queue=root.v node=n1 f=4",
            "ask k queue=root.a f=4 other=yes",
            "cycle at=31s",
        ),
        ("waiting-for-victims", "reservation", "n1", 1, False),
        short(4, 4, 4),
    ),
    "waits for a placeholder": Case(
        ("node n1 f=4", "app app1", "ask ph f=9 group=g placeholder", "ask k f=1 group=g", "cycle"),
        ("waiting-for-placeholder", "application", "g", 0, False),
    ),
    "waits for an answer": Case(
        ("node n1 f=4", "attach predicates", "app app1", "ask k f=1", "cycle"),
        ("waiting-for-answer", "node", "n1", 0, False),
    ),
    "refused by the shim": Case(
        (
            "node n1 f=4",
            "attach predicates",
            "app app1",
            "ask k f=1",
            "cycle",
            "answer k refuse=n1 reason=taint",
            "cycle",
        ),
        ("node-refused", "node", "n1", 1, False),
    ),
    "left alone": Case(
        (
            "queue root.a application.unschedasks.backoff=1",
            "node n1 f=4",
            "run v queue=root.a node=n1 f=2",
            "node n2 f=4",
            "run w queue=root.a node=n2 f=2",
            "ask k queue=root.a f=3",
            "cycle",
        ),
        ("back-off", "application", "a", 0, False),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_kind_of_blocker(case: Case) -> None:
    """Each is named with its level, where it is and how much is missing."""
    report = explained(played(*case.lines), "k")
    (blocker,) = [found for found in report.blockers if found.kind == case.blocker[0]]
    assert (*blocker[:3], blocker.nodes, blocker.permanent) == case.blocker
    if case.shortages:
        assert blocker.shortages == case.shortages


def test_ranking_puts_what_never_ends_first_then_placement_order_then_what_lacks_most() -> None:
    """A quota that is too small for ever, then the user, the queues, and the nodes."""
    stage = played(
        "queue root.p max={f=4}", "queue root.p.a", "limit root.p.a users=user max={f=6}", "node n1 f=9",
        "run v queue=root.p.a node=n1 f=5", "ask k queue=root.p.a f=5",
    )  # fmt: skip
    report = explained(stage, "k")
    assert [(b.kind, b.name, b.permanent) for b in report.blockers] == [
        ("queue-quota", "root.p", True),
        ("user-quota", "user user in root.p.a", False),
        ("cluster-size", "root", False),
        ("node-full", "n1", False),
    ]


def test_five_thousand_nodes_are_one_line() -> None:
    """Nodes are grouped by reason, with their number and the closest one."""
    stage = Stage()
    nodes = [f"node n{number} f={number % 7 + 1}" for number in range(5_000)]
    stage.play([nodes[0], *(f"+ {node}" for node in nodes[1:]), "ask k queue=root.a f=8"])
    report = explained(stage, "k")
    (blocker,) = report.blockers
    assert (blocker.kind, blocker.nodes, blocker.name, blocker.permanent) == ("node-too-small", 5_000, "n1000", True)
    assert blocker.shortages == short(7, 0, 8)


def test_room_on_a_node_is_told_when_only_a_limit_is_in_the_way() -> None:
    """Full nodes block nobody while another has room."""
    stage = played(
        "queue root.a max={f=3}", "node n1 f=2", "node n2 f=9", "run v queue=root.a node=n1 f=2",
        "ask k queue=root.a f=2",
    )  # fmt: skip
    report = explained(stage, "k")
    assert [blocker.kind for blocker in report.blockers] == ["queue-quota"]
    assert report.fitting_nodes == 1


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


@pytest.mark.parametrize(
    ("lines", "verdict", "blocked_by", "outcome"),
    [
        (("queue root.v", "queue root.a guaranteed={f=4}", *FULL, "ask k queue=root.a f=4 other=yes"),
         "would-help", "preemption.delay of its queue", "TRIGGERED"),
        (("queue root.v", "queue root.a guaranteed={f=4}", *FULL, "ask k queue=root.a f=4"),
         "forbidden", "preemption policy of the ask", "ASK_MAY_NOT_PREEMPT"),
        (("queue root.v", "queue root.a", *FULL, "ask k queue=root.a f=4 other=yes"),
         "forbidden", "law 4", "NO_GUARANTEE"),
        (("queue root.v", "queue root.a guaranteed={f=3}", *FULL, "ask k queue=root.a f=4 other=yes"),
         "forbidden", "law 4", "ASK_EXCEEDS_GUARANTEE"),
        (("queue root.v guaranteed={f=2}", "queue root.a guaranteed={f=2} preemption.policy=fence", *FULL,
          "ask k queue=root.a f=2 other=yes"), "forbidden", "law 7", "FENCED_AT_LEAF"),
        (("queue root.v preemption.policy=disabled", "queue root.a guaranteed={f=4}", *FULL,
          "ask k queue=root.a f=4 other=yes"), "no-victims", "the laws let nobody go", "NO_CANDIDATES"),
        (("queue root.v", "queue root.a guaranteed={f=4}", *FULL, "ask k queue=root.a f=4 other=yes p=-1"),
         "no-victims", "the laws let nobody go", "NO_CANDIDATES"),
        (("partition preemption=off", "queue root.v", "queue root.a guaranteed={f=4}", *FULL,
          "ask k queue=root.a f=4 other=yes"), "forbidden", "preemption.enabled is off", ""),
        (("queue root.v", "queue root.a guaranteed={f=4}", "limit root.a users=user max={f=3}", *FULL,
          "ask k queue=root.a f=4 other=yes"), "forbidden", "user-quota: preemption cannot help", ""),
        (("queue root.v", "queue root.a guaranteed={f=4}", *FULL, "ask k queue=root.a f=4 other=yes", "cycle at=31s"),
         "under-way", "", "TRIGGERED"),
        (("queue root.v", "queue root.a", *FULL, "node n2 f=4", "ask k queue=root.a f=4 required=n1"),
         "would-help", "", "TRIGGERED"),
    ],
)  # fmt: skip
def test_what_stands_against_preemption(lines: tuple[str, ...], verdict: str, blocked_by: str, outcome: str) -> None:
    """The switch, limit, law, fence, delay or flag that forbids an attempt is named, with the planner's outcome."""
    found = explained(played(*lines), "k").preemption
    assert found is not None
    assert (found.verdict, found.outcome) == (verdict, outcome)
    assert found.blocked_by.startswith(blocked_by) if blocked_by else not found.blocked_by
    if verdict in (PreemptionVerdict.WOULD_HELP, PreemptionVerdict.UNDER_WAY):
        assert [victim.key for victim in found.victims] == ["v"]
        assert found.node_id == "n1"


def test_times_of_the_next_attempt() -> None:
    """First the delay counts, then the pause between two searches; who is protected by what is counted."""
    stage = played(
        "queue root.v", "queue root.w preemption.policy=disabled", "queue root.a guaranteed={f=4}", "node n1 f=4",
        "run v queue=root.v node=n1 f=1 p=9", "run w queue=root.w node=n1 f=3", "ask k queue=root.a f=4 other=yes",
    )  # fmt: skip
    found = explained(stage, "k").preemption
    assert found is not None
    assert found.not_before_ns == 30 * 10**9
    assert [(p.law, p.allocations, p.example) for p in found.protected] == [
        ("law 6", 1, "root.v"),
        ("preemption disabled", 1, "root.w"),
    ]
    stage.play(["cycle at=31s"])
    found = explained(stage, "k").preemption
    assert found is not None
    assert found.not_before_ns == 32 * 10**9


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


def test_a_new_application_that_waits_for_its_turn_is_told_whose_turn_it_is() -> None:
    """In a leaf sorted stateaware one at a time may start, the one that waits for room."""
    stage = played(
        "queue root.a application.sort.policy=stateaware",
        "node n1 f=3",
        "app old",
        "run v app=old node=n1 f=2",
        "app first",
        "app second",
        "ask big app=first f=2",
        "ask k app=second f=1",
        "cycle",
    )
    (blocker,) = explained(stage, "k").blockers
    assert (blocker.kind, blocker.name) == ("queue-applications", "root.a")
    assert blocker.detail.endswith("it is the turn of first")
