"""The periodic policy under the governor: budgets, pauses and loops keep its victims back (preemption.md K13)."""

from __future__ import annotations

from typing import Any

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.domain.reasons import Outcome
from tests.scenarios.preemption.monitor_stage import Stage, configuration, decided, killed
from tests.scenarios.preemption.test_monitor import AT_ONCE, ONE, guaranteed, two_queues, withdrawn


def pauses(effects: list[Effect]) -> list[tuple[str, Outcome]]:
    return [(e.queue, e.outcome) for e in effects if isinstance(e, PreemptionDecided) and e.kind == "governor"]


def starving(**settings: Any) -> Stage:
    """b wants ten of the hundred that a holds."""
    stage = two_queues(dead_zone=0, delayed=True, **settings)
    stage.attach()
    stage.submit("app-b", [f"b{at}" for at in range(10)], ONE)
    return stage


def test_a_spent_budget_keeps_back_the_rest_and_their_notices_stand() -> None:
    """Three may go in a minute: the other seven stay notified, and go three by three."""
    stage = starving(governor={"window_ms": 60_000, "queue": {"victims": 3}})
    effects = stage.run_to(15)
    assert len(killed(effects)) == 3
    assert pauses(effects) == [("root.a", Outcome.BUDGET_SPENT)]
    stage.confirm(effects)
    later = stage.run_to(74)
    assert killed(later) == withdrawn(later) == []
    assert len(killed(stage.run_to(75))) == 3


def test_one_round_is_one_decision_for_the_pause() -> None:
    """All that a round takes from a queue goes at once, in however many parts."""
    stage = two_queues(dead_zone=0, governor={"cooldown_ms": 40_000})
    stage.submit("app-b", [f"b{at:03}" for at in range(50)], ONE)
    assert len(killed(stage.run_to(15, budget=20))) == 50


def test_a_pause_ends() -> None:
    stage = starving(governor={"cooldown_ms": 30_000}, per_round=0.05)
    effects = stage.run_to(15)
    assert len(killed(effects)) == 5
    stage.confirm(effects)
    waiting = stage.run_to(44)
    assert killed(waiting) == []
    assert pauses(waiting) == [("root.a", Outcome.COOLING_DOWN)]
    assert len(killed(stage.run_to(50))) == 5


def paused_beside(room: int, of_c: int) -> Stage:
    """b wants six, and six more. On the only node, a could give up ten and c what it holds, but a pauses until 45."""
    stage = Stage(guaranteed(a=0, b=room, c=0), **AT_ONCE, dead_zone=0, governor={"cooldown_ms": 30_000})
    stage.node("n", {"f": room})
    for name in "abc":
        stage.application(f"app-{name}", name)
    stage.submit("app-a", ["a-large"], {"f": 10}, node_id="n")
    stage.submit("app-a", ["a-small"], ONE, node_id="n")
    stage.submit("app-c", ["c0"], {"f": of_c}, node_id="n")
    stage.submit("app-b", ["b0"], ONE)
    effects = stage.run_to(15)
    assert killed(effects) == ["a-small"]
    stage.confirm(effects)
    stage.submit("app-b", ["b1", "b2"], {"f": 6})
    return stage


def test_a_place_that_needs_what_denied_victims_leave_over_waits_for_them() -> None:
    """The ten of a leave four over, and so two of c are enough for the other six; without the ten they would leave for
    nobody."""
    stage = paused_beside(room=13, of_c=2)
    waiting = stage.run_to(44)
    assert pauses(waiting) == [("root.a", Outcome.COOLING_DOWN)]
    assert killed(waiting) == withdrawn(waiting) == []
    assert killed(stage.run_to(50)) == ["a-large", "c0"]


def test_a_place_beside_denied_victims_goes_if_it_needs_nothing_of_them() -> None:
    stage = paused_beside(room=17, of_c=6)
    waiting = stage.run_to(44)
    assert pauses(waiting) == [("root.a", Outcome.COOLING_DOWN)]
    assert killed(waiting) == ["c0"]


