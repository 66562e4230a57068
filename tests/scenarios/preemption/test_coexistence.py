"""The kinds beside each other: every row of the table in preemption.md H, through the engine."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.config.loader import load
from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Allocated, Effect, PreemptionDecided, Released
from kornel.core.domain.reasons import Outcome
from tests.scenarios.preemption.monitor_stage import START_S, Stage, configuration, decided, killed, placed
from tests.scenarios.preemption.test_monitor import AT_ONCE, ONE, guaranteed, withdrawn

Queues = dict[str, dict[str, Any]]


def enforced(queues: Queues, path: str, most: int, delay: str = "10s") -> Queues:
    """*queues* with a max of *most* for *path*, to be enforced after *delay*."""
    changed = dict(queues)
    before = changed.get(path, {})
    changed[path] = {
        "resources": {**before.get("resources", {}), "max": {"f": most}},
        "properties": {**before.get("properties", {}), "quota.preemption.delay": delay},
    }
    return changed


def kinds(effects: list[Effect]) -> list[str]:
    """Of decisions that told somebody to leave, in their order."""
    return [e.kind for e in effects if isinstance(e, PreemptionDecided) and e.victims and e.outcome in TOLD]


TOLD = (Outcome.TRIGGERED, Outcome.FULL, Outcome.BEST_EFFORT, Outcome.PARTIAL)


def stage_of(queues: Queues, nodes: dict[str, int], **settings: Any) -> Stage:
    stage = Stage(queues, **{"quotapreemptionenabled": True, "dead_zone": 0, **AT_ONCE, **settings})
    for name, amount in nodes.items():
        stage.node(name, {"f": amount})
    for path in queues:
        if path != "root" and not any(other.startswith(f"{path}.") for other in queues):
            stage.application(f"app-{path}", path)
    return stage


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{at:02}" for at in range(count)]


def reconfigure(stage: Stage, queues: Queues, **settings: Any) -> None:
    text = configuration(queues, **{"quotapreemptionenabled": True, "dead_zone": 0, **AT_ONCE, **settings})
    stage.apply(UpdateConfiguration("rm", text))


def test_any_two_nobody_is_told_twice_and_marked_room_counts_as_gone() -> None:
    """All kinds at once on one queue: every victim is told once, and together they take no more than one would."""
    queues = {**guaranteed(v=4, a=6), "d": {}}
    stage = stage_of(queues, {"n": 10}, coexist=True)
    stage.submit("app-v", numbered("v", 10), ONE, node_id="n")
    reconfigure(stage, enforced(queues, "v", 7, "1s"), coexist=True)
    stage.submit("app-a", numbered("a", 6), ONE, allow_preempt_other=True, created_s=START_S)
    for now_s in range(5, 200, 5):
        stage.confirm(stage.run_to(now_s))
    victims = [e.key for e in stage.effects if isinstance(e, Released)]
    assert sorted(key for key in placed(stage.effects) if key.startswith("a")) == numbered("a", 6)
    assert len(victims) == len(set(victims)) == 6
    assert len(set(kinds(stage.effects))) > 1


def test_order_of_the_kinds_in_one_iteration() -> None:
    """All four have something to do in the same slice: required node, lowered max, guarantee, monitor."""
    queues = {**guaranteed(v=2, w=2, a=2, b=4), "d": {}}
    queues["b"]["properties"] = {"preemption.delay": "1000h"}
    settings: dict[str, Any] = {"coexist": True, "interval_ms": 20_000, "max_wait_ms": 20_000}
    stage = stage_of(queues, {"n1": 6, "n2": 6}, **settings)
    stage.submit("app-v", numbered("v", 6), ONE, node_id="n1")
    stage.submit("app-w", numbered("w", 6), ONE, node_id="n2")
    reconfigure(stage, enforced(queues, "w", 5, "30s"), **settings)
    stage.submit("app-a", ["a0"], {"f": 2}, allow_preempt_other=True, created_s=START_S)
    stage.submit("app-b", numbered("b", 4), ONE)
    assert decided(stage.run_to(29), Outcome.NOTIFIED)
    stage.submit("app-d", ["d0"], ONE, required_node="n1", priority=1)
    stage.now_s = 80.0  # Nobody called for a while: everything has come due.
    assert list(dict.fromkeys(kinds(stage.run_to(80)))) == ["required-node", "quota", "guarantee", "monitor"]


@pytest.mark.parametrize("asks_below", [False, True])
def test_quota_run_and_guarantee_no_victims_from_below_and_no_asks_from_below(asks_below: bool) -> None:
    """While q is served, and only then, neither its tasks go for an ask elsewhere nor others for an ask of it."""
    queues = guaranteed(q=4, other=2)
    stage = stage_of(queues, {"n1": 8, "n2": 4}, enabled=False)
    stage.submit("app-q", numbered("q", 8), ONE, node_id="n1")
    stage.submit("app-other", numbered("o", 4), ONE, node_id="n2")
    reconfigure(stage, enforced(queues, "q", 6, "31s"), enabled=False)
    stage.submit("app-q" if asks_below else "app-other", ["ask"], ONE, allow_preempt_other=True)
    stage.now_s = 40.0
    seen: list[str] = []
    stage.state.enforcement.due.append(stage.state.queues["root.q"])
    while stage.state.enforcement.busy:
        seen += kinds(stage.engine.cycle(stage._now_ns(), 1).effects)
    assert seen == ["quota"]


def test_an_ask_below_a_queue_above_its_max_is_fenced_there() -> None:
    """Also without a run: p holds more than its max, so only victims inside p would help."""
    queues: Queues = {
        "p": {"resources": {"guaranteed": {"f": 6}}},
        "p.a": {"resources": {"guaranteed": {"f": 4}}},
        "p.v": {},
        "w": {},
    }
    stage = stage_of({**queues}, {"n1": 6, "n2": 6}, enabled=False)
    stage.submit("app-p.v", numbered("v", 6), ONE, node_id="n1")
    stage.submit("app-w", numbered("w", 6), ONE, node_id="n2")
    queues["p"] = {"resources": {"guaranteed": {"f": 4}, "max": {"f": 4}}}
    reconfigure(stage, queues, enabled=False)
    stage.submit("app-p.a", ["ask"], ONE, allow_preempt_other=True)
    victims = killed(stage.run_to(60))
    assert victims
    assert all(key.startswith("v") for key in victims)


def test_an_armed_timer_blocks_nobody() -> None:
    queues = guaranteed(q=2, a=2)
    stage = stage_of(queues, {"n": 4}, enabled=False)
    stage.submit("app-q", numbered("q", 4), ONE, node_id="n")
    reconfigure(stage, enforced(queues, "q", 3, "1h"), enabled=False)
    stage.submit("app-a", ["ask"], ONE, allow_preempt_other=True)
    assert kinds(stage.run_to(60)) == ["guarantee"]


def test_settings_of_the_other_kind_beside_a_quota_delay_are_warned_about() -> None:
    queues = enforced(guaranteed(q=2), "q", 3)
    queues["q"]["properties"] |= {"preemption.delay": "1m", "priority.offset": "5"}
    warnings = " ".join(str(w) for w in load(configuration(queues)).warnings)
    assert "preemption.delay" in warnings
    assert "priority.offset" in warnings


def test_required_node_asks_take_what_guarantees_gave_and_never_ask_for_guarantees() -> None:
    """An allocation placed by preemption is a victim like any other; the ask itself has no fallback."""
    queues = {**guaranteed(a=2, v=0), "d": {}}
    stage = stage_of(queues, {"n1": 2, "spare": 2}, enabled=False)
    stage.submit("app-v", ["v1", "v2"], ONE, node_id="n1")
    stage.submit("app-v", ["v3", "v4"], ONE, node_id="spare")
    stage.submit("app-a", ["a1"], ONE, allow_preempt_other=True)
    first = stage.run_to(31)
    assert kinds(first) == ["guarantee"]
    stage.confirm(first)
    (got,) = [e for e in stage.run_to(32) if isinstance(e, Allocated)]
    stage.submit("app-d", ["d1"], ONE, required_node=got.node_id, allow_preempt_other=True)
    second = stage.run_to(33)
    assert kinds(second) == ["required-node"]
    assert killed(second) == ["a1"]


def test_a_claim_of_a_preemptor_gives_way_to_the_required_node_ask_and_it_is_rearmed() -> None:
    """What is leaving the node anyway goes to who must run there: nobody else has to go for that ask."""
    queues = {**guaranteed(a=2, v=0), "d": {}}
    stage = stage_of(queues, {"n1": 2, "n2": 2}, enabled=False)
    stage.submit("app-v", ["v1", "v2"], ONE, node_id="n2")
    stage.submit("app-v", ["v3", "v4"], ONE, node_id="n1")
    stage.submit("app-a", ["a1"], ONE, allow_preempt_other=True)
    assert killed(stage.run_to(31)) == ["v4"]
    stage.submit("app-d", ["d1"], ONE, required_node="n1")
    effects = stage.run_to(50)
    asked = [e.key for e in effects if isinstance(e, PreemptionDecided) and e.outcome is Outcome.TRIGGERED]
    assert asked == ["a1"]
    assert stage.state.requests["d1"].reservation is not None
    assert stage.state.requests["a1"].triggered


def test_required_node_tasks_are_no_victims_of_a_lowered_max_but_can_arm_it() -> None:
    """Reported without a check, they carry the queue above its max, and something else has to go."""
    queues = enforced(guaranteed(d=0), "d", 3, "10s")
    stage = stage_of(queues, {"n": 6}, enabled=False)
    stage.submit("app-d", ["plain"], ONE, node_id="n")
    stage.submit("app-d", ["daemon1", "daemon2", "daemon3"], ONE, node_id="n", required_node="n")
    assert killed(stage.run_to(30)) == ["plain"]


def test_with_coexist_off_the_monitor_alone_takes() -> None:
    queues = guaranteed(v=2, a=2)
    stage = stage_of(queues, {"n": 4})
    stage.submit("app-v", numbered("v", 4), ONE, node_id="n")
    stage.submit("app-a", ["a0", "a1"], ONE, allow_preempt_other=True)
    assert set(kinds(stage.run_to(120))) == {"monitor"}


def test_claims_and_triggered_asks_are_no_demand_of_the_monitor() -> None:
    """With both on, b's two asks lose the room to nobody twice: two victims for two asks."""
    queues = guaranteed(v=2, a=2)
    stage = stage_of(queues, {"n1": 2, "n2": 2}, coexist=True, interval_ms=31_000, max_wait_ms=1)
    stage.submit("app-v", ["v0", "v1"], ONE, node_id="n1")
    stage.submit("app-v", ["v2", "v3"], ONE, node_id="n2")
    stage.submit("app-a", ["a0", "a1"], ONE, allow_preempt_other=True)
    effects = stage.run_to(200)
    assert len(killed(effects)) == 2
    assert set(kinds(effects)) == {"guarantee"}


