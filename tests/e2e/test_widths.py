"""What commands write fits terminals of 80 and 120 columns, whatever names, resource types and events there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.cli.text import tables
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import Ask, ShimClient, resource
from kornel.si.v1 import si_pb2 as si
from kornel.v1.configuration_pb2 import UpdateConfigurationRequest
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from tests.e2e.harness import Core
from tests.e2e.test_history import core_with, written
from tests.waiting import until

LONG = "spark-history-server-of-the-whole-company-in-all-its-regions-"
assert len(LONG) > 60
QUEUES = f"""
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {{preemption.delay: 1s}}
        queues:
          - {{name: {LONG}a, resources: {{guaranteed: {{vcore: 4, memory: 4Gi, nvidia.com/gpu: GPU}}}}}}
          - {{name: {LONG}b, resources: {{max: {{vcore: 64, memory: 64Gi, ephemeral-storage: 1T}}}}}}
"""
A, B = f"root.{LONG}a", f"root.{LONG}b"
NODE, APP = f"{LONG}node-1", f"{LONG}app-a"
ROOM = {"vcore": 8000, "memory": 2**35, "nvidia.com/gpu": 8, "ephemeral-storage": 10**12, "example.com/licences": 40}
WANTED = {"vcore": 1000, "memory": 2**30, "nvidia.com/gpu": 1, "ephemeral-storage": 10**10, "example.com/licences": 5}
COMMANDS = (
    "status",
    "queues",
    "apps",
    f"apps {APP}",
    "nodes",
    f"nodes {NODE}",
    "users",
    f"explain {APP}",
    f"explain {LONG}pod-a-5",
    f"explain {LONG}pod-a-5 --node {NODE}",
    f"explain {NODE}",
    f"ask show {LONG}pod-a-5",
    f"queue show {A}",
    f"user show {LONG}ann",
    "history apps",
    "history preemptions",
    "history preemptions --sum app",
    "history events",
    "history configs",
    f"history usage {B} --since 2023-11-14",
    f"what-if quota {B} max.vcore=1",
    f"what-if ask --queue {A} --vcore 4 --count 3 --user {LONG}ann",
    f"what-if node-lost {NODE}",
    "config history",
    "drain list",
    "events",
    "health --checks",
)


async def _fill(core: Core, shim: ShimClient) -> None:
    owner = si.UserGroupInformation(user=f"{LONG}ann", groups=["staff"])
    await shim.register(config=QUEUES.replace("GPU", "2"))
    await shim.create_nodes([si.NodeInfo(nodeID=NODE, action=si.NodeInfo.CREATE, schedulableResource=resource(ROOM))])
    await shim.add_applications(
        [
            si.AddApplicationRequest(applicationID=f"{LONG}app-{end}", queueName=queue, ugi=owner)
            for end, queue in (("a", A), ("b", B))
        ]
    )
    await shim.submit_asks([Ask(f"{LONG}pod-b-{n}", f"{LONG}app-b", WANTED) for n in range(8)])
    await shim.flush()
    await core.settle()
    asks = [Ask(f"{LONG}pod-a-{n}", APP, WANTED, allow_preempt_other=True) for n in range(6)]
    await shim.submit_asks(asks)
    await shim.flush()
    for _ in range(5):
        await core.settle()
        core.clock.advance(SECOND_NS)
    stub = ConfigurationServiceStub(core.channel)
    await stub.UpdateConfiguration(UpdateConfigurationRequest(rm_id="rm-1", config=QUEUES.replace("GPU", "3")))
    await core.settle()


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    """Long names, five types of resources, preemption, two configurations, a drained node, and a stored history."""
    async with core_with(str(tmp_path / "history.db"), tmp_path) as served, ShimClient(served.address, "rm-1") as shim:
        await _fill(served, shim)
        drained = await asyncio.to_thread(CliRunner().invoke, app, ["drain", "node", NODE, "--core", served.address])
        assert drained.exit_code == 0, drained.output
        stored = (await written(served)).stored

        def is_looked_at() -> bool:
            status = served.server.history.status()
            return status is not None and status.stored > stored

        served.clock.advance(60 * SECOND_NS)
        await until(is_looked_at, "the use of queues to be looked at")
        await written(served)
        yield served


async def test_everything_fits(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of any command is wider than the terminal, and every answer has something to say."""
    too_wide: list[str] = []
    for columns in (80, 120):
        monkeypatch.setattr(tables, "screen_columns", lambda columns=columns: columns)
        for command in COMMANDS:
            result = await asyncio.to_thread(CliRunner().invoke, app, [*command.split(), "--core", core.address])
            said = result.output
            assert result.exit_code in (0, 1), f"{command}: {said}"
            assert "Traceback" not in said, said
            assert len(said.strip()) > 20, f"{command}: {said!r}"
            too_wide += [f"{columns}: {command}: {line}" for line in said.splitlines() if len(line) > columns]
    assert not too_wide, "\n".join(too_wide)
