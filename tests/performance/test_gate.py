"""What an ask costs must not creep up: measures that say the same on every machine (docs/performance-journal.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench import around, ends, opcodes, placing
from tests.bench.counted import VERSION

TOLERANCE = 0.10
LEAST_OF_CEILING = 0.08
"""A third of what is usual, since runs next to other work differ by half; the best of TRIES counts."""
TRIES = 3
WAITING = (100, 2_000)
MORE_WAIT = 1.2
"""The most that an end may cost with many waiting applications, as a multiple of that with few."""


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, float]]:
    return opcodes.BENCH.measure()


@pytest.mark.long
@pytest.mark.parametrize("part", ["reading", "deciding", "answering"])
@pytest.mark.parametrize("workload", list(opcodes.SMALL))
def test_instructions_per_ask_do_not_grow_by_a_tenth(
    counted: dict[str, dict[str, float]], workload: str, part: str
) -> None:
    """Against the committed baseline of this minor version of Python."""
    baselines = opcodes.BENCH.read_baselines()
    if VERSION not in baselines:
        pytest.skip(f"no baseline for Python {VERSION}: make bench-baseline writes one")
    expected, found = baselines[VERSION][workload][part], counted[workload][part]
    assert found <= expected * (1 + TOLERANCE), (
        f"{workload}, {part}: {found:,.0f} bytecode instructions per ask, {expected:,.0f} in the baseline."
        " Meant? make bench-baseline"
    )


@pytest.fixture(scope="module")
def counted_around() -> dict[str, dict[str, float]]:
    return around.BENCH.measure()


@pytest.mark.long
@pytest.mark.parametrize("workload", list(around.SMALL))
def test_instructions_around_decisions_do_not_grow_by_a_tenth(
    counted_around: dict[str, dict[str, float]], workload: str
) -> None:
    """Decoding, answering, events, metrics, history and journal, against the baseline of this version of Python."""
    baselines = around.BENCH.read_baselines()
    if VERSION not in baselines:
        pytest.skip(f"no baseline for Python {VERSION}: make bench-baseline writes one")
    expected, found = baselines[VERSION][workload], counted_around[workload]
    assert set(found) == set(expected)
    assert found["all"] <= expected["all"] * (1 + TOLERANCE), (
        f"{workload}: {found['all']:,.0f} bytecode instructions per ask around the engine, {expected['all']:,.0f} in"
        f" the baseline; by part {found}, and {expected} there. Meant? make bench-baseline"
    )


@pytest.mark.long
def test_every_part_around_decisions_is_counted(counted_around: dict[str, dict[str, float]]) -> None:
    """The figure would be no use if one of them did not run."""
    for found in counted_around.values():
        assert all(found[part] > 0 for part, _ in around.PARTS)
        assert sum(found.values()) == pytest.approx(2 * found["all"])


@pytest.mark.long
def test_counting_twice_gives_the_same(counted: dict[str, dict[str, float]]) -> None:
    """Neither the hash seed, here a random one against seed 0, nor what ran before changes a count by a thousandth."""
    assert opcodes.per_ask(opcodes.SMALL["P1"]) == pytest.approx(counted["P1"], rel=0.001)


@pytest.mark.long
@pytest.mark.parametrize("variant", list(ends.VARIANTS))
def test_an_end_costs_no_more_however_many_wait(variant: str) -> None:
    """P18: rounds of saving, savings and firm claims, savings below limits, limits and many sizes included."""
    few, many = (
        ends.count_instructions(ends.Case(waiting)._replace(**ends.VARIANTS[variant]), 100) for waiting in WAITING
    )
    assert many <= few * MORE_WAIT, (
        f"{variant}: {few:,.0f} instructions for an end with {WAITING[0]}, {many:,.0f} with {WAITING[1]:,}"
    )


@pytest.mark.long
@pytest.mark.parametrize("order", ["fifo", "fair"])
def test_a_choice_below_limits_costs_no_more_however_many_wait(order: str) -> None:
    """It looks at a part of those who wait, and nobody is asked one by one whether somebody else has his turn first."""
    few, many = (ends.count_choice(ends.Case(waiting, order=order, saved_below=True)) for waiting in (1_000, 4_000))
    assert many <= few * 1.05, f"{few:,.0f} instructions with 1,000 applications that wait, {many:,.0f} with 4,000"


@pytest.mark.long
def test_the_first_to_save_below_a_limit_costs_no_more_however_many_wait() -> None:
    """Whom it lets through is known at once: those who wait stand in line before anybody saves."""
    few, many = (ends.count_first_saving(ends.Case(waiting, saved_below=True)) for waiting in (1_000, 4_000))
    assert many <= few * 1.05, f"{few:,.0f} instructions with 1,000 applications that wait, {many:,.0f} with 4,000"


@pytest.mark.alone
def test_the_core_reaches_its_part_of_a_bare_echo() -> None:
    """Whatever the machine: a part of what a server gives that decides nothing, all features on."""
    workload = replace(placing.P1, nodes=500, asks=5_000)
    shares = []
    for _ in range(TRIES):
        row = placing.end_to_end("P1", "small", workload, 1, 0)
        assert row.of_ceiling is not None
        shares.append(row.of_ceiling)
        if row.of_ceiling >= LEAST_OF_CEILING:
            return
    pytest.fail(f"allocations over gRPC were {max(shares):.1%} of a bare echo, at least {LEAST_OF_CEILING:.0%} wanted")
