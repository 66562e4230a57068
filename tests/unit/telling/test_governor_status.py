"""What the status and explanations tell of the governor, of stuck victims and of the monitor."""

from __future__ import annotations

from kornel.core.domain.resources import Resources
from kornel.core.preemption.foresight import PreemptionOutlook, PreemptionVerdict
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import Named
from kornel.core.telling.partitions.partition_status import GovernorStatus, PartitionStatus, ScopeStatus, StuckVictim
from kornel.core.telling.what_if.supposition import SupposeAsk
from tests.reading import read, status_of
from tests.scenarios.preemption.monitor_stage import ONE, SECOND_NS, START_NS, two_queues
from tests.scenarios.preemption.monitor_stage import PARTITION as MONITORED
from tests.scenarios.preemption.monitor_stage import Stage as MonitorStage
from tests.scenarios.stage import Stage
from tests.supposing import suppose
from tests.unit.partition.graph import digest

THREE_NODES = (
    "queue root.v",
    "queue root.w",
    "queue root.a guaranteed={f=10}",
    "node n1 f=1",
    "node n2 f=1",
    "run v1 queue=root.v node=n1 f=1 created=3s",
    "run v2 queue=root.v node=n2 f=1 created=2s",
    "ask k1 queue=root.a f=1 other=yes",
)


def status(stage: Stage, at_s: float | None = None) -> PartitionStatus:
    now_ns = stage.now_ns if at_s is None else round(at_s * SECOND_NS)
    return status_of(stage.engine, now_ns).partitions[0]


def governor(found: PartitionStatus) -> GovernorStatus:
    assert found.governor is not None
    return found.governor


def scopes(found: PartitionStatus) -> dict[str, ScopeStatus]:
    return {f"{scope.kind} {scope.name}".strip(): scope for scope in governor(found).scopes}


def outlook(stage: Stage, key: str, at_s: float | None = None) -> PreemptionOutlook:
    now_ns = stage.now_ns if at_s is None else round(at_s * SECOND_NS)
    report = read(stage.engine, "[rm-1]default", now_ns).explain(Named(key))
    assert isinstance(report, AskReport)
    assert report.preemption is not None
    return report.preemption


def spent() -> Stage:
    """v may lose one task a minute, and lost it at 30 s for k1; k2 is old enough too."""
    stage = Stage()
    stage.play(['partition governor="{window_ms: 60000, queue: {victims: 1, lost: {f: 500}}}"', *THREE_NODES])
    stage.play(["cycle at=30s"])
    stage.play(["ask k2 queue=root.a f=1 other=yes created=0s", "cycle at=40s"])
    return stage


def test_status_tells_what_was_taken_and_where_preemption_pauses() -> None:
    found = scopes(status(spent()))
    assert list(found) == ["cluster", "queue root.v"]
    assert (found["cluster"].victims, found["cluster"].most_victims) == (1, 20_000)
    loss = found["queue root.v"]
    assert (loss.victims, loss.most_victims) == (1, 1)
    assert (dict(loss.lost), dict(loss.most_lost)) == ({"f": 30}, {"f": 500})
    assert loss.paused_until_ns == 90 * SECOND_NS


def test_status_forgets_what_has_left_the_window() -> None:
    later = status(spent(), 90)
    assert [(s.kind, s.victims, s.paused_until_ns) for s in governor(later).scopes] == [("cluster", 0, None)]
    assert governor(later).denied > 0


def test_questions_leave_the_books_alone() -> None:
    """Also when what they ask for has left the window: forgetting is for decisions."""
    stage = spent()
    before = digest(vars(stage.engine.partition("[rm-1]default")))
    status(stage, 1000)
    outlook(stage, "k2")
    outlook(stage, "k2", 1000)
    assert digest(vars(stage.engine.partition("[rm-1]default"))) == before


def test_explain_and_status_tell_of_a_kind_that_only_watches() -> None:
    stage = Stage()
    stage.play(['partition governor="{shadow: [guarantee]}"', *THREE_NODES, "cycle at=30s"])
    found = outlook(stage, "k1")
    assert (found.verdict, found.blocked_by) == (PreemptionVerdict.FORBIDDEN, "governor: shadow")
    assert [victim.key for victim in found.victims] == ["v1"]
    assert governor(status(stage)).shadow == ("guarantee",)


