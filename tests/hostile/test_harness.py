"""The judge of attacks finds what it is there to find."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace

import pytest

from tests.hostile.attacked import HEALTH_S, AttackedCore
from tests.hostile.siege import SETTLED, Garbage, Minute, growth_of, judge


def test_nothing_costs_nothing(core: AttackedCore) -> None:
    with core.attack(memory_mib=8, processor_s=1.0):
        time.sleep(0.5)


def test_a_core_that_stands_still_is_found(core: AttackedCore) -> None:
    def stop_for_a_while() -> None:
        with core.attack():
            os.kill(core.pid, signal.SIGSTOP)
            time.sleep(HEALTH_S * 2)
            os.kill(core.pid, signal.SIGCONT)

    with pytest.raises(AssertionError, match="at most"):
        stop_for_a_while()


def minutes(count: int, grows_mib: float) -> list[Minute]:
    """*count* minutes of a siege, each of 400,000 asks and 24 attacks: the first ones fill what has bounds, and from
    then on memory grows by *grows_mib* a minute, beside 5 MiB that come and go."""
    dice = random.Random(count)
    return [
        Minute(150 + 4 * min(n, SETTLED) + grows_mib * n + dice.uniform(0, 5), 400_000, 0.1, 24, Garbage(1, 1, 0))
        for n in range(count)
    ]


def test_a_siege_finds_what_grows_slowly() -> None:
    growth = growth_of(minutes(58, 0.87))
    assert growth is not None
    assert 36 < growth.mib < 46, "47 minutes of 0.87 MiB"
    assert 1.9 < growth.mib / growth.million_asks < 2.5
    assert 32 < growth.mib / growth.thousand_attacks < 42
    (wrong,) = (each for each in judge(minutes(58, 0.87), "") if "million asks" in each)
    assert "allowed were" in wrong


def test_a_siege_that_stays_flat_passes() -> None:
    assert growth_of(minutes(58, 0.0)) is not None
    assert not [each for each in judge(minutes(58, 0.0), "") if "million asks" in each]


def test_a_queue_that_fills_is_no_growth() -> None:
    """It holds 40 MiB when it is full, as it is for most of the time after the first half hour."""
    calm = minutes(58, 0.0)
    full = [number > 30 and number % 7 > 0 for number in range(58)]
    filled = [
        replace(minute, memory_mib=minute.memory_mib + 40 * is_full, queued=300_000 * is_full)
        for minute, is_full in zip(calm, full, strict=True)
    ]
    growth = growth_of(filled)
    assert growth is not None
    assert not growth.is_too_much
    assert abs(growth.mib) < 4
    leaking = [replace(minute, memory_mib=minute.memory_mib + 0.87 * n) for n, minute in enumerate(filled)]
    growth = growth_of(leaking)
    assert growth is not None
    assert growth.is_too_much


def test_few_minutes_of_a_siege_tell_nothing() -> None:
    assert growth_of(minutes(SETTLED + 4, 5.0)) is None