@pytest.mark.parametrize(
    ("coexist", "per_round", "expected"),
    [
        (False, 0.1, [(18, 2), (36, 2), (54, 2), (72, 2)]),
        (False, 1, [(18, 10), (36, 8), (54, 7), (72, 5)]),
        (True, 0.1, [(18, 2), (36, 2), (54, 2), (60, 44)]),
        (True, 1, [(18, 10), (36, 8), (54, 7), (60, 25)]),
    ],
)
def test_who_waits_too_long_for_the_monitor_preempts(
    coexist: bool, per_round: float, expected: list[tuple[int, int]]
) -> None:
    """The numbers of docs/preemption.md: with a delay of 60 s the asks take at once what the monitor still owes."""
    queues = guaranteed(a=50, b=50)
    queues["b"]["properties"] = {"preemption.delay": "60s"}
    stage = Stage(queues, coexist=coexist, interval_ms=3000, max_wait_ms=15000, per_round=per_round)
    for number in range(50):
        stage.node(f"n{number:02}", {"f": 2})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for number in range(100):
        stage.submit("app-a", [f"a{number:03}"], ONE, node_id=f"n{number % 50:02}")
    stage.submit("app-b", numbered("b", 60), ONE, allow_preempt_other=True, created_s=START_S)
    left: list[tuple[int, int]] = []
    for second in range(1, 73):
        effects = stage.run_to(second)
        if killed(effects):
            left.append((second, len(killed(effects))))
        stage.confirm(effects)
        stage.run_to(second)
    assert left == expected


