"""Every contract case: against our own core over a real channel and on simulated time, or against any other core."""

from __future__ import annotations

import pytest

from kornel.conformance.case import Case, all_cases
from kornel.conformance.connection import Settings
from kornel.conformance.gaps import judge_result
from kornel.conformance.known_gaps import GAPS, LAST_CASE
from kornel.conformance.outcome import Verdict
from kornel.conformance.runner import run_case
from tests.conformance.targets import SETTLE_S, Target
from tests.patience import PATIENCE_S

GAP_DEADLINE_S = 0.5
"""Cases that are known to fail mostly do so by waiting for something in vain."""


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.id)
async def test_case(case: Case, target: Target, gaps: dict[str, str]) -> None:
    """The core keeps the contract, except for the known gaps, none of which is kept by now."""
    if case.group == "restarts":
        pytest.skip("a core in this process cannot be killed: test_restarts.py")
    if target.core is None:
        result = judge_result(await run_case(case, target.address, target.clock, Settings()), gaps)
        if result.verdict is Verdict.GAP:
            pytest.skip(result.reason)
        assert result.verdict is Verdict.PASS, f"{case.id} {case.title} ({case.rule}): {result.reason}"
        return
    deadline_s = GAP_DEADLINE_S if case.id in gaps else PATIENCE_S
    settings = Settings(deadline_s=deadline_s, settle_s=SETTLE_S)
    result = judge_result(await run_case(case, target.address, target.clock, settings), gaps)
    partitions = [each.status(audited=True) for each in target.core.server.managers.first.runner.reader.partitions()]
    assert result.verdict is not Verdict.FAIL, f"{case.id} {case.title} ({case.rule}): {result.reason}"
    assert result.verdict is Verdict.PASS or case.id in gaps, f"not tried: {result.reason}"
    assert result.verdict is Verdict.GAP or not result.reason, f"not looked at: {result.reason}"
    assert not any(p.law_violations or p.invariant_violations for p in partitions)
    assert target.core.metrics.engine_faults == 0


def test_every_number_has_a_script() -> None:
    """The scripts are numbered without holes, and gaps are about scripts."""
    assert [case.number for case in all_cases()] == list(range(1, LAST_CASE + 1))
    assert set(GAPS) <= set(range(1, LAST_CASE + 1))


def test_every_case_says_where_its_rule_is_written() -> None:
    """Document and section, such as "protocol.md 10.2"."""
    for case in all_cases():
        document, _, section = case.rule.partition(" ")
        assert document.endswith(".md"), case.id
        assert section, case.id
