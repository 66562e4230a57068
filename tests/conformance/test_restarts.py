"""The cases in which the core is killed, against cores in processes of their own, with and without a journal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kornel.conformance.case import Case, all_cases
from kornel.conformance.clock import RealClock
from kornel.conformance.connection import Settings
from kornel.conformance.outcome import Verdict
from kornel.conformance.runner import run_case
from tests.e2e.cores import cores_on
from tests.e2e.test_resume import KilledCore, killed_core
from tests.history_databases import postgres, postgres_server
from tests.patience import PATIENCE_S
from tests.postgres import Postgres

__all__ = ["postgres", "postgres_server"]

RESTARTS = [case for case in all_cases() if case.group == "restarts"]


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
        result = await run_case(case, core.address, RealClock(), Settings(PATIENCE_S, restart=command))
    assert result.verdict is Verdict.PASS, result.reason


class Relay:
    """An address that leads to whichever core leads, as a Service of Kubernetes does."""

    def __init__(self) -> None:
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self) -> str:
        """Returns the address."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def lead_to(self, address: str) -> None:
        """Has new connections go to *address*, and ends those that are open."""
        self.port = int(address.rpartition(":")[2])
        for writer in self._open:
            writer.transport.abort()

    async def close(self) -> None:
        self._server.close()
        await self.lead_to(":0")
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            self._open.add(back)
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        except OSError:
            writer.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(2**16):
                target.write(data)
                await target.drain()
        target.transport.abort()


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.id)
async def test_a_core_that_takes_over_keeps_the_contract(case: Case, tmp_path: Path, postgres: Postgres) -> None:
    """The core that leads is killed for good; the one that stands by has its place."""
    wanted = tmp_path / "wanted"
    relay = Relay()
    address = await relay.serve()
    async with cores_on(postgres.url, tmp_path) as cores:
        first, second = await cores.start(), await cores.start()
        await relay.lead_to(first.address)

        async def fail_over() -> None:
            while not wanted.exists():  # noqa: ASYNC110 - another process wants it
                await asyncio.sleep(0.02)
            first.send(signal.SIGKILL)
            assert await cores.leader(first) is second
            await relay.lead_to(second.address)
            wanted.unlink()

        failing = asyncio.create_task(fail_over())
        command = f": > {wanted}; while [ -e {wanted} ]; do sleep 0.05; done"
        result = await run_case(case, address, RealClock(), Settings(PATIENCE_S, restart=command))
        await failing
        await relay.close()
    assert result.verdict is Verdict.PASS, result.reason


async def test_a_core_that_forgets_fails(tmp_path: Path) -> None:
    """The cases notice a core that has lost everything; without a command they are not tried."""
    async with killed_core(tmp_path) as core, restartable(core, tmp_path, afresh=True) as command:
        settings = Settings(deadline_s=1.0, restart=command)
        for case in RESTARTS:
            assert (await run_case(case, core.address, RealClock(), settings)).verdict is Verdict.FAIL
            assert (await run_case(case, core.address, RealClock(), Settings())).verdict is Verdict.GAP