def test_leaves_under_enforcement_are_left_alone_by_the_monitor() -> None:
    """q's notices are withdrawn in the round that meets the run, and the run alone takes; r's kills go on."""
    queues = guaranteed(q=0, r=0, a=30)
    stage = stage_of(queues, {"n1": 20, "n2": 20}, interval_ms=5000, max_wait_ms=10_000)
    stage.attach()
    stage.submit("app-q", numbered("q", 20), ONE, node_id="n1")
    stage.submit("app-r", numbered("r", 20), ONE, node_id="n2")
    reconfigure(stage, enforced(queues, "q", 15, "14s"), interval_ms=5000, max_wait_ms=10_000)
    stage.submit("app-a", numbered("a", 30), ONE)
    assert set(decided(stage.run_to(12), Outcome.NOTIFIED)) == {"q", "r"}
    # The last slices of 14 s are left out: the run is under way when the round of 15 s begins.
    stage.now_s = 15.0
    effects: list[Effect] = []
    more = True
    while more:
        result = stage.engine.cycle(stage._now_ns(), 2)
        effects += result.effects
        more = result.more
    by_kind = {e.kind: e for e in effects if isinstance(e, PreemptionDecided) and e.outcome in TOLD}
    assert {"quota", "monitor"} <= set(by_kind)
    taken_by_monitor = [
        v.queue for e in effects if isinstance(e, PreemptionDecided) and e.kind == "monitor" and e.outcome in TOLD
        for v in e.victims
    ]  # fmt: skip
    assert set(taken_by_monitor) == {"root.r"}
    assert len([key for key in killed(effects) if key.startswith("q")]) == 5
    assert any(key.startswith("q") for key in withdrawn(effects))


