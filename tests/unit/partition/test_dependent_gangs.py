"""Members of gangs that depend on other placements take their turns in the line of all such asks (protocol.md 13)."""

from __future__ import annotations

from kornel.core.domain.commands import (
    AnswerCallbacks,
    PlacementKey,
    PredicatesAnswer,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
)
from kornel.core.domain.effects import Effect, PredicatesAsked, Released
from kornel.core.state.books import audit
from kornel.core.state.waiting.dependence import LONGEST_LINE
from tests.scenarios.stage import Stage

RM, PARTITION = "rm-1", "[rm-1]default"
MEMBERS = 3 * LONGEST_LINE


def test_the_line_is_as_long_as_without_gangs_and_all_members_come_through() -> None:
    stage = Stage()
    stage.play(["node n1 vcore=1000000", "app A"])
    stage.play([*(f"ask p{n} app=A placeholder group=g vcore=1" for n in range(MEMBERS)), "cycle"])
    stage.play(["attach predicates timeout=60s"])
    stage.play([f"ask r{n} app=A group=g vcore=1 dependent" for n in range(MEMBERS)])
    engine, answered, replaced = stage.engine, set(), 0
    state = engine.partition(PARTITION)
    assert state is not None
    longest = 0
    waiting: list[Effect] = []
    while replaced < MEMBERS:
        waiting += engine.cycle(stage.now_ns, 1000).effects
        longest = max(longest, len(state.callbacks.line))
        assert len(state.callbacks.line) <= LONGEST_LINE
        assert audit.check(state) == []
        assert waiting, "nobody goes on"
        effects, waiting = waiting, []
        for effect in effects:
            if isinstance(effect, PredicatesAsked):
                answered.add(effect.key)
                command = AnswerCallbacks(RM, (PredicatesAnswer(effect.question, ()),))
                waiting += engine.apply(command, stage.now_ns)
            elif isinstance(effect, Released) and effect.termination is TerminationType.PLACEHOLDER_REPLACED:
                replaced += 1
                gone = ReleaseSpec(PARTITION, "A", effect.key, TerminationType.PLACEHOLDER_REPLACED)
                waiting += engine.apply(UpdateAllocations(RM, releases=(gone,)), stage.now_ns)
                keys = tuple(PlacementKey(PARTITION, key) for key in answered)
                waiting += engine.apply(AnswerCallbacks(RM, acknowledged=keys), stage.now_ns)
    assert longest == LONGEST_LINE, "the line was never full"
    assert len(answered) == MEMBERS
