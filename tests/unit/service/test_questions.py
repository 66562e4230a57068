"""Questions that take long come one after the other."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from kornel.core.service.questions import MOST_WAITING, Questions
from kornel.core.service.status_codes import TooMany


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


async def test_one_that_comes_after_the_answer_has_to_wait_as_well() -> None:
    """Calls sent at once are accepted one by one, so that each finds nobody waiting before it."""
    questions, spans = Questions(), []

    def answer() -> None:
        began = time.perf_counter()
        while time.perf_counter() < began + 0.02:
            pass
        spans.append((began, time.perf_counter()))

    for _ in range(3):
        await questions.ask(answer)
    for (began, ended), (next_began, _) in itertools.pairwise(spans):
        assert next_began - ended >= ended - began
