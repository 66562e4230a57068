"""A demonstration of a leader that is killed in the middle of a preemption: ``kornel-shim-mock demo --kind failover``.

Where PostgreSQL is installed, two cores share a journal in it. The first leads, and is killed when half of the victims
of a preemption have gone; the second takes over, and the preemption goes on. Without PostgreSQL one core has a journal
in a file, is killed at the same moment, and is started again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kornel.shim_client import (
    Allocated,
    Ask,
    AskRejected,
    Released,
    ShimClient,
    StreamReopened,
)
from kornel.shim_mock.database import running_database
from kornel.shim_mock.demo import SERVE, stop_core, wait_for_address
from kornel.shim_mock.stories import (
    STEP_S,
    StoryFailed,
    add_application,
    poll_until,
    run_kornel,
    updates_handled,
    wait_until,
)
from kornel.si.v1 import si_pb2 as si

NODES: Final = 4
CORES_OF_NODE: Final = 8
WORKERS: Final = NODES * CORES_OF_NODE
WAITING: Final = 3
SERVERS: Final = NODES
SERVER_CORES: Final = 2
VICTIMS: Final = SERVERS * SERVER_CORES

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources:
              guaranteed: {vcore: 8}
            properties:
              preemption.delay: 1s
          - name: batch
"""


@dataclass
class DemoCore:
    """One core as a child process. ``name`` is its name in the texts of the demonstration."""

    name: str
    process: asyncio.subprocess.Process
    address: str
    log: Path


