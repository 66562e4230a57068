"""Times of the engine, of callbacks and of the event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.effects import Allocated
from kornel.core.domain.resources import Resources
from kornel.core.metrics.decisions import Decisions
from kornel.core.metrics.measures import EVERY_S, LoopLag
from kornel.core.metrics.timings import UPSTREAM_BOUNDS_S, Timings
from kornel.core.service.callbacks.callback_times import REMEMBERED, CallbackTimes
from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.service.metrics.metrics import Durations
from tests.waiting import until


def test_durations_are_counted_up_to_each_bound() -> None:
    durations = Durations((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5):
        durations.add(seconds)
    durations.add(2.0, 3)
    assert list(durations.cumulated_counts()) == [("0.1", 2), ("1", 3), ("+Inf", 6)]
    assert durations.total == pytest.approx(6.65)


def test_bounds_of_upstream_read_as_upstream_writes_them() -> None:
    """Case 58: the eight listed, and +Inf."""
    bounds = [bound for bound, _ in Durations(UPSTREAM_BOUNDS_S).cumulated_counts()]
    assert bounds == ["0.0001", "0.001", "0.01", "0.1", "1", "10", "100", "1000", "+Inf"]


def test_a_cycle_is_as_long_as_its_slices() -> None:
    """Case 58: a cycle of 5 ms adds 0.005."""
    timings = Timings(Decisions(lambda name: "", lambda: 0))
    engine = timings.of_engine()
    engine.slice_took(0.002, 0, more=True)
    engine.slice_took(0.003, 0, more=False)
    assert timings.upstream_cycles.total == pytest.approx(0.005)
    assert sum(timings.cycles.counts) == 1
    assert sum(timings.slices.counts) == 2


def test_a_cycle_is_that_of_one_engine_whatever_others_do_meanwhile() -> None:
    timings = Timings(Decisions(lambda name: "", lambda: 0))
    one, other = timings.of_engine(), timings.of_engine()
    one.slice_took(0.002, 0, more=True)
    other.slice_took(0.0003, 0, more=False)
    one.slice_took(0.003, 0, more=False)
    assert list(timings.cycles.cumulated_counts())[1:5] == [("0.0005", 1), ("0.001", 1), ("0.0025", 1), ("0.005", 2)]
    assert timings.upstream_cycles.total == pytest.approx(0.0053)


def test_placements_share_their_slice() -> None:
    decisions = Decisions(lambda name: "", lambda: 0)
    timings = Timings(decisions)
    placed = [Allocated(AllocationSpec(f"k{n}", "app", "p", None), "n", Resources()) for n in range(4)]
    decisions.observe(placed)
    engine = timings.of_engine()
    engine.slice_took(0.004, len(placed), more=False)
    engine.slice_took(0.5, 0, more=False)
    assert sum(timings.placements.counts) == 4
    assert timings.placements.total == pytest.approx(0.004)


def test_answers_are_timed_from_the_sending_of_their_question() -> None:
    times = CallbackTimes()
    times.note_asked([1, 2], 0)
    times.note_answered([2, 77], SECOND_NS // 2)
    assert sum(times.latency.counts) == 1
    assert times.latency.total == 0.5


def test_silence_lasts_while_questions_go_unanswered() -> None:
    """One question that nobody answers is no silence: it takes further ones to tell."""
    times = CallbackTimes()
    times.note_asked([1], 0)
    assert times.silence_ns() == 0
    times.note_asked([2], 7 * SECOND_NS)
    assert times.silence_ns() == 7 * SECOND_NS
    times.note_answered([2], 8 * SECOND_NS)
    assert times.silence_ns() == 0
    times.note_asked([3], 9 * SECOND_NS)
    times.note_asked([4], 12 * SECOND_NS)
    assert times.silence_ns() == 3 * SECOND_NS
    times.forget_questions()
    assert times.silence_ns() == 0


def test_questions_that_are_never_answered_are_forgotten() -> None:
    times = CallbackTimes()
    times.note_asked(range(REMEMBERED + 5), 0)
    times.note_answered(range(5), SECOND_NS)
    assert sum(times.latency.counts) == 0


async def test_a_blocked_event_loop_is_late() -> None:
    lag = LoopLag()
    measuring = asyncio.create_task(lag.measure_for_ever())
    await asyncio.sleep(0)
    time.sleep(EVERY_S + 0.3)  # noqa: ASYNC251 - what is measured is a loop that cannot go on
    await until(lambda: any(lag.lag.counts), "a look at the clock")
    measuring.cancel()
    assert lag.lag.total >= 0.25
