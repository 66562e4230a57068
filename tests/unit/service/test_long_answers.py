"""The budget of long answers: who waits, who is turned away, and who makes room."""

from __future__ import annotations

import asyncio

import pytest

from kornel.core.service.calls import long_answers
from kornel.core.service.calls.long_answers import COUNTED_FROM, MADE_AT_ONCE, MOST_BYTES, MOST_WAITING, LongAnswers
from kornel.core.service.wire.status_codes import TooMany
from tests.patience import PATIENCE_S
from tests.waiting import until


async def test_few_are_made_at_once_and_few_wait() -> None:
    answers, go, made = LongAnswers(), asyncio.Event(), []

    async def make() -> None:
        async with answers.count_making():
            made.append(None)
            await go.wait()

    making = [asyncio.create_task(make()) for _ in range(MADE_AT_ONCE + MOST_WAITING)]
    await until(lambda: made, "some to be made")
    assert len(made) == MADE_AT_ONCE
    with pytest.raises(TooMany):
        await make()
    go.set()
    await asyncio.gather(*making)
    await make()


async def test_who_had_its_time_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_answers, "PATIENCE_S", 0.05)
    answers, aborted = LongAnswers(), []
    with (
        answers.on_its_way(MOST_BYTES, lambda: aborted.append("first")),
        answers.on_its_way(COUNTED_FROM, lambda: aborted.append("second")),
    ):
        async with answers.count_making():
            assert aborted == ["first"]
            assert answers.held == COUNTED_FROM
    assert answers.held == 0


async def test_room_that_is_given_back_is_enough() -> None:
    answers = LongAnswers()
    held = answers.on_its_way(MOST_BYTES, None)
    held.__enter__()
    waiting = asyncio.create_task(answers.count_making().__aenter__())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    held.__exit__(None, None, None)
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_short_answers_are_not_counted() -> None:
    answers = LongAnswers()
    with answers.on_its_way(COUNTED_FROM - 1, None):
        assert answers.held == 0
