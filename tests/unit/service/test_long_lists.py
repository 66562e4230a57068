"""Long lists are made one after the other, in short steps, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest

from kornel.core.service.calls.long_answers import MOST_PAGES, STEP_S, ListPage, LongAnswers
from kornel.core.service.machine import loop_time
from kornel.core.service.wire.status_codes import TooMany


def test_a_page_ends_where_it_is_full() -> None:
    async def make(size: int) -> ListPage[int, str]:
        return await make_lists().make_page(lambda: range(10), size, str, lambda item: item % 2 == 1)

    assert asyncio.run(make(2)) == ListPage(["1", "3"], 3, more=True)
    assert asyncio.run(make(5)) == ListPage(["1", "3", "5", "7", "9"], 9, more=False)
    assert asyncio.run(make_lists().make_page(lambda: (), 5, str)) == ListPage([], None, more=False)


def make_lists() -> LongAnswers:
    return LongAnswers(at_once=1, waiting=MOST_PAGES)


AT_ONCE = 50
"""The entries that are encoded in one step, by the clock of these tests."""


@pytest.fixture(autouse=True)
def readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that each look at it moves by as long as an entry takes."""
    looks = count()
    monkeypatch.setattr(loop_time, "time", SimpleNamespace(perf_counter=lambda: next(looks) * STEP_S / (AT_ONCE - 1)))


def test_each_turn_of_the_loop_has_one_step_of_one_list_at_most() -> None:
    """However many callers want one: somebody else who wants a turn waits for a step and not for all of them."""
    turn = 0
    steps: dict[int, int] = {}

    def encode(item: int) -> int:
        steps[turn] = steps.get(turn, 0) + 1
        return item

    async def make_all() -> None:
        nonlocal turn
        lists = make_lists()
        making = [asyncio.create_task(lists.make_page(lambda: range(1_000), 500, encode)) for _ in range(30)]
        while not all(task.done() for task in making):
            turn += 1
            await asyncio.sleep(0)
        assert [len(task.result().encoded) for task in making] == [500] * 30

    asyncio.run(make_all())
    assert max(steps.values()) <= AT_ONCE
    assert sum(steps.values()) == 30 * 500


def test_a_list_is_read_when_its_turn_comes_and_not_before() -> None:
    """What changes while a caller waits is in what it gets."""
    current = [1]

    def read() -> Iterator[int]:
        return iter(tuple(current))

    async def make_two() -> ListPage[int, int]:
        lists = make_lists()
        first = asyncio.create_task(lists.make_page(lambda: range(AT_ONCE * 4), AT_ONCE * 4, int))
        second = asyncio.create_task(lists.make_page(read, 5, int))
        await asyncio.sleep(0)
        current.append(2)
        await first
        return await second

    assert asyncio.run(make_two()).encoded == [1, 2]


def test_too_many_callers_are_refused() -> None:
    async def make() -> list[object]:
        lists = make_lists()
        wanted = [lists.make_page(lambda: range(AT_ONCE + 1), 1_000, str) for _ in range(1 + MOST_PAGES + 3)]
        return await asyncio.gather(*wanted, return_exceptions=True)

    found = asyncio.run(make())
    assert [type(each) for each in found[-3:]] == [TooMany] * 3
    assert not any(isinstance(each, TooMany) for each in found[:-3])