def test_a_place_that_needs_denied_victims_waits_in_the_next_piece_of_work_too() -> None:
    """After thirty-one places, the place of ten for six is the last one of its piece."""
    stage = Stage(guaranteed(a=0, b=0, c=0, d=44), **AT_ONCE, dead_zone=0, governor={"cooldown_ms": 30_000})
    stage.node("n", {"f": 44})
    for name in "abcd":
        stage.application(f"app-{name}", name)
    stage.submit("app-b", ["b-large"], {"f": 10}, node_id="n")
    stage.submit("app-b", ["b-small"], ONE, node_id="n")
    stage.submit("app-c", ["c0"], {"f": 2}, node_id="n")
    small = [f"a{at:02}" for at in range(31)]
    stage.submit("app-a", small, ONE, node_id="n", required_node="n")
    stage.submit("app-d", ["d"], ONE)
    effects = stage.run_to(15)
    assert killed(effects) == ["b-small"]
    stage.confirm(effects)
    stage.release("app-a", *small)
    stage.submit("app-a", [f"{key}-again" for key in small], ONE, node_id="n")
    stage.submit("app-d", [f"d{at:02}" for at in range(31)], ONE)
    stage.submit("app-d", ["d-one", "d-two"], {"f": 6})
    waiting = stage.run_to(44, budget=10_000)
    assert pauses(waiting) == [("root.b", Outcome.COOLING_DOWN)]
    assert sorted(killed(waiting)) == [f"{key}-again" for key in small]


def test_two_queues_that_take_from_each_other_in_turns_are_stopped() -> None:
    """Guarantees that are swapped again and again: after the second return the loop ends, until it is forgotten."""
    governor = {"loop": {"window_ms": 600_000, "returns": 1}}
    queues = guaranteed(a=10, b=0), guaranteed(a=0, b=10)
    stage = Stage(queues[0], **AT_ONCE, dead_zone=0, governor=governor)
    stage.node("n", {"f": 10})
    for name in "ab":
        stage.application(f"app-{name}", name)
    stage.submit("app-b", [f"b{at}" for at in range(10)], ONE, node_id="n")
    stage.submit("app-a", [f"a{at}" for at in range(10)], ONE)
    taken: list[int] = []
    for turn in range(4):
        if turn:
            text = configuration(queues[turn % 2], **AT_ONCE, dead_zone=0, governor=governor)
            stage.apply(UpdateConfiguration("rm", text))
            winner = "ab"[turn % 2]
            stage.submit(f"app-{winner}", [f"{winner}-{turn}-{at}" for at in range(10)], ONE)
        effects = stage.run_to((turn + 1) * 30)
        stage.confirm(effects)
        stage.run_to((turn + 1) * 30)
        taken.append(len(killed(effects)))
    assert taken == [10, 10, 0, 0]
    assert pauses(stage.effects)[0] == ("root.b", Outcome.LOOP)


def test_in_shadow_it_only_observes() -> None:
    stage = starving(governor={"shadow": ["monitor"]})
    effects = stage.run_to(60)
    assert killed(effects) == []
    assert decided(effects, Outcome.NOTIFIED) == {}
    assert len(decided(effects, Outcome.OBSERVED)["a"]) == 10


def test_out_of_the_shadow_notices_begin() -> None:
    stage = starving(governor={"shadow": ["monitor"]})
    stage.run_to(60)
    stage.apply(UpdateConfiguration("rm", stage.configuration(**AT_ONCE, dead_zone=0)))
    effects = stage.run_to(74)
    assert len(decided(effects, Outcome.NOTIFIED)["a"]) == 10
    assert killed(effects) == []
    assert len(killed(stage.run_to(80))) == 10


def test_what_the_monitor_takes_counts_for_guarantee_driven_preemption() -> None:
    """One budget for all kinds: spent by the monitor, an ask finds no victims."""
    stage = two_queues(dead_zone=0, coexist=True, governor={"window_ms": 600_000, "queue": {"victims": 1}})
    stage.submit("app-b", ["small"], ONE)
    effects = stage.run_to(15)
    assert len(killed(effects)) == 1
    stage.confirm(effects)
    stage.run_to(16)
    stage.submit("app-b", ["b0"], ONE, allow_preempt_other=True)
    assert killed(stage.run_to(60)) == []
    assert stage.state.requests["b0"].outcome is Outcome.BUDGET_SPENT
