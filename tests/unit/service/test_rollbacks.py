"""What becomes of a text that is brought while a rollback holds."""

from __future__ import annotations

import pytest

from kornel.core.service.configuration.rollbacks import Fate, Rollback, judge_text

HELD = Rollback(2, "good", "rm", 7, "cn:ops", frozenset({"bad", "worse"}))


@pytest.mark.parametrize(
    ("rollback", "text", "rm_id", "fate", "applied", "said"),
    [
        pytest.param(None, "bad", "rm", Fate.APPLIED, "bad", "", id="no rollback"),
        pytest.param(HELD, "bad", "rm", Fate.KEPT_OUT, "good", "holds", id="the one rolled back from"),
        pytest.param(HELD, "worse", "rm", Fate.KEPT_OUT, "good", "holds", id="one brought before"),
        pytest.param(HELD, "good", "rm", Fate.KEPT_OUT, "good", "", id="in force anyway"),
        pytest.param(HELD, "new", "rm", Fate.ENDS_ROLLBACK, "new", "another one", id="a new one"),
        pytest.param(HELD, "bad\n", "rm", Fate.ENDS_ROLLBACK, "bad\n", "another one", id="every character counts"),
        pytest.param(HELD, "bad", "rm-2", Fate.ENDS_ROLLBACK, "bad", "'rm'", id="another manager"),
    ],
)
def test_fates(rollback: Rollback | None, text: str, rm_id: str, fate: Fate, applied: str, said: str) -> None:
    verdict = judge_text(rollback, text, rm_id)
    assert (verdict.fate, verdict.text) == (fate, applied)
    assert said in verdict.note
    assert (verdict.rollback is not None) is (fate is Fate.KEPT_OUT)


def test_what_is_kept_out_is_counted_unless_it_says_the_same() -> None:
    verdict = judge_text(HELD, "bad", "rm")
    assert verdict.rollback is not None
    assert verdict.rollback.kept_out == 1
    same = Rollback(2, "good", "rm", 7, "cn:ops", frozenset({"good", "bad"}))
    verdict = judge_text(same, "good", "rm")
    assert (verdict.fate, verdict.note, verdict.rollback) == (Fate.KEPT_OUT, "", same)