def held_back(more: str = "") -> Stage:
    """Half of two units may be served within one second: k1 was at 30 s, and k2 is next at 31 s."""
    stage = Stage()
    stage.play([f"partition limit=0.5 {more}", *THREE_NODES, "ask k2 queue=root.a f=1 other=yes", "cycle at=30s"])
    return stage


def test_what_if_names_the_time_when_the_limit_has_room_for_a_gang() -> None:
    """Half of two was served at 30 s, so nobody leaves for a gang of one before 31 s, although its delay is over."""
    stage = Stage()
    stage.play(["partition limit=0.5", *(line.replace("f=10}", "f=10} preemption.delay=1ms") for line in THREE_NODES)])
    stage.play(["cycle at=30s"])
    question = SupposeAsk(Resources({"f": 1}), "root.a", asks=1, user="ann", gang=True)
    (found,) = suppose(read(stage.engine, "[rm-1]default", stage.now_ns), question).preempts
    assert found.not_before_ns == 31 * SECOND_NS


def test_status_tells_who_is_held_back() -> None:
    found = scopes(status(held_back()))["interval guarantee"]
    assert (found.victims, found.most_victims, found.paused_until_ns) == (1, 1_000, 31 * SECOND_NS)
    assert "interval guarantee" not in scopes(status(held_back(), 31))


def test_questions_leave_the_pace_alone() -> None:
    stage = held_back()
    before = digest(vars(stage.engine.partition("[rm-1]default")))
    status(stage, 1000)
    outlook(stage, "k2", 1000)
    assert digest(vars(stage.engine.partition("[rm-1]default"))) == before


def test_being_held_back_is_an_event_of_the_ask() -> None:
    """Told in the event history with the numbers, at most once in a while."""
    stage = Stage()
    stage.play(["partition limit=0.5", *THREE_NODES, "ask k2 queue=root.a f=1 other=yes", "attach events"])
    told = stage.play(["cycle at=30s"])
    message = "Preemption is held back: served 1 f within 1 s, preemption.cycle.limit is 0.5 of 2"
    assert [line for line in told if "held back" in line and "k2" in line and message in line], told


def test_status_names_victims_that_do_not_leave() -> None:
    stage = Stage()
    stage.play(['partition victim="{timeout: 60s}"', *THREE_NODES, "cycle at=30s"])
    assert status(stage).stuck == ()
    stage.play(["cycles until=91s every=1s"])
    (stuck,) = status(stage).stuck
    assert stuck == StuckVictim("v1", "v", "root.v", "n1", stuck.resources, "k1")
    assert dict(stuck.resources) == {"f": 1}


def starving() -> MonitorStage:
    stage = two_queues(dead_zone=0)
    stage.submit("app-b", [f"b{at}" for at in range(10)], ONE)
    return stage


def by_monitor(stage: MonitorStage, key: str) -> PreemptionOutlook:
    report = read(stage.engine, MONITORED, START_NS + round(stage.now_s * SECOND_NS)).explain(Named(key))
    assert isinstance(report, AskReport)
    assert report.preemption is not None
    return report.preemption


def test_explain_knows_what_the_monitor_does_for_an_ask() -> None:
    """Before the first round nothing is known; then it is owed, then its room is being asked back."""
    stage = starving()
    assert by_monitor(stage, "b0").detail == "its first round has not ended yet"
    stage.run_to(5)
    found = by_monitor(stage, "b0")
    assert found.verdict is PreemptionVerdict.UNDER_WAY
    assert found.detail == (
        "round 1: root.b should hold 10 f more; it is to run on n once these allocations at risk are gone: a099"
    )
    assert found.node_id == "n"
    assert found.not_before_ns == START_NS + 15 * SECOND_NS
    described = status_of(stage.engine).partitions[0].monitor
    assert described is not None
    assert (described.rounds, described.notices, described.at_risk) == (1, 1, 10)


def test_explain_says_when_the_monitor_owes_a_queue_nothing() -> None:
    """a has more than its guarantee: its further asks get nothing by the monitor."""
    stage = starving()
    stage.submit("app-a", ["more"], ONE)
    stage.run_to(5)
    found = by_monitor(stage, "more")
    assert (found.verdict, found.blocked_by) == (
        PreemptionVerdict.FORBIDDEN,
        "monitor: no share is owed to its queue",
    )
