"""Every contract case against our own core: over a real channel, on simulated time, one core per case."""

from __future__ import annotations

import asyncio

import pytest

from conformance.case import Case, all_cases
from conformance.known_gaps import GAPS, LAST_CASE
from conformance.runner import Settings, Verdict, judged, run_case
from core.service.clock import SECOND_NS, ManualClock
from tests.e2e.harness import running_core

SETTLE_S = 0.02
GAP_DEADLINE_S = 0.5
"""Cases that are known to fail mostly do so by waiting for something in vain."""


class MovedClock:
    """The kit's clock, which moves that of a core in this process."""

    patience_s = float("inf")

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now_ns(self) -> int:
        return self._clock.now_ns()

    async def advance(self, seconds: float) -> None:
        # Let the core take in what is on its way to it, or it would arrive after the time it was sent at.
        await asyncio.sleep(SETTLE_S)
        self._clock.advance(int(seconds * SECOND_NS))


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: str(case.number))
async def test_case(case: Case) -> None:
    """The core keeps the contract, except for the known gaps, none of which is kept by now."""
    deadline_s = GAP_DEADLINE_S if case.number in GAPS else 5.0
    async with running_core() as core:
        result = await run_case(
            case, core.address, MovedClock(core.clock), Settings(deadline_s=deadline_s, settle_s=SETTLE_S)
        )
        status = core.server._runner.status(audited=True)
    verdict = judged(result, GAPS)
    assert verdict.verdict in (Verdict.PASS, Verdict.GAP), f"{case.number} {case.title}: {verdict.reason}"
    assert not result.reason or verdict.verdict is Verdict.GAP, "nothing was left unlooked at"
    assert not any(p.law_violations or p.invariant_violations for p in status.partitions)
    assert core.metrics.engine_faults == 0


def test_every_number_is_accounted_for() -> None:
    """A number of the contract has a script, or is a known gap."""
    scripted = {case.number for case in all_cases()}
    assert scripted | set(GAPS) == set(range(1, LAST_CASE + 1))
