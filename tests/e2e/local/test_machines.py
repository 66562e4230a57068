"""A second machine, played by a second agent here: its jobs survive it, and it survives the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kornel.shim_client import ShimClient
from kornel.shim_local.client import RequestRefused
from tests.e2e.local.harness import Local, running_local
from tests.ports import reserve_port
from tests.waiting import wait_until

TRACE = "echo begin $KORNEL_ATTEMPT >> {file}; while [ ! -e {file}.go ]; do sleep 0.05; done; echo end >> {file}"


@dataclass
class Pair:
    """A server, and an agent that has joined it."""

    server: Local
    joined: Local

    def is_connected(self) -> bool:
        """Tells whether the server has the agent."""
        return any(node["name"] == "second" and node["online"] for node in self.server.request("status")["nodes"])

    def wait_for_agent(self, connected: bool = True) -> None:
        """Wait until the agent is connected, or away."""
        wait_until(lambda: self.is_connected() is connected, f"the agent to be {connected}")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """The server offers one core, the second machine two."""
    with running_local(
        tmp_path / "a", "--name", "first", "--vcore", "1", "--listen", f"127.0.0.1:{reserve_port()}"
    ) as server:
        address = server.request("status")["listen"]
        token = tmp_path / "token"
        token.write_text((tmp_path / "a" / "token").read_text())
        joined = Local(
            tmp_path / "b", "--name", "second", "--vcore", "2", "--join", address, "--agent-token", str(token)
        )
        pair = Pair(server, joined)
        try:
            joined.up()
            pair.wait_for_agent()
            yield pair
        finally:
            joined.down()


async def read_guarantee(address: str) -> int:
    """Returns how many thousandths of a core the queue for urgent work has for certain."""
    async with ShimClient(address, "reader") as client:
        (partition,) = (await client.status()).partitions
        return next(queue.guaranteed["vcore"] for queue in partition.queues if queue.path == "root.urgent")


def test_the_guarantee_follows_the_machines(pair: Pair) -> None:
    """Everything that both have together."""
    address = pair.server.request("status")["core"]
    wait_until(lambda: asyncio.run(read_guarantee(address)) == 3000, "the guarantee to be that of both")


def test_an_agent_that_dies_finds_its_jobs_again(pair: Pair, tmp_path: Path) -> None:
    """The job goes on meanwhile, runs once, and its log can be read from either machine."""
    file = tmp_path / "trace"
    job = pair.server.shell(TRACE.format(file=file) + "; echo said", vcore=2000)
    assert pair.server.wait_for_state(job, "running")["node"] == "second"
    wait_until(file.exists, "the job to begin")
    pair.joined.kill_server()
    pair.wait_for_agent(connected=False)
    Path(f"{file}.go").touch()
    wait_until(lambda: "end" in file.read_text(), "the job to end")
    assert pair.server.task(job)["state"] == "running"
    pair.joined.up()
    (task,) = pair.joined.wait(job)
    assert (task["state"], task["attempt"]) == ("done", 1)
    assert file.read_text() == "begin 1\nend\n"
    assert pair.server.read_log(job) == pair.joined.read_log(job) == "said\n"


@pytest.mark.long
def test_an_agent_outlives_the_server(pair: Pair, tmp_path: Path) -> None:
    """It connects again by itself, and tells what has ended."""
    file = tmp_path / "trace"
    port = pair.server.request("status")["listen"]
    job = pair.server.shell(TRACE.format(file=file), vcore=2000)
    pair.server.wait_for_state(job, "running")
    pair.server.kill_server()
    Path(f"{file}.go").touch()
    pair.server.options = ("--name", "first", "--vcore", "1", "--listen", port)
    pair.server.up()
    (task,) = pair.server.wait(job)
    assert (task["state"], task["attempt"], task["node"]) == ("done", 1, "second")


@pytest.mark.long
def test_a_machine_that_is_given_up_loses_its_jobs_to_others(pair: Pair, tmp_path: Path) -> None:
    """Only when somebody says so. An agent that comes back has to stop what is not its own any more."""
    file = tmp_path / "trace"
    job = pair.server.shell(TRACE.format(file=file), vcore=1000, priority=1)
    other = pair.server.shell("sleep 300", vcore=1000)
    nodes = {name: pair.server.wait_for_state(name, "running")["node"] for name in (job, other)}
    lost = next((name for name, node in nodes.items() if node == "second"), "")
    assert lost
    with pytest.raises(RequestRefused, match="is connected; stop it first"):
        pair.server.request("forget", node="second")
    pair.joined.kill_server()
    pair.wait_for_agent(connected=False)
    pair.server.request("cancel", names=[name for name in nodes if name != lost])
    assert pair.server.request("forget", node="second")["lost"] in (1, 2)
    assert pair.server.wait_for_state(lost, "running")["node"] == "first"
    assert pair.server.task(lost)["attempt"] == 2
    pair.joined.up()
    pair.wait_for_agent()
    live = pair.joined.folder / "agent" / "live"
    wait_until(lambda: not any(live.iterdir()), "the second machine to stop what runs elsewhere")
    pair.server.request("cancel", names=[job, other])
    pair.server.wait(job, other)


def test_a_wrong_token_is_refused(pair: Pair, tmp_path: Path) -> None:
    """Who has it not cannot even ask."""
    address = pair.server.request("status")["listen"]
    token = tmp_path / "wrong"
    token.write_text("x" * 40)
    stranger = Local(tmp_path / "c", "--name", "third", "--join", address, "--agent-token", str(token))
    try:
        stranger.start()
        said = wait_until(
            lambda: "the token is not that of this server" in stranger.log.read_text() and stranger.log.read_text(),
            "the refusal",
        )
        assert "cannot connect" in said
        with pytest.raises(RequestRefused, match="the token is not that of this server"):
            stranger.request("ps")
    finally:
        stranger.down()
    assert {node["name"] for node in pair.server.request("status")["nodes"]} == {"first", "second"}
