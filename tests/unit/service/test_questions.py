"""Questions that take long come one after the other."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from kornel.core.service.runner.questions import LONGEST_REST_S, MOST_WAITING, Questions
from kornel.core.service.wire.status_codes import TooMany


async def test_others_have_their_turn_between_two() -> None:
    questions, seen = Questions(), []

    async def everybody_else() -> None:
        while seen.count("question") < 4:
            seen.append("other")
            await asyncio.sleep(0)

    def answer(number: int) -> int:
        seen.append("question")
        return number

    asked = [asyncio.create_task(questions.ask(lambda number=number: answer(number))) for number in range(4)]
    other = asyncio.create_task(everybody_else())
    assert await asyncio.gather(*asked) == [0, 1, 2, 3]
    await other
    assert "question question" not in " ".join(seen)


async def test_there_is_a_limit() -> None:
    questions = Questions()
    asked = [asyncio.create_task(questions.ask(lambda: 1)) for _ in range(MOST_WAITING + 1)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers.count(1) == MOST_WAITING
    assert isinstance(answers[-1], TooMany)
    assert await questions.ask(lambda: 2) == 2


async def test_a_question_that_cannot_be_answered_says_so() -> None:
    questions = Questions()
    with pytest.raises(ZeroDivisionError):
        await questions.ask(lambda: 1 // 0)
    assert await questions.ask(lambda: 2) == 2


@pytest.mark.parametrize("took_s", [0.02, 3.0])
async def test_one_that_comes_after_the_answer_has_to_wait_as_well(
    took_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls sent at once are accepted one by one, so that each finds nobody waiting before it."""
    now_s, spans, sleep = 0.0, [], asyncio.sleep

    def answer() -> None:
        nonlocal now_s
        began = now_s
        now_s += took_s
        spans.append((began, now_s))

    async def pass_time(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        await sleep(0)

    monkeypatch.setattr("kornel.core.service.runner.questions.time", SimpleNamespace(perf_counter=lambda: now_s))
    monkeypatch.setattr(asyncio, "sleep", pass_time)
    questions = Questions()
    for _ in range(3):
        await questions.ask(answer)
    for (_, ended), (next_began, _) in itertools.pairwise(spans):
        assert next_began - ended >= min(took_s, LONGEST_REST_S)
