"""Applications that are starting in a leaf sorted ``stateaware``: drivers, executors, and the time (preemption.md G.3).
See also ``priorities.txt``."""

from __future__ import annotations

from kornel.core.domain.application_states import AppState
from kornel.core.state.waiting.admission import review_start
from tests.scenarios.stage import Stage

LEAF = "queue root.a max={vcore=8000} application.sort.policy=stateaware"
MINUTE_NS = 60 * 10**9


def played(*lines: str) -> Stage:
    stage = Stage()
    stage.play([LEAF, "node n1 vcore=64000", *lines])
    return stage


def watched(stage: Stage) -> list[int]:
    """The times at which a start is looked at."""
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    return [at_ns for at_ns, _, act in state.timers if getattr(act, "func", None) is review_start]


def test_ten_drivers_share_a_queue_with_their_executors() -> None:
    """J-P15: each asks for two executors a second after it runs, and ends once both have run for ten seconds."""
    names = [f"a{number}" for number in range(10)]
    stage = played(*(f"app {name}" for name in names), *(f"ask {name}-d app={name} originator" for name in names))
    ran: dict[str, int] = {}
    most = 0
    for second in range(1, 120):
        stage.play([f"cycle at={second}s"])
        state = stage.engine.partition("[rm-1]default")
        assert state is not None
        most = max(most, len(state.queues["root.a"].starting))
        for name in names:
            application = state.applications.get(name)
            if application is None or application.state is not AppState.RUNNING:
                continue
            held = len(application.allocations)
            if held and not application.asks and name not in ran:
                stage.play([f"ask {name}-1 app={name}", f"+ ask {name}-2 app={name}"])
                ran[name] = 0
            elif held == 3:
                ran[name] += 1
                if ran[name] == 10:
                    stage.play([f"release {name}-{part} app={name}" for part in "d12"])
    assert sorted(name for name in names if ran.get(name) == 10) == names
    assert most == 1


def test_time_is_watched_only_for_those_who_wait() -> None:
    """A driver without an ask has a minute; with one, five minutes matter to the next application alone."""
    stage = played("app one", "ask d1 app=one originator", "cycle at=1s")
    assert watched(stage) == [10**9 + MINUTE_NS]
    stage = played("app one", "ask d1 app=one originator", "+ ask e1 app=one p=-1 vcore=9000", "cycle at=1s")
    assert watched(stage) == []
    stage.play(["app two", "ask d2 app=two originator", "cycle at=2s"])
    assert watched(stage) == [10**9 + 5 * MINUTE_NS]


def test_who_comes_after_five_minutes_finds_nobody_starting() -> None:
    """Although nobody watched the time."""
    stage = played("app one", "ask d1 app=one originator", "+ ask e1 app=one p=-1 vcore=9000", "cycle at=1s")
    stage.play(["app two at=301s", "ask d2 app=two originator"])
    assert "allocate d2 on n1" in stage.play(["cycle"])


def test_a_changed_policy_ends_starts() -> None:
    """Where the policy comes into force, those that run have started."""
    drivers = ("app one", "app two", "ask d1 app=one originator", "+ ask d2 app=two originator", "cycle at=1s")
    stage = played(*drivers)
    assert "allocate d2 on n1" in stage.play([LEAF.replace("stateaware", "fifo"), "update-config", "cycle"])
    stage.play([LEAF, "update-config", "app three", "ask d3 app=three originator"])
    assert "allocate d3 on n1" in stage.play(["cycle"])


def test_recovered_drivers_have_a_minute_like_others() -> None:
    """However many the shim reports at once: a minute later all have started, and one new application starts."""
    names = [f"a{number}" for number in range(5)]
    recovered = (f"ask {name}-d app={name} node=n1 originator" for name in names)
    stage = played(*(f"app {name}" for name in names), *recovered, "app new", "ask d app=new originator")
    starting = stage.state.queues["root.a"].starting
    assert stage.play(["cycle at=59s"]) == ["no answer"]
    assert [application.application_id for application in starting] == names
    assert "allocate d on n1" in stage.play(["cycle at=61s"])
    assert [application.application_id for application in starting] == ["new"]
