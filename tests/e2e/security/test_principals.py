"""Whose name is written down, and whose configuration a manager may change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from kornel.core.security.static_tokens import digest_of, new_token
from kornel.si.v1 import si_pb2 as si
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from kornel.v1 import admin_pb2, configuration_pb2, manager_pb2
from kornel.v1.admin_pb2_grpc import AdminServiceStub
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.manager_pb2_grpc import ManagerServiceStub
from tests.e2e.harness import CONFIG, Conversation, create, node_request
from tests.e2e.security.site import Authority, Pair, Site, bearer, secured
from tests.e2e.security.test_certificates import code_of
from tests.patience import PATIENCE_S

OK: Final = grpc.StatusCode.OK
DENIED: Final = grpc.StatusCode.PERMISSION_DENIED
POLICY: Final = """
tokens: tokens.yaml
rules:
  - who: ["token:shim"]
    managers: [rm-1]
    permissions: [configure]
  - who: ["token:other"]
    managers: [rm-2]
    permissions: [configure]
  - who: ["token:both"]
    managers: [rm-1, rm-2]
    permissions: [configure]
  - who: ["token:ops"]
    permissions: [read, configure, administer, preempt]
"""
TWO: Final = CONFIG + "          - name: b\n"


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    made = {name: new_token() for name in ("shim", "other", "both", "ops")}
    lines = ["tokens:"]
    for name, token in made.items():
        lines += [f"  - name: {name}", f"    sha256: {digest_of(token)}"]
    (tmp_path / "tokens.yaml").write_text("\n".join(lines) + "\n")
    return made


@pytest.fixture
async def site(tmp_path: Path, ca: Authority, server_pair: Pair, tokens: dict[str, str]) -> AsyncIterator[Site]:
    async with secured(tmp_path, ca=ca.file, server=server_pair, policy=POLICY) as site:
        yield site


@pytest.fixture
async def channel(site: Site, tokens: dict[str, str]) -> AsyncIterator[grpc.aio.Channel]:
    """To a core where rm-1 has registered twice, with one queue and with two."""
    async with site.channel() as channel:
        for config in (CONFIG, TWO):
            await SchedulerStub(channel).RegisterResourceManager(
                si.RegisterResourceManagerRequest(rmID="rm-1", config=config),
                metadata=bearer(tokens["shim"]),
                timeout=PATIENCE_S,
            )
        yield channel


def update(channel: grpc.aio.Channel, token: str, rm_id: str = "rm-1") -> Any:
    request = configuration_pb2.UpdateConfigurationRequest(rm_id=rm_id, config=CONFIG)
    return ConfigurationServiceStub(channel).UpdateConfiguration(request, metadata=bearer(token), timeout=PATIENCE_S)


def roll_back(channel: grpc.aio.Channel, token: str, *, undo: bool = False) -> Any:
    request = configuration_pb2.RollbackConfigurationRequest(version=0 if undo else 1, undo=undo)
    return ConfigurationServiceStub(channel).RollbackConfiguration(request, metadata=bearer(token), timeout=PATIENCE_S)


async def test_a_manager_does_not_change_the_configuration_of_another(
    channel: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    """It holds configure, for its own; an operator is no manager, and its configure is for all."""
    assert await code_of(update(channel, tokens["other"])) is DENIED
    assert await code_of(roll_back(channel, tokens["other"])) is DENIED
    assert await code_of(roll_back(channel, tokens["ops"])) is OK
    assert await code_of(roll_back(channel, tokens["other"], undo=True)) is DENIED
    assert await code_of(roll_back(channel, tokens["shim"], undo=True)) is OK
    assert await code_of(update(channel, tokens["shim"])) is OK
    assert await code_of(update(channel, tokens["both"])) is OK, "the one that registered last, of those it may be"
    assert await code_of(update(channel, tokens["ops"])) is OK
    assert await code_of(update(channel, tokens["other"], "rm-2")) is grpc.StatusCode.FAILED_PRECONDITION


async def test_names_are_written_down(site: Site, channel: grpc.aio.Channel, tokens: dict[str, str]) -> None:
    """In history, log and events: who configured, rolled back, drained and unregistered."""
    ops = bearer(tokens["ops"])
    async with Conversation.open(SchedulerStub(channel).UpdateNode(metadata=bearer(tokens["shim"]))) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
        await roll_back(channel, tokens["ops"])
        drain = admin_pb2.DrainNodeRequest(node_id="n1")
        done = await AdminServiceStub(channel).DrainNode(drain, metadata=ops, timeout=PATIENCE_S)
        assert done.principal == "token:ops"
        preempt = admin_pb2.PreemptRequest(node_id="n1", reason="to be repaired")
        gone = await AdminServiceStub(channel).Preempt(preempt, metadata=ops, timeout=PATIENCE_S)
        assert "by hand by token:ops: to be repaired" in gone.decision.detail
    history = await ConfigurationServiceStub(channel).GetConfigurationHistory(
        configuration_pb2.GetConfigurationHistoryRequest(), metadata=ops, timeout=PATIENCE_S
    )
    assert [version.principal for version in history.versions] == ["token:shim", "token:shim", "token:ops"]
    await ManagerServiceStub(channel).UnregisterResourceManager(
        manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1"), metadata=ops, timeout=PATIENCE_S
    )
    ring = site.server.events.events
    said = [event.message for event in ring.get(ring.lowest_id, ring.next_id) or ()]
    assert "schedulable: false, drained by token:ops" in said
    assert "resource manager rm-1 was unregistered by token:ops" in said
    lines = [json.loads(line) for line in site.log.read_text().splitlines()]
    by = {line["event"]: line["by"] for line in lines if "by" in line}
    assert by == {
        "resource manager registered": "token:shim",
        "configuration updated": "token:ops",
        "node drained by an operator": "token:ops",
        "preempted by hand": "token:ops",
        "resource manager unregistered": "token:ops",
    }
    assert [text for text in said if text.startswith("rolled back to version 1 by token:ops")]
