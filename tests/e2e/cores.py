"""Cores as real processes that share a journal, for tests that kill, stop and start them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
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
AHEAD = """
import runpy, sys, time, types
from kornel.core.service.machine import clock
ahead_ns = int(sys.argv.pop(1)) * 10**9
clock.time = types.SimpleNamespace(**{**vars(time), "time_ns": lambda: time.time_ns() + ahead_ns})
sys.argv[0] = "kornel"
runpy.run_module("kornel", run_name="__main__")
"""
"""A core on a machine whose clock is ahead, or back."""

PLANTED = """
import asyncio, runpy, sys
from kornel.core.journal.restoring import EngineRestorer
from kornel.core.partition.engine import Engine
from kornel.core.partition.intake import allocation_intake, node_intake
handle, drain, cycle = allocation_intake.handle, node_intake.handle, Engine.cycle
update = Engine._take_update_steps

def handle_entry(state, spec, now_ns):
    refused = handle(state, spec, now_ns)
    if spec.key.startswith("poison"):
        state.nodes.clear()
        raise RuntimeError("planted: " + spec.key)
    return refused

def handle_node(state, spec, now_ns):
    drain(state, spec, now_ns)
    if spec.node_id == "n2" and spec.action == 3:
        raise RuntimeError("planted: drain")

def run_slice(self, now_ns, budget):
    if any(key.startswith("stuck") for state in self._partitions.values() for key in state.requests):
        self._partitions.clear()
        raise RuntimeError("planted: slice")
    return cycle(self, now_ns, budget)

def take_update(self, command, now_ns):
    yield from update(self, command, now_ns)
    if "poison" in command.config:
        raise RuntimeError("planted: configuration")

async def restore_and_wait(self, error, record):
    await restore(self, error, record)
    restored.append(record)
    if str(error).endswith(f"held-{len(restored)}"):
        print("held", flush=True)
        await asyncio.Event().wait()

restored, restore = [], EngineRestorer.restore_engine
EngineRestorer.restore_engine = restore_and_wait
allocation_intake.handle, node_intake.handle, Engine.cycle = handle_entry, handle_node, run_slice
Engine._take_update_steps = take_update
sys.argv[0] = "kornel"
runpy.run_module("kornel", run_name="__main__")
"""
"""A core with bugs: on asks called poison and configurations with that word, on draining node n2, and in slices while
an ask called stuck waits. Of an ask whose name ends with held-N, the core does nothing more after it was restored N
times."""

OTHER_VERSION = """
import runpy, sys
import kornel
kornel.__version__ = sys.argv.pop(1)
sys.argv[0] = "kornel"
runpy.run_module("kornel", run_name="__main__")
"""
"""A core that says that it is another version."""


@dataclass
class CoreProcess:
    """One ``kornel serve``. ``address``: of gRPC. ``prepared``: it was forked, and ``process`` stands for it."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    channel: grpc.aio.Channel
    prepared: bool = True
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
        return find_program(self.process.pid) if self.prepared else self.process.pid

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
        forked: bool = True,
    ) -> CoreProcess:
        """Returns a core that has begun to serve, as the leader or standing by. *address*: of a core that has ended.
        *ahead_s*: its machine's clock is.
        *version*: that it says it is. *bugs*: it has the planted ones. *forked*: by a
        process that has imported everything, so that its own processes are not its children."""
        number = len(self._started)
        address = address or f"127.0.0.1:{reserve_port()}"
        ready, log = self._home / f"ready-{number}", self._home / f"core-{number}.log"
        module = ["-c", AHEAD, str(ahead_s)] if ahead_s else ["-m", "kornel"]
        if version:
            module = ["-c", OTHER_VERSION, version]
        if bugs:
            module = ["-c", PLANTED]
        prepared = forked and module[0] == "-m"
        command = [
            python() if prepared else sys.executable, *module, "serve", "--grpc", address, "--ready-file", str(ready),
            "--rest-address", "off", "--history", "off", "--journal", self._journal, *options,
        ]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)  # noqa: ASYNC220 - forks once
        core = CoreProcess(process, "", log, None, prepared)  # type: ignore[arg-type]
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
