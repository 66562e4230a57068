"""The cases in which the core is killed, against cores in processes of their own, with and without a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kornel.conformance.case import Case, all_cases
from kornel.conformance.clock import RealClock
from kornel.conformance.outcome import Verdict
from kornel.conformance.runner import Settings, run_case
from tests.e2e.test_resume import KilledCore, killed_core

RESTARTS = [case for case in all_cases() if case.group == "restarts"]

pytestmark = pytest.mark.timeout(200)


@asynccontextmanager
async def restartable(core: KilledCore, home: Path, *, afresh: bool) -> AsyncIterator[str]:
    """A command that has *core* killed and started again. *afresh*: it forgets everything."""
    wanted = home / "wanted"

    async def restart_when_wanted() -> None:
        while True:
            while not wanted.exists():  # noqa: ASYNC110 - another process wants it
                await asyncio.sleep(0.02)
            await core.kill()
            if afresh:
                core.journal = "off"
            await core.start()
            wanted.unlink()

    restarting = asyncio.create_task(restart_when_wanted())
    yield f": > {wanted}; while [ -e {wanted} ]; do sleep 0.05; done"
    restarting.cancel()


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.id)
async def test_a_core_with_a_journal_keeps_the_contract(case: Case, tmp_path: Path) -> None:
    """For shims of both kinds, whether they say what they have received or not."""
    async with killed_core(tmp_path) as core, restartable(core, tmp_path, afresh=False) as command:
        result = await run_case(case, core.address, RealClock(), Settings(restart=command))
    assert result.verdict is Verdict.PASS, result.reason


async def test_a_core_that_forgets_fails(tmp_path: Path) -> None:
    """The cases notice a core that has lost everything; without a command they are not tried."""
    async with killed_core(tmp_path) as core, restartable(core, tmp_path, afresh=True) as command:
        settings = Settings(deadline_s=1.0, restart=command)
        for case in RESTARTS:
            assert (await run_case(case, core.address, RealClock(), settings)).verdict is Verdict.FAIL
            assert (await run_case(case, core.address, RealClock(), Settings())).verdict is Verdict.GAP
