"""``pytest tests/conformance --core-address=HOST:PORT``: the contract cases against a core that runs somewhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kornel.conformance.clock import clock_of
from kornel.conformance.gaps import OWN, load_gaps
from kornel.core.service.machine.clock import ManualClock
from tests.conformance.targets import MovedClock, Target
from tests.e2e.harness import running_core


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--core-address",
        metavar="HOST:PORT",
        help="run the contract cases against this core instead of one of ours in this process",
    )

    parser.addoption(
        "--core-gaps",
        metavar="FILE",
        help="what that core may fail, as kornel-conformance core --gaps takes it",
    )


@pytest.fixture(scope="session")
def gaps(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the core may fail, with reasons."""
    source: str | None = request.config.getoption("--core-gaps", default=None)
    if source is None:
        return {} if request.config.getoption("--core-address", default=None) else load_gaps(OWN)
    return load_gaps(source)


@pytest.fixture
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    """The core to run a case against: by default a new one in this process, with a clock that stands still."""
    address: str | None = request.config.getoption("--core-address", default=None)
    if address is not None:
        async with clock_of(address) as clock:
            yield Target(address, clock, None)
        return
    async with running_core() as core:
        assert isinstance(core.clock, ManualClock)
        yield Target(core.address, MovedClock(core.clock), core)
