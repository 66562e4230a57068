"""How soon a core that stands by leads, by the clock, with nothing else at work."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.cores import cores_on
from tests.e2e.test_journal import Shim
from tests.history_databases import postgres, postgres_server
from tests.postgres import Postgres

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.alone


@pytest.mark.parametrize(("number", "longest_s"), [(signal.SIGKILL, 5.0), (signal.SIGSTOP, 5.0), (signal.SIGTERM, 1.0)])
async def test_a_standby_leads_soon(
    postgres: Postgres, tmp_path: Path, number: signal.Signals, longest_s: float
) -> None:
    """Within five seconds of the death of a leader under load, and within one second if it ends in order."""
    shim = Shim()
    async with cores_on(postgres.url, tmp_path) as cores:
        first = await cores.start()
        await shim.prepare(first.channel)
        second = await cores.start()
        await shim.place(first.channel, 0.6)
        first.send(number)
        began = time.monotonic()
        assert await cores.leader(first) is second
        assert time.monotonic() - began <= longest_s
