"""The Kubernetes shim: its own tests, and YuniKorn's shim at a core, with a clientset without API server."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.harness import running_core
from tests.go.toolchain import SHIM, list_unformatted, run_go


def test_the_scheduler_that_the_shim_sees_and_the_groups_it_translates() -> None:
    assert not list_unformatted(SHIM)
    run_go(SHIM, "vet", "./scheduler", "./groups")
    run_go(SHIM, "test", "./scheduler", "./groups")


@pytest.mark.long
def test_the_shim_at_a_scripted_core() -> None:
    run_go(SHIM, "vet", "./...")
    run_go(SHIM, "test", "./...")


@pytest.mark.long
async def test_the_shim_at_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_core() as core:
        monkeypatch.setenv("KORNEL_ADDRESS", core.address)
        # Its packages are built by the test above; a cold build may take longer than the core is patient with nobody.
        await asyncio.to_thread(run_go, SHIM, "test", "-count=1", "./integration")
