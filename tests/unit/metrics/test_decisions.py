"""What metrics count of the engine's effects."""

from __future__ import annotations

import pytest

from kornel.core.domain.application_states import AppState
from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationUpdated,
    NodeRejected,
    PreemptionDecided,
    VictimRecord,
)
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.metrics import decisions as module
from kornel.core.metrics import preemptions
from kornel.core.metrics.decisions import Decisions, QueueCounts
from kornel.core.service.machine.clock import SECOND_NS, ManualClock

PARTITION = "[rm]default"
VICTIM = VictimRecord("v", "other", "root.b", "n1", Resources({"vcore": 500}), 0)


class Desk:
    """Decisions of a core whose applications are in the queues named here."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.queues = {"app": "root.a"}
        self.decisions = Decisions(lambda name: self.queues.get(name, ""), self.clock.now_ns)
        self.preemptions = self.decisions.preemptions

    def decided(self, kind: str, outcome: Outcome, *, key: str = "k", detail: str = "", victims: int = 0) -> None:
        decision = PreemptionDecided(
            self.clock.now_ns(), PARTITION, kind, key, "app", "root.a", outcome, detail, "n1", (VICTIM,) * victims
        )
        self.decisions.observe([decision])

    def placed(self, key: str = "k", node_id: str = "n1") -> None:
        spec = AllocationSpec(key, "app", PARTITION, None)
        self.decisions.observe([Allocated(spec, node_id, Resources())])


def test_allocations_count_for_the_queue_of_their_application() -> None:
    desk = Desk()
    spec = AllocationSpec("k", "app", PARTITION, None)
    desk.decisions.observe([ApplicationAccepted("app", queue="root.a"), Allocated(spec, "n", Resources())])
    desk.queues.clear()
    desk.placed()
    assert desk.decisions.queues["root.a"].placed == desk.decisions.everywhere.placed == 2


def test_what_was_allocated_and_not_released_runs() -> None:
    """A scrape counts no placement: neither one that it sees before its effect, nor one that it learns of meanwhile."""
    counted, shown = QueueCounts(), []
    for placed, running, meanwhile in ((3, 5, 0), (2, 4, 0), (0, 6, 1), (1, 3, 0), (0, 0, 0)):
        counted.placed += placed
        counted.allocated = counted.placed
        counted.placed += meanwhile
        counted.match_running(running)
        shown.append((counted.allocated, counted.released))
    assert shown == [(3, 0), (5, 1), (5, 1), (7, 4), (7, 7)]


def test_what_ran_before_counts_once() -> None:
    """This also holds while a core that follows another observes nothing itself."""
    counted, shown = QueueCounts(), []
    for running in (5, 7, 4, 4, 6):
        counted.take_baseline(running)
        shown.append((counted.placed, counted.released))
    assert shown == [(5, 0), (7, 0), (7, 3), (7, 3), (9, 3)]


def test_an_application_that_is_gone_already_counts_for_its_queue() -> None:
    """The state may be ahead of the effects that are observed."""
    desk = Desk()
    desk.queues.clear()
    desk.decisions.observe([ApplicationAccepted("app", PARTITION, "root.a")])
    desk.placed()
    assert desk.decisions.queues["root.a"].placed == 1


def test_an_application_that_ends_counts_for_the_queue_it_was_in() -> None:
    desk = Desk()
    desk.decisions.observe([ApplicationAccepted("app", queue="root.a"), ApplicationUpdated("app", "Running", 0, "")])
    desk.queues.clear()
    desk.decisions.observe([ApplicationUpdated("app", "Completed", 0, "")])
    assert dict(desk.decisions.queues["root.a"].ended) == {"Completed": 1}
    assert desk.decisions.states["Running"] == 1


def test_states_count_without_a_look_at_queues() -> None:
    """Only the end of an application counts for its queue."""
    desk = Desk()
    asked: list[str] = []
    decisions = Decisions(lambda name: asked.append(name) or "root.a", desk.clock.now_ns)  # type: ignore[func-returns-value]
    entered = (AppState.ACCEPTED, AppState.RUNNING, AppState.RUNNING, AppState.COMPLETING)
    decisions.observe([ApplicationUpdated(f"app-{n}", state, 0, "") for n, state in enumerate(entered)])
    assert decisions.states == {AppState.ACCEPTED: 1, AppState.RUNNING: 2, AppState.COMPLETING: 1}
    assert asked == []
    decisions.observe([ApplicationUpdated("app-0", AppState.FAILED, 0, "")])
    assert decisions.states[AppState.FAILED] == 1
    assert dict(decisions.queues["root.a"].ended) == {AppState.FAILED: 1}
    assert asked == ["app-0"]


def test_an_application_that_comes_back_counts_for_its_new_queue() -> None:
    desk = Desk()
    desk.decisions.observe([ApplicationAccepted("app", queue="root.a")])
    desk.decisions.observe([ApplicationAccepted("app", queue="root.b"), ApplicationUpdated("app", "Failed", 0, "")])
    assert dict(desk.decisions.queues["root.b"].ended) == {"Failed": 1}


def test_refusals_count() -> None:
    desk = Desk()
    desk.decisions.observe(
        [
            AllocationRejected("k", "app", "no-resources", False),
            NodeRejected("n", "partition-not-found: default"),
            NodeRejected("n", "node-exists: n"),
        ]
    )
    assert desk.decisions.count_refused() == 1
    assert desk.decisions.failed_nodes == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUES_REMEMBERED", 10)
    desk = Desk()
    for n in range(30):
        desk.decisions.observe([ApplicationAccepted(f"app-{n}", queue=f"root.q{n}")])
    assert len(desk.decisions.queues) <= 10
    assert "root.q29" in desk.decisions.queues


@pytest.mark.parametrize(
    ("kind", "outcome", "detail", "law", "victims"),
    [
        ("guarantee", Outcome.TRIGGERED, "", "", 2),
        ("guarantee", Outcome.NOT_UNDER_GUARANTEE, "", "4", 0),
        ("guarantee", Outcome.FENCED_AT_LEAF, "", "7", 0),
        ("guarantee", Outcome.SHADOW, "", "", 0),
        ("guarantee", Outcome.VICTIM_STUCK, "", "", 0),
        ("monitor", Outcome.LAW_BROKEN, "law 2: root.b ends below its guarantee", "2", 0),
        ("monitor", Outcome.NOTIFIED, "", "", 0),
        ("quota", Outcome.PARTIAL, "", "", 2),
        ("quota", Outcome.BUDGET_SPENT, "", "", 2),
        ("quota", Outcome.SHADOW, "", "", 0),
    ],
)
def test_decisions_count_by_kind_outcome_and_law(
    kind: str, outcome: Outcome, detail: str, law: str, victims: int
) -> None:
    """Victims are those that were told to leave: not what would have been, nor what was only announced."""
    desk = Desk()
    desk.decided(kind, outcome, detail=detail, victims=2)
    assert desk.preemptions.attempts[kind, outcome, law] == 1
    assert desk.preemptions.victims[kind] == victims
    assert desk.preemptions.lost[kind, "vcore"] == 500 * victims


@pytest.mark.parametrize(("node_id", "result"), [("n1", "placed"), ("n2", "elsewhere")])
def test_an_ask_that_preempted_is_followed_to_its_node(node_id: str, result: str) -> None:
    desk = Desk()
    desk.decided("guarantee", Outcome.TRIGGERED)
    desk.clock.advance(3 * SECOND_NS)
    assert desk.preemptions.oldest_wait_s() == 3
    desk.placed("another")
    assert len(desk.preemptions.waiting) == 1
    desk.placed(node_id=node_id)
    assert desk.preemptions.ended == {"placed": 0, "elsewhere": 0, "gone": 0} | {result: 1}
    assert desk.preemptions.placed.total == 3
    assert desk.preemptions.oldest_wait_s() == 0


def test_a_second_attempt_does_not_hide_how_long_an_ask_has_waited() -> None:
    desk = Desk()
    desk.decided("guarantee", Outcome.TRIGGERED)
    desk.clock.advance(60 * SECOND_NS)
    desk.decided("guarantee", Outcome.TRIGGERED)
    assert desk.preemptions.oldest_wait_s() == 60


def test_an_ask_that_preempted_and_is_withdrawn_is_gone() -> None:
    desk = Desk()
    desk.decided("guarantee", Outcome.TRIGGERED)
    desk.decided("guarantee", Outcome.TRIGGERED, key="stays")
    desk.preemptions.forget_gone(lambda partition, key: (partition, key) == (PARTITION, "stays"))
    assert desk.preemptions.ended["gone"] == 1
    assert list(desk.preemptions.waiting) == [(PARTITION, "stays")]


def test_decisions_that_serve_no_ask_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.decided("monitor", Outcome.TRIGGERED, key="", victims=1)
    assert not desk.preemptions.waiting
    monkeypatch.setattr(preemptions, "WAITING_REMEMBERED", 3)
    for n in range(5):
        desk.decided("guarantee", Outcome.TRIGGERED, key=f"k{n}")
    assert [key for _, key in desk.preemptions.waiting] == ["k2", "k3", "k4"]
