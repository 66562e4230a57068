"""A demonstration of shims that replace each other while one core goes on: ``kornel-shim-mock demo --kind swap``.

Three shims use the core one after the other. A simulated cluster, ``site``, runs simulated containers. `kornel-local`
takes its place under the same name and runs a real process. Then a shim with another name, ``annex``, registers too and
takes over that process. Neither the core nor the process is started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kornel.shim_client import Allocated, Ask, ShimClient, Superseded
from kornel.shim_mock.demo import running_core
from kornel.shim_mock.stories import STEP_S, StoryFailed, add_application, poll_until, run_kornel, run_program
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import status_pb2

SITE: Final = "site"
ANNEX: Final = "annex"
CONTAINERS: Final = 4

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
"""


class Machine:
    """This machine, run by `kornel-local` with its jobs and files in *folder*. Each command runs as a separate
    program."""

    def __init__(self, folder: Path, core: str) -> None:
        self._folder = folder
        self._core = core

    async def start_server(self, rm_id: str) -> None:
        """Start a shim that offers this machine as resource manager *rm_id*."""
        await self._run("up", "--core", self._core, "--rm-id", rm_id, "--name", "this-machine", "--vcore", "2",
                        "--memory", "1Gi", "--gpu", "0")  # fmt: skip

    async def submit_job(self, *command: str) -> str:
        """Submit a job. Returns its number."""
        return (await self._run("submit", "--", *command)).split()[0]

    async def stop_server(self, *options: str) -> None:
        """Stop the shim, but neither the core nor the running jobs."""
        await self._run("down", "--keep-core", *options)

    async def find_process(self, job: str) -> int:
        """Returns the process ID that a running job wrote into its log, or 0 if it does not run."""
        task = json.loads(await self._run("show", job))["tasks"][0]
        return int(await self._run("logs", job) or 0) if task["state"] == "running" else 0

    async def _run(self, *arguments: str) -> str:
        return await run_program(
            f"kornel-local {arguments[0]}", "kornel.shim_local", "--state", str(self._folder), *arguments
        )


async def demonstrate_swap(say: Callable[[str], None], log: Path) -> None:
    """Make three shims replace each other, and report the steps with *say*. Raises :class:`StoryFailed`."""
    with tempfile.TemporaryDirectory(prefix="kornel-swap-") as scratch:
        async with running_core(log) as address:
            say(f"A core serves at {address}. Shims come and go from here on; it is not started again.")
            async with ShimClient(address, SITE) as simulated:
                await _run_simulated(simulated, say)
                machine = Machine(Path(scratch, "local"), address)
                try:
                    await _show_swaps(simulated, machine, address, say)
                finally:
                    await machine.stop_server("--cancel")


async def _run_simulated(client: ShimClient, say: Callable[[str], None]) -> None:
    say(f"\n1. A simulated cluster registers as {SITE!r}, with a node and {CONTAINERS} simulated containers on it.")
    await client.register(config=CONFIG)
    capacity = si.Resource(resources={"vcore": si.Quantity(value=8_000), "memory": si.Quantity(value=8 << 30)})
    node = si.NodeInfo(nodeID="simulated-node", action=si.NodeInfo.CREATE, schedulableResource=capacity)
    await client.create_nodes([node])
    await add_application(client, si.AddApplicationRequest(applicationID="made-up", queueName="root.batch"))
    await client.submit_asks([Ask(f"container-{n}", "made-up", {"vcore": 1_000}) for n in range(CONTAINERS)])
    placed = 0
    async with asyncio.timeout(STEP_S):
        async for update in client.updates():
            placed += isinstance(update, Allocated)
            if placed == CONTAINERS:
                break
    _say_status(await client.status(), say)


async def _show_swaps(simulated: ShimClient, machine: Machine, address: str, say: Callable[[str], None]) -> None:
    say(
        f"\n2. kornel-local registers under the same name, {SITE!r}. The core accepts only this one from now on: the"
        "\n   simulated cluster is told 'superseded' and ends, and what it had reported is removed."
    )
    await machine.start_server(SITE)
    said = await _hear_the_end(simulated)
    say(f"   The simulated cluster heard: {said}")
    job = await machine.submit_job("sh", "-c", "echo $$; exec sleep 600")
    process = await poll_until(lambda: machine.find_process(job), bool, "the job to run")
    say(f"   Job {job} runs on this machine, as process {process}.")
    async with ShimClient(address, SITE) as looking:
        _say_status(await looking.status(), say)

    say(
        f"\n3. That shim ends; the process goes on. A shim of another name, {ANNEX!r}, registers beside {SITE!r}, finds"
        "\n   the process and reports it to the core as running. Then the manager without a shim is removed."
    )
    await machine.stop_server()
    await machine.start_server(ANNEX)
    found = await poll_until(lambda: machine.find_process(job), bool, "the job to be taken over")
    async with ShimClient(address, ANNEX) as looking:
        await poll_until(lambda: _count_allocations(looking), bool, "the core to learn of the job")
        await run_kornel(address, "unregister", SITE, "--yes")
        _say_status(await looking.status(), say)
    if found != process or not _is_alive(process):
        raise StoryFailed(f"job {job} was process {process}, and is {found} now")
    say(f"   Job {job} is still process {process}: it was never stopped, and the core never restarted.")


async def _hear_the_end(client: ShimClient) -> str:
    try:
        async with asyncio.timeout(STEP_S):
            async for _ in client.updates():
                pass
    except Superseded as error:
        return str(error)
    raise StoryFailed("the simulated cluster was not told that another shim has taken its place")


async def _count_allocations(client: ShimClient) -> int:
    return sum(partition.allocation_count for partition in (await client.status()).partitions)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _say_status(status: status_pb2.GetStatusResponse, say: Callable[[str], None]) -> None:
    for partition in status.partitions:
        say(
            f"   The core holds for {partition.name}: nodes {partition.node_count}, running"
            f" {partition.allocation_count}, waiting {partition.pending_ask_count}"
        )
