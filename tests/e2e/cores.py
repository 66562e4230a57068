"""Cores as real processes that share a journal, for tests that kill, stop and start them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kornel.v1 import status_pb2, status_pb2_grpc
from tests.patience import PATIENCE_S
from tests.ports import reserve_port
from tests.prepared import find_program, python
from tests.waiting import until

SCHEDULER = "si.v1.Scheduler"


@dataclass
class CoreProcess:
    """One ``kornel serve``. ``address``: of gRPC. ``process`` stands for a prepared program."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    channel: grpc.aio.Channel
    signalled: list[int] = field(default_factory=list)

    async def serves(self, service: str = SCHEDULER, patience_s: float = PATIENCE_S) -> bool:
        """Tells whether the core says that *service* serves; one that does not answer for *patience_s* says no."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=patience_s)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def status(self, *, audited: bool = False) -> status_pb2.GetStatusResponse:
        """Returns the core's status, *audited* or not.

        An audit goes through everything that is placed: a core that is asked for one again and again does little else.
        """
        stub: status_pb2_grpc.StatusServiceAsyncStub = status_pb2_grpc.StatusServiceStub(self.channel)
        return await stub.GetStatus(status_pb2.GetStatusRequest(audit=audited), timeout=PATIENCE_S)

    async def has_caught_up(self) -> bool:
        """Tells whether a core that stands by has the state of the leader."""
        standing = (await self.status()).standing
        return bool(standing.leader_address) and not standing.records_behind

    async def check_books(self) -> status_pb2.GetStatusResponse:
        """Fails unless the core's books agree. Returns its status."""
        status = await self.status(audited=True)
        assert not sum(partition.invariant_violations for partition in status.partitions)
        return status

    async def wait_for_allocations(self, count: int) -> None:
        """Returns when the core has so many."""

        async def has_them() -> bool:
            return sum(each.allocation_count for each in (await self.status()).partitions) >= count

        await until(has_them, f"{count} allocations")

    async def wait_until_unfit(self) -> None:
        """Returns when the core has ended, or says that it never leads."""

        async def is_unfit() -> bool:
            if self.process.poll() is not None:
                return True
            with suppress(grpc.aio.AioRpcError):
                return (await self.status()).standing.role == "unfit"
            return False

        await until(is_unfit, "the core to end or never to lead")

    def send(self, number: int) -> None:
        """Sends the process a signal."""
        self.signalled.append(number)
        os.kill(self.find_program(), number)

    def find_program(self) -> int:
        """Returns the process ID of the program."""
        return find_program(self.process.pid)

    async def ended(self) -> int:
        """Returns the exit status once the process has ended."""
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), PATIENCE_S)


class Cores:
    """Cores on one journal; those that still run at the end are killed."""

    def __init__(self, journal: str, home: Path) -> None:
        self._journal = journal
        self._home = home
        self._started: list[CoreProcess] = []
        self._channels: list[grpc.aio.Channel] = []

    async def start(
        self,
        *options: str,
        address: str = "",
        ahead_s: int = 0,
        version: str = "",
        bugs: bool = False,
        journal: str = "",
    ) -> CoreProcess:
        """Returns a core that has begun to serve, as the leader or standing by. *address*: of a core that has ended.
        *ahead_s*, *version*, *bugs*: it is an altered one (:mod:`tests.e2e.altered_core`). *journal*:
        another address of it."""
        number = len(self._started)
        address = address or f"127.0.0.1:{reserve_port()}"
        ready, log = self._home / f"ready-{number}", self._home / f"core-{number}.log"
        altered = [f"ahead={ahead_s}"] * bool(ahead_s) + [f"version={version}"] * bool(version) + ["bugs"] * bugs
        module = ["tests.e2e.altered_core", *altered] if altered else ["kornel"]
        command = [
            python(), "-m", *module, "serve", "--grpc", address, "--ready-file", str(ready),
            "--rest-address", "off", "--history", "off", "--journal", journal or self._journal, *options,
        ]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)  # noqa: ASYNC220 - forks once
        core = CoreProcess(process, "", log, None)  # type: ignore[arg-type]
        self._started.append(core)
        await until(lambda: ready.exists() or process.poll() is not None, "the core to serve")
        assert ready.exists(), log.read_text()
        core.address = ready.read_text().strip()
        core.channel = grpc.aio.insecure_channel(core.address, options=[("grpc.max_reconnect_backoff_ms", 200)])
        self._channels.append(core.channel)
        return core

    async def leader(self, *others: CoreProcess) -> CoreProcess:
        """Returns the one that leads, once there is one; *others* do not count."""

        async def find_leader() -> CoreProcess | None:
            for core in self._started:
                if core not in others and core.process.poll() is None and await core.serves(patience_s=2.0):
                    return core
            return None

        found: CoreProcess = await until(find_leader, "one of the cores to lead")
        return found

    def print_logs(self) -> None:
        """Prints the end of each core's log."""
        for core in self._started:
            print(f"--- {core.log.name}\n{core.log.read_text(errors='replace')[-6000:]}")

    async def close(self) -> None:
        """Kills what runs."""
        for channel in self._channels:
            await channel.close()
        for core in self._started:
            if core.process.poll() is None:
                core.send(signal.SIGCONT)
                core.process.kill()
            core.process.wait()


@asynccontextmanager
async def cores_on(journal: str, home: Path) -> AsyncIterator[Cores]:
    """Cores that share *journal*; prints their logs when the test fails."""
    cores = Cores(journal, home)
    try:
        yield cores
    except BaseException:
        cores.print_logs()
        raise
    finally:
        await cores.close()
