"""Commands in terminals of their own, 80 and 120 columns wide."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import AsyncIterator

import pytest

from kornel.shim_client import Ask, ShimClient, resource
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import Core, running_core
from tests.prepared import python

LONG = "spark-history-server-of-the-whole-company-" * 5
TEAMS = ", ".join(f"{{name: team{n:04}, resources: {{guaranteed: {{vcore: 1, memory: 1Gi}}}}}}" for n in range(1_000))
QUEUES = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a, queues: ["
    + TEAMS
    + "]}]}]}]"
)


@pytest.fixture
async def core() -> AsyncIterator[Core]:
    """A thousand queues, names of more than 200 characters, and something that waits."""
    async with running_core() as served, ShimClient(served.address, "rm-1") as shim:
        await shim.register(config=QUEUES)
        owner = si.UserGroupInformation(user=f"{LONG}ann", groups=["staff"])
        room = resource({"vcore": 4000, "memory": 2**33, "nvidia.com/gpu": 8, "ephemeral-storage": 10**12})
        await shim.create_nodes(
            [si.NodeInfo(nodeID=f"{LONG}node-1", action=si.NodeInfo.CREATE, schedulableResource=room)]
        )
        await shim.add_applications(
            [si.AddApplicationRequest(applicationID=f"{LONG}app-1", queueName="root.a.team0007", ugi=owner)]
        )
        wanted = {"vcore": 3000, "memory": 2**30, "nvidia.com/gpu": 1, "ephemeral-storage": 10**10}
        await shim.submit_asks([Ask(f"{LONG}pod-{n}", f"{LONG}app-1", wanted) for n in range(2)])
        await shim.flush()
        await served.settle()
        yield served


def run_in_terminal(columns: int, lines: int, environment: dict[str, str], arguments: list[str]) -> str:
    """Returns what ``kornel`` writes to a terminal of that size."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command = [python(), "-m", "kornel", *arguments]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    written = b""
    while True:
        try:
            more = os.read(screen, 65_536)
        except OSError:
            more = b""
        if not more:
            break
        written += more
    os.close(screen)
    process.wait()
    return written.decode().replace("\r\n", "\n")


async def show(core: Core, columns: int, *arguments: str, lines: int = 1000, **variables: str) -> list[str]:
    environment = {
        "PATH": os.environ["PATH"], "KORNEL_ADDRESS": core.address,
        "TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": str(columns), "LINES": str(lines), **variables,
    }  # fmt: skip
    written = await asyncio.to_thread(run_in_terminal, columns, lines, environment, list(arguments))
    assert "Traceback" not in written, written
    return written.splitlines()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [("status",), ("queues", "root.a.team0007"), ("apps",), ("nodes",), ("users",), ("top", "--count", "1")],
    ids=lambda each: each[0] if isinstance(each, tuple) else str(each),
)
async def test_tables_fit(core: Core, columns: int, arguments: tuple[str, ...]) -> None:
    """Whatever names and resource types there are; long names keep their ends."""
    lines = [line.removeprefix("\x1b[H\x1b[2J") for line in await show(core, columns, *arguments)]
    assert lines
    assert max(map(len, lines)) <= columns, "\n".join(lines)


async def test_status_summarises_a_thousand_queues(core: Core) -> None:
    """Those next to the root are shown, the others are counted."""
    lines = await show(core, 80, "status")
    assert len(lines) < 40, "\n".join(lines)
    text = " ".join(" ".join(lines).split())
    assert "and 1,000 more queues below them, 3 of 1,002 have asks pending" in text


async def test_what_is_longer_than_the_terminal_goes_through_a_pager(core: Core) -> None:
    """A program that people choose; a short answer does not."""
    paged = await show(core, 80, "queues", lines=25, KORNEL_PAGER="head -n 3")
    assert len(paged) == 3
    short = await show(core, 80, "users", lines=25, KORNEL_PAGER="head -n 1")
    assert len(short) > 1
    assert len(await show(core, 80, "queues", lines=25, KORNEL_PAGER="cat")) > 1_000
