"""What a failing or removed application may not do any more (protocol.md 6.5, 8.1, 3.6; scheduling.md S-26)."""

from __future__ import annotations

import pytest

from kornel.core.domain.application_states import AppEvent, AppState
from kornel.core.domain.commands import Command
from kornel.core.domain.effects import ApplicationRemoved, Effect
from kornel.core.engine import lifecycle
from kornel.core.engine.engine import Engine
from kornel.core.state.books import audit
from kornel.core.state.options import EngineOptions
from tests.scenarios.stage import Stage


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.play(["node n1", "app app1", "ask k", "ask big vcore=99000", "cycle"])
    return made


def fail(stage: Stage) -> None:
    state = stage.state
    lifecycle.fire_event(state, state.applications["app1"], AppEvent.FAIL, stage.now_ns, "ResourceReservationTimeout")
    stage.play(["cycle"])


def test_case_132_a_failing_application_takes_nothing_back(stage: Stage) -> None:
    """What the shim could not start stays where it is when the application is failing."""
    fail(stage)
    answers = stage.play(["release k type=SCHEDULING_FAILED_ON_RM", "show request k"])
    assert answers == ["request k node=n1"]


def test_removing_a_failing_application_reports_no_state(stage: Stage) -> None:
    """Failing and Resuming applications go without a state change (6.5)."""
    fail(stage)
    assert stage.play(["remove-app app1"]) == ["release k STOPPED_BY_RM"]
    assert audit.check(stage.state) == []


@pytest.mark.parametrize(
    ("first", "closing"),
    [
        (["remove-app app1"], ["Running"]),
        (["release k", "remove-app app1"], []),
        (["release k", "app app2", "ask k2 app=app2", "remove-app app2"], []),
        (["app app2", "remove-app app2"], ["New"]),
    ],
    ids=["running", "left with nothing to do", "accepted, holds nothing", "new"],
)
def test_removal_of_what_had_not_finished_is_told_to_histories(
    stage: Stage, first: list[str], closing: list[str]
) -> None:
    """6.5: with the state it was in; an application whose removal completes it has said so already."""
    told: list[Effect] = []
    apply = stage.engine.apply

    def heard(command: Command, now_ns: int) -> list[Effect]:
        effects = apply(command, now_ns)
        told.extend(effects)
        return effects

    stage.engine.apply = heard  # type: ignore[method-assign]
    stage.play(first)
    removed = [effect for effect in told if isinstance(effect, ApplicationRemoved)]
    assert [effect.state for effect in removed] == closing
    assert {effect.queue for effect in removed} <= {"root.a"}


def test_ended_applications_are_bounded_by_number() -> None:
    """The oldest expire early, and nothing of them is left. Who the shim removed does not count as told. After three
    days the rest expire, by one timer."""
    stage = Stage()
    stage.engine = Engine(EngineOptions(ended=2))
    stage.play(["node n1", *[f"app a{i}" for i in range(5)], *[f"ask k{i} app=a{i}" for i in range(5)], "cycle"])
    assert stage.play(["remove-app a0"])[:1] == ["app a0 Completing"]
    told = []
    for i in range(1, 5):
        told += stage.play([f"release k{i} app=a{i}", f"cycle at={31 * i}s"])
    assert [line for line in told if line.endswith("Expired")] == ["app a1 Expired", "app a2 Expired"]
    state = stage.state
    assert [ended.spec.application_id for ended in state.past.finished_applications(stage.now_ns)] == ["a3", "a4"]
    assert sum(getattr(action, "func", None) is lifecycle._forget_old for _, _, action in state.timers) == 1
    assert stage.play(["cycle at=80h"])[-2:] == ["app a3 Expired", "app a4 Expired"]


@pytest.mark.parametrize("ending", ["release k app=a", "remove-app a"])
def test_nobody_hears_that_an_application_has_expired_whose_id_is_in_use(ending: str) -> None:
    """A shim would take it for the one that runs. Its predecessor and one of that ID that was rejected expire here."""
    stage = Stage()
    stage.engine = Engine(EngineOptions(ended=1))
    stage.play(["node n1", "app a queue=root.nowhere", "app a", "ask k app=a", "cycle", ending, "cycle at=31s"])
    stage.play(["app a", "ask k2 app=a", "cycle", "app c", "ask k3 app=c", "cycle", "release k3 app=c"])
    told = stage.play(["cycle at=62s", "app b queue=root.nowhere", "cycle at=80h"])
    assert told == ["app c Completed", "reject app b no-queue", "app c Expired", "app b Expired"]


def test_an_event_without_meaning_is_ignored(stage: Stage) -> None:
    """An event that has no row for the state changes nothing and says nothing."""
    state = stage.state
    application = state.applications["app1"]
    lifecycle.fire_event(state, application, AppEvent.REJECT, stage.now_ns)
    assert application.state is AppState.RUNNING
    assert stage.play(["cycle"]) == ["no answer"]


def test_the_last_placeholder_of_a_failing_application_fails_it() -> None:
    """Failing becomes Failed with its last placeholder, and the ID is free."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask p placeholder group=g", "cycle"])
    fail(stage)
    assert stage.play(["release p type=TIMEOUT", "show app app1", "app app1"]) == [
        "app app1 Failed",
        "app app1 absent",
        "accept app app1",
    ]


def test_the_last_placeholder_of_a_resuming_application_resumes_it() -> None:
    """Resuming becomes Accepted with its last placeholder."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask p placeholder group=g", "cycle"])
    state = stage.state
    lifecycle.fire_event(state, state.applications["app1"], AppEvent.RESUME, 0, "ResourceReservationTimeout")
    assert stage.play(["cycle"]) == ["app app1 Resuming ResourceReservationTimeout"]
    assert stage.play(["release p type=TIMEOUT"]) == ["app app1 Accepted"]