def test_the_monitor_goes_on_with_the_leaf_once_the_run_is_over() -> None:
    queues = guaranteed(q=0, a=15)
    stage = stage_of(queues, {"n1": 20}, interval_ms=5000, max_wait_ms=10_000)
    stage.submit("app-q", numbered("q", 20), ONE, node_id="n1")
    reconfigure(stage, enforced(queues, "q", 15, "12s"), interval_ms=5000, max_wait_ms=10_000)
    stage.submit("app-a", numbered("a", 15), ONE)
    effects = stage.run_to(60)
    assert len(killed(effects)) == 15
    assert kinds(effects)[0] == "quota"
    assert set(kinds(effects)) == {"quota", "monitor"}


def test_j_h4_a_marked_placeholder_is_not_replaced() -> None:
    """The real ask finds no placeholder, the marked one counts as timed out once it is gone, the ask is placed as any
    other."""
    queues = guaranteed(g=0, a=1)
    stage = stage_of(queues, {"n1": 1, "n2": 1}, enabled=False)
    stage.submit("app-g", ["other"], ONE, node_id="n2")
    stage.submit("app-g", ["holder"], ONE, placeholder=True, task_group="workers", node_id="n1")
    stage.submit("app-a", ["a0"], ONE, allow_preempt_other=True)
    effects = stage.run_to(31)
    assert killed(effects) == ["holder"]
    stage.submit("app-g", ["real"], ONE, task_group="workers")
    assert stage.run_to(40) == []
    stage.confirm(effects)
    assert placed(stage.run_to(41)) == ["a0"]
    workers = stage.state.applications["app-g"].task_groups["workers"]
    assert (workers.count, workers.replaced, workers.timed_out) == (1, 0, 1)
    stage.release("app-g", "other")
    assert placed(stage.run_to(42)) == ["real"]


def test_a_preempted_application_stays_running_and_completes_without_a_failure() -> None:
    """Marking changes no state; with its last allocation gone and nothing pending it is completing, not failing."""
    queues = guaranteed(v=0, a=1)
    stage = stage_of(queues, {"n": 1}, enabled=False)
    stage.submit("app-v", ["v0"], ONE, node_id="n")
    stage.submit("app-a", ["a0"], ONE, allow_preempt_other=True)
    effects = stage.run_to(31)
    assert killed(effects) == ["v0"]
    application = stage.state.applications["app-v"]
    assert str(application.state) == "Running"
    stage.confirm(effects)
    assert str(application.state) == "Completing"
    assert placed(stage.run_to(32)) == ["a0"]
