"""A core with one rule broken: the kit names the cases that say so, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kornel.conformance.case import all_cases, select_cases
from kornel.conformance.connection import Settings
from kornel.conformance.gaps import OWN, load_gaps
from kornel.conformance.outcome import Verdict
from kornel.conformance.runner import run_case
from tests.conformance import broken_cores
from tests.conformance.broken_cores import BrokenEngine
from tests.conformance.targets import SETTLE_S, MovedClock
from tests.e2e.harness import running_core
from tests.examples import mark_rest_long
from tests.patience import PATIENCE_S

DEADLINE_S = 1.0
"""Cases that are to fail mostly do so by waiting for something in vain."""


BROKEN = [
    (broken_cores.WithoutDefaultPolicy, {98}),
    (broken_cores.TimeInMilliseconds, {138}),
    (broken_cores.ForgetsPriority, {83}),
    (broken_cores.BelievesNonsense, {179}),
    (broken_cores.DropsEcho, {88, 89, 91, 92, 93, 94, 95, 96}),
    (broken_cores.EchoesDuplicates, {84, 85, 86, 89}),
    (broken_cores.IgnoresPartitions, {22, 23, 24}),
    (broken_cores.AnswersUpdates, {33, 34, 35, 41}),
    (broken_cores.AnswersReleasesTwice, {108, 110, 111, 112, 113, 131}),
    (broken_cores.CompletesAtOnce, {133, 134, 136, 138}),
    (broken_cores.StopsVictims, {111, 129, 130}),
    (broken_cores.AcceptsAgain, {49}),
    (broken_cores.KeepsOldQueues, {16}),
    (broken_cores.AsksAtOnce, {160, 161, 163, 170}),
    (broken_cores.NamesNoDevices, {174, 176, 177, 178, 180, 181, 182}),
    (broken_cores.ForgetsWants, {175}),
    (broken_cores.SharesNothing, {176, 177}),
    (broken_cores.IgnoresLinks, {175, 178}),
    (broken_cores.ForgetsWhatRuns, {180}),
    (broken_cores.KeepsOldDevices, {181}),
]
"""What is broken, and the cases that say so; the first few are tried in every run."""


@pytest.mark.parametrize(("breakage", "broken"), mark_rest_long(BROKEN, keep=4))
async def test_what_is_broken_is_named(breakage: type[BrokenEngine], broken: set[int]) -> None:
    """Of all cases in the groups that are about the rule exactly these fail, one after the other on one core."""
    gaps = load_gaps(OWN)
    cases = [case for case in all_cases() if case.id not in gaps]
    groups = {case.group for case in cases if case.number in broken}
    failed: dict[int, str] = {}
    async with running_core(breakage()) as core:
        clock = MovedClock(core.clock)
        for case in cases:
            if case.group in groups:
                deadline_s = DEADLINE_S if case.number in broken else PATIENCE_S
                result = await run_case(case, core.address, clock, Settings(deadline_s, SETTLE_S))
                if result.verdict is Verdict.FAIL:
                    failed[case.number] = result.reason
    assert failed.keys() == broken, failed
    assert all(failed.values()), "each of them says what was expected and what came"


async def test_a_core_may_refuse_in_its_own_words() -> None:
    """With the option for it, the text of a reason decides nothing; without, the contract's token has to be there."""
    cases = select_cases(all_cases(), ("28", "50", "76"))
    strict = Settings(PATIENCE_S, SETTLE_S)
    async with running_core(broken_cores.RefusesInItsOwnWords()) as core:
        for any_reason, verdict in ((False, Verdict.FAIL), (True, Verdict.PASS)):
            settings = replace(strict, any_reason=any_reason)
            results = [await run_case(case, core.address, MovedClock(core.clock), settings) for case in cases]
            assert [result.verdict for result in results] == [verdict] * len(cases), results
