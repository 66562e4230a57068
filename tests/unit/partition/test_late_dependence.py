"""An answer that says too late that its ask depends on placements, and is in place, is put right (protocol.md 13)."""

from __future__ import annotations

from kornel.core.domain.commands import AnswerCallbacks, PlacementKey, PredicatesAnswer
from kornel.core.domain.effects import PlacementVoid
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"


def test_in_place_with_an_answer_to_an_expired_question_is_told_as_not_placed() -> None:
    stage = Stage()
    stage.play(["attach predicates timeout=1s", "node n1", "app A", "ask k app=A", "cycle", "at=2s cycle"])
    late = PredicatesAnswer(1, (), dependent=True)
    effects = stage.engine.apply(
        AnswerCallbacks("rm-1", predicates=(late,), acknowledged=(PlacementKey(PARTITION, "k"),)), 2 * 10**9
    )
    assert effects == [PlacementVoid(PARTITION, "k")]