class Site:
    """The simulated cluster: which tasks run on which nodes, which have to leave, and everything that was ever
    placed."""

    def __init__(self, client: ShimClient) -> None:
        self._client = client
        self.running: dict[str, str] = {}
        self.leaving: dict[str, si.TerminationType.ValueType] = {}
        self.gone: set[str] = set()
        self.placed: dict[str, set[str]] = {}
        self.repeated = 0
        self.reopened_s = 0.0
        self._changed = asyncio.Event()

    async def fill(self) -> None:
        """Report the nodes, and fill them with batch work."""
        capacity = si.Resource(resources={"vcore": si.Quantity(value=1_000 * CORES_OF_NODE)})
        await self._client.create_nodes(
            [
                si.NodeInfo(nodeID=f"node-{number}", action=si.NodeInfo.CREATE, schedulableResource=capacity)
                for number in range(NODES)
            ]
        )
        await self._add_application("nightly", "root.batch")
        count = WORKERS + WAITING
        await self._client.submit_asks(Ask(f"worker-{n:02}", "nightly", {"vcore": 1_000}) for n in range(count))
        await self.wait_for(lambda: len(self.running) == WORKERS, f"{WORKERS} workers to run")

    async def ask_for_servers(self) -> None:
        """Submit the asks that preempt."""
        await self._add_application("shop", "root.prod")
        await self._client.submit_asks(
            Ask(f"server-{n}", "shop", {"vcore": 1_000 * SERVER_CORES}, priority=100, allow_preempt_other=True)
            for n in range(SERVERS)
        )

    async def let_go(self, most: int) -> list[str]:
        """Confirm that victims have left, at most *most* of them. Returns their keys."""
        going = sorted(self.leaving)[:most]
        for key in going:
            self.gone.add(key)
            self.running.pop(key, None)
        releases = [self._client.release_of("nightly", key, self.leaving.pop(key)) for key in going]
        await self._client.release(releases)
        return going

    async def handle_updates(self) -> None:
        """Carry out the core's decisions until cancelled. A decision that is repeated after a failover is carried out
        once."""
        async for update in self._client.updates():
            match update:
                case Allocated(key=key, node_id=node_id):
                    self.repeated += key in self.placed
                    self.placed.setdefault(key, set()).add(node_id)
                    if key not in self.gone:
                        self.running[key] = node_id
                case Released(key=key) if update.wants_confirmation:
                    self.repeated += key in self.leaving or key in self.gone
                    if key in self.gone:
                        await self._client.release([self._client.release_of("nightly", key, update.termination)])
                    else:
                        self.leaving[key] = update.termination
                case AskRejected(key=key, reason=reason):
                    raise StoryFailed(f"ask {key} was refused: {reason}")
                case StreamReopened():
                    self.reopened_s = self.reopened_s or time.monotonic()
                case _:
                    continue
            self._changed.set()

    async def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until *condition* is true. Otherwise raises :class:`StoryFailed`, which names *what* was awaited."""
        await wait_until(self._changed, condition, lambda: f"waited {STEP_S:g} s for {what}")

    def count_servers(self) -> int:
        """Returns the number of servers that run."""
        return sum(key.startswith("server") for key in self.running)

    async def _add_application(self, name: str, queue: str) -> None:
        await add_application(self._client, si.AddApplicationRequest(applicationID=name, queueName=queue))


async def demonstrate_failover(say: Callable[[str], None], log: Path, *, programs: Path | None) -> None:
    """Kill a core in the middle of a preemption, and report with *say* how the preemption goes on. Raises
    :class:`StoryFailed`.

    *programs* is the folder with PostgreSQL's programs. With ``None``, the same core is started again and no other one
    takes over.
    """
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kornel-demo-")))
        log.parent.mkdir(parents=True, exist_ok=True)
        if programs is not None:
            journal = await stack.enter_async_context(running_database(programs))
            say(f"PostgreSQL ({programs}) runs in a directory of its own, for the journal of two cores.")
        else:
            journal = str(scratch / "journal.db")
            say(
                "PostgreSQL is not installed, so a core is started again on its journal, a file. With PostgreSQL,"
                "\na second core would stand by, and take over by itself."
            )
        name = "the first core" if programs is not None else "the core"
        # A core that is started again has to have the same address, and another program may take a port meanwhile.
        address = "127.0.0.1:0" if programs is not None else f"unix:{scratch / 'core.sock'}"
        first = await stack.enter_async_context(_running_core(name, journal, scratch, log, address))
        cores = [first]
        if programs is not None:
            second = _running_core("the second core", journal, scratch, log, address)
            cores.append(await stack.enter_async_context(second))
        addresses = ",".join(core.address for core in reversed(cores))
        client = await stack.enter_async_context(ShimClient(addresses, "shim-mock", reconnect_s=STEP_S))
        await client.register(config=CONFIG)
        site = Site(client)
        async with updates_handled(site.handle_updates):
            await _show_failover(say, site, client, cores, stack, journal, scratch, log)


async def _show_failover(
    say: Callable[[str], None],
    site: Site,
    client: ShimClient,
    cores: list[DemoCore],
    stack: AsyncExitStack,
    journal: str,
    scratch: Path,
    log: Path,
) -> None:
    first = cores[0]
    for core in cores:
        say(f"\n{core.name} at {core.address}, log in {core.log}\n" + await _first_lines(core.address, 3))
    say(
        f"\n1. A shim registers with both addresses and finds the leader. {NODES} nodes of {CORES_OF_NODE} cores are"
        f" full of batch work:\n   {WORKERS} workers run, {WAITING} wait."
        if len(cores) > 1
        else f"\n1. A shim registers. {NODES} nodes of {CORES_OF_NODE} cores are full of batch work:"
        f" {WORKERS} workers run, {WAITING} wait."
    )
    await site.fill()

    say(
        f"\n2. {SERVERS} servers of {SERVER_CORES} cores each want what their queue is guaranteed. The core asks for"
        f" {VICTIMS} victims."
    )
    await site.ask_for_servers()
    await site.wait_for(lambda: len(site.leaving) == VICTIMS, f"{VICTIMS} victims")
    went = await site.let_go(VICTIMS // 2)
    await site.wait_for(lambda: site.count_servers() >= 1, "a server to run")
    say(f"   {', '.join(went)} have gone; {len(site.leaving)} victims are still saving their work.")
    say(f"   {site.count_servers()} of {SERVERS} servers run.")

    say(f"\n3. In the middle of it, {first.name} is killed (SIGKILL).")
    site.reopened_s = 0.0
    first.process.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    await first.process.wait()
    if len(cores) > 1:
        second = cores[1]
    else:
        second = await stack.enter_async_context(
            _running_core("the core started again", journal, scratch, log, first.address)
        )
    await site.wait_for(lambda: bool(site.reopened_s), "the streams to be opened again")
    took_s = site.reopened_s - killed_s
    say(f"   {second.name} leads after {took_s:.1f} s. The shim did not register again, and reported nothing again.")
    say(await _first_lines(second.address, 3))

    say(f"\n4. The preemption goes on: the other {len(site.leaving)} victims go, and the other servers start.")
    await site.let_go(VICTIMS)
    await site.wait_for(lambda: site.count_servers() == SERVERS, f"{SERVERS} servers to run")
    await _check_books(say, site, client, took_s)


async def _check_books(say: Callable[[str], None], site: Site, client: ShimClient, took_s: float) -> None:
    """Compare the accounts of the shim and of the core. Raises :class:`StoryFailed` if they differ."""
    await client.flush()
    running = len(site.running)
    status = await poll_until(
        lambda: client.status(audit=True),
        lambda status: status.partitions[0].allocation_count == running,
        f"the core to have {running} allocations",
    )
    (partition,) = status.partitions
    twice = sorted(key for key, nodes in site.placed.items() if len(nodes) > 1)
    faults = partition.law_violations + partition.invariant_violations
    say(
        f"\n5. The books agree:\n"
        f"   {len(site.running):>3} tasks run, says the shim; {partition.allocation_count} allocations, says the core\n"
        f"   {partition.pending_ask_count:>3} asks wait, as before\n"
        f"   {len(twice):>3} tasks placed twice, {faults} laws or books broken\n"
        f"   {site.repeated:>3} messages heard a second time, since they might not have arrived\n"
        f"   {took_s:>3.1f} s without a core"
    )
    if partition.pending_ask_count != WAITING or twice or faults:
        raise StoryFailed("the books of shim and core differ")


@asynccontextmanager
async def _running_core(name: str, journal: str, scratch: Path, log: Path, address: str) -> AsyncIterator[DemoCore]:
    """Yields a core that uses *journal* and serves at *address*. If it still runs at the end of the block, it is asked
    to stop."""
    short = name.replace(" ", "-")
    ready = scratch / f"ready-{short}"
    own_log = log.with_name(f"{short}{log.suffix}")
    arguments = [*SERVE, "--history", "off", "--journal", journal, "--ready-file", str(ready), "--grpc", address]
    with own_log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield DemoCore(name, process, await wait_for_address(process, ready, own_log), own_log)
        if process.returncode is None:
            await stop_core(process, own_log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _first_lines(address: str, count: int) -> str:
    """Returns the first lines of ``kornel status``, as an operator would see them."""
    lines = [line for line in (await run_kornel(address, "status")).splitlines() if line.strip()]
    return "\n".join(lines[:count])
