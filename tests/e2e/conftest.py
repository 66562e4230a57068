"""A served core for each end-to-end test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.harness import Core, running_core


@pytest.fixture
async def core() -> AsyncIterator[Core]:
    """A fresh core around the real engine; nobody is registered."""
    async with running_core() as core:
        yield core


@pytest.fixture
async def reg(core: Core) -> Core:
    """*core* with manager rm-1 registered and one leaf queue `root.a`: "reg" of the contract cases."""
    await core.register()
    return core
