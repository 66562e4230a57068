"""The time of the event loop: how much readers of long answers get beside a busy engine."""

from __future__ import annotations

import asyncio

from kornel.core.service.machine.loop_time import CREDIT_S, LONGEST_REST_S, READERS_PART, STEP_S, Sharing


class Loop:
    """A reader and an engine that take turns on a clock of their own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sharing = Sharing(lambda: self.now)
        self.read_s = 0.0
        self.worked_s = 0.0

    async def read(self, seconds: float) -> None:
        with self.sharing.count_reading():
            ends = self.read_s + seconds
            while self.read_s < ends:
                self.now += STEP_S
                self.read_s += STEP_S
                await self.sharing.pause_after(STEP_S)

    async def work(self, turn_s: float, turns: int) -> None:
        for _ in range(turns):
            self.now += turn_s
            self.worked_s += turn_s
            await self.sharing.rest_after(turn_s)


async def test_a_reader_gets_most_of_the_time_while_it_has_credit() -> None:
    loop = Loop()
    working = asyncio.create_task(loop.work(0.01, 10_000))
    await loop.read(0.2)
    working.cancel()
    assert loop.worked_s < 0.1, "the engine has a third of the time at most"


async def test_readers_that_never_end_get_their_part_and_no_more() -> None:
    loop = Loop()
    reading = [asyncio.create_task(loop.read(10_000.0)) for _ in range(3)]
    await loop.work(0.01, 2_000)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    assert loop.read_s - CREDIT_S <= loop.now * READERS_PART + 0.1
    assert loop.worked_s / (loop.now - CREDIT_S) > 0.8


async def test_nobody_waits_for_credit_while_the_engine_has_nothing_to_do() -> None:
    loop = Loop()
    loop.sharing.note_idle()
    await loop.read(3 * CREDIT_S)
    assert abs(loop.now - 3 * CREDIT_S) < 2 * STEP_S
    assert loop.sharing.credit_s == CREDIT_S


async def test_without_readers_the_engine_goes_on_at_once() -> None:
    loop = Loop()
    await loop.work(0.01, 100)
    assert abs(loop.now - 1.0) < 1e-9


async def test_a_reader_that_does_nothing_is_not_waited_for_any_longer_than_once() -> None:
    """One whose client is slow: the engine looks up to a fixed time for something to do, and goes on."""
    loop = Loop()

    async def pass_time() -> None:
        while True:
            loop.now += 0.001
            await asyncio.sleep(0)

    passing = asyncio.create_task(pass_time())
    with loop.sharing.count_reading():
        await loop.work(0.02, 1)
    passing.cancel()
    assert loop.now <= 0.02 + LONGEST_REST_S + 0.005


async def test_a_reader_counts_no_longer_than_it_may() -> None:
    sharing = Sharing()
    with sharing.count_reading(at_most_s=0.0):
        while sharing.readers:  # noqa: ASYNC110 - time passes by itself
            await asyncio.sleep(0)
    assert Sharing.of_loop() is Sharing.of_loop()
