"""mTLS over real sockets: who gets in, as whom, and what happens while certificates are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from cryptography import x509

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1.si_pb2_grpc import SchedulerStub
from kornel.v1 import configuration_pb2, configuration_pb2_grpc, manager_pb2, manager_pb2_grpc, status_pb2
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import CONFIG, Conversation, create, node_request
from tests.e2e.security.site import Authority, Pair, Site, secured
from tests.patience import PATIENCE_S
from tests.waiting import until

POLICY: Final = """
rules:
  - who: ["cn:shim-1"]
    managers: [rm-1]
    permissions: [configure]
  - who: ["cn:shim-2"]
    managers: [rm-2]
  - who: ["uri:spiffe://site/reader", "dns:reader.example.org"]
    permissions: [read]
  - who: ["o:operators"]
    permissions: [read, administer]
"""


@pytest.fixture
async def site(tmp_path: Path, ca: Authority, server_pair: Pair) -> AsyncIterator[Site]:
    async with secured(tmp_path, ca=ca.file, server=server_pair, client_ca=ca.file, policy=POLICY) as site:
        yield site


async def code_of(call: Any) -> grpc.StatusCode:
    try:
        await asyncio.wait_for(call, PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def status(channel: grpc.aio.Channel, **request: Any) -> Any:
    return StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest(**request), timeout=PATIENCE_S)


def register(channel: grpc.aio.Channel, rm_id: str = "rm-1", config: str = "") -> Any:
    request = si.RegisterResourceManagerRequest(rmID=rm_id, config=config)
    return SchedulerStub(channel).RegisterResourceManager(request, timeout=PATIENCE_S)


async def test_without_a_certificate_nobody_connects(site: Site) -> None:
    async with site.channel() as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.UNAVAILABLE


async def test_plain_text_is_not_answered(site: Site) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_of_another_authority_does_not_connect(site: Site, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "elsewhere").issue("shim-1", file="forged")
    async with site.channel(stranger) as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("first_day", "last_day"), [(-10, -1), (1, 10)], ids=["expired", "not yet valid"])
async def test_a_certificate_outside_its_time_does_not_connect(
    site: Site, ca: Authority, first_day: int, last_day: int
) -> None:
    pair = ca.issue("shim-1", first_day=first_day, last_day=last_day)
    async with site.channel(pair) as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.UNAVAILABLE


async def test_client_does_not_trust_a_core_of_another_authority(site: Site, ca: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "elsewhere")
    async with site.channel(ca.issue("shim-1"), ca=other.file) as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.UNAVAILABLE


async def test_the_right_certificate_registers_and_streams(site: Site, ca: Authority) -> None:
    async with site.channel(ca.issue("shim-1")) as channel:
        assert await code_of(register(channel, config=CONFIG)) is grpc.StatusCode.OK
        async with Conversation.open(SchedulerStub(channel).UpdateNode()) as nodes:
            await nodes.send(node_request(create("n-1")))
            assert (await nodes.receive()).accepted[0].nodeID == "n-1"


async def test_a_good_certificate_is_not_another_resource_manager(site: Site, ca: Authority) -> None:
    """Neither by registration, nor on any stream, nor by unregistering it."""
    async with site.channel(ca.issue("shim-1")) as one, site.channel(ca.issue("shim-2")) as two:
        assert await code_of(register(one, config=CONFIG)) is grpc.StatusCode.OK
        assert await code_of(register(two)) is grpc.StatusCode.PERMISSION_DENIED
        for call, request in (
            (SchedulerStub(two).UpdateNode, node_request(create("evil"))),
            (SchedulerStub(two).UpdateApplication, si.ApplicationRequest(rmID="rm-1")),
            (SchedulerStub(two).UpdateAllocation, si.AllocationRequest(rmID="rm-1")),
        ):
            async with Conversation.open(call()) as stream:
                await stream.send(request)
                assert (await stream.end())[0] is grpc.StatusCode.PERMISSION_DENIED
        gone = manager_pb2_grpc.ManagerServiceStub(two).UnregisterResourceManager(
            manager_pb2.UnregisterResourceManagerRequest(rm_id="rm-1")
        )
        assert await code_of(gone) is grpc.StatusCode.PERMISSION_DENIED
        async with Conversation.open(SchedulerStub(one).UpdateNode()) as nodes:
            await nodes.send(node_request(create("evil")))
            assert (await nodes.receive()).accepted, "the node of the intruder must not be there"


async def test_a_stream_cannot_change_to_another_resource_manager(site: Site, ca: Authority) -> None:
    async with site.channel(ca.issue("shim-1")) as channel:
        assert await code_of(register(channel, config=CONFIG)) is grpc.StatusCode.OK
        async with Conversation.open(SchedulerStub(channel).UpdateNode()) as nodes:
            await nodes.send(node_request(create("n-1")), node_request(create("n-2"), rm_id="rm-2"))
            assert (await nodes.end())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_bringing_a_configuration_takes_the_permission(site: Site, ca: Authority) -> None:
    async with site.channel(ca.issue("shim-2")) as channel:
        assert await code_of(register(channel, "rm-2", CONFIG)) is grpc.StatusCode.PERMISSION_DENIED
        assert await code_of(register(channel, "rm-2")) is grpc.StatusCode.OK
        update = configuration_pb2_grpc.ConfigurationServiceStub(channel).UpdateConfiguration(
            configuration_pb2.UpdateConfigurationRequest(rm_id="rm-2", config=CONFIG)
        )
        assert await code_of(update) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    "names",
    [[x509.UniformResourceIdentifier("spiffe://site/reader")], [x509.DNSName("Reader.example.org")]],
    ids=["uri", "dns"],
)
async def test_names_of_the_san_are_principals(site: Site, ca: Authority, names: list[x509.GeneralName]) -> None:
    async with site.channel(ca.issue("somebody", names=names)) as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.OK
        assert await code_of(status(channel, audit=True)) is grpc.StatusCode.PERMISSION_DENIED
        assert await code_of(register(channel)) is grpc.StatusCode.PERMISSION_DENIED


async def test_organisations_are_groups(site: Site, ca: Authority) -> None:
    async with site.channel(ca.issue("olga", organisation="operators")) as channel:
        assert await code_of(status(channel, audit=True)) is grpc.StatusCode.OK


async def test_a_name_in_a_certificate_does_not_stand_for_one_in_another_place(site: Site, ca: Authority) -> None:
    """A common name that looks like a principal is only a common name."""
    async with site.channel(ca.issue("o:operators", file="sly", names=[x509.DNSName("shim-1")])) as channel:
        assert await code_of(status(channel)) is grpc.StatusCode.PERMISSION_DENIED
        assert await code_of(register(channel)) is grpc.StatusCode.PERMISSION_DENIED


async def test_health_is_told_to_everybody_who_connects(site: Site, ca: Authority) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    async with site.channel(ca.issue("nobody")) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_new_certificate_is_served_while_old_connections_live(
    tmp_path: Path, ca: Authority, server_pair: Pair
) -> None:
    """The open stream goes on; who connects after the replacement meets the new authority's certificate."""
    client = ca.issue("shim-1")
    new = Authority(tmp_path, "new")
    async with (
        secured(tmp_path, ca=ca.file, server=server_pair, client_ca=ca.file, policy=POLICY) as site,
        site.channel(client) as before,
    ):
        assert await code_of(register(before, config=CONFIG)) is grpc.StatusCode.OK
        async with Conversation.open(SchedulerStub(before).UpdateNode()) as nodes:
            await nodes.send(node_request(create("n-1")))
            await nodes.receive()
            replacement = new.issue("core", file="replacement")
            replacement.certificate.replace(server_pair.certificate)
            replacement.key.replace(server_pair.key)
            assert "TLS files read again" not in site.log.read_text()
            await until(lambda: "TLS files read again" in site.log.read_text(), "the files to be followed")
            async with site.channel(client) as distrusting, site.channel(client, ca=new.file) as trusting:
                assert await code_of(register(distrusting)) is grpc.StatusCode.UNAVAILABLE
                assert await code_of(register(trusting, "rm-2")) is grpc.StatusCode.PERMISSION_DENIED
            await nodes.send(node_request(create("n-2")))
            assert (await nodes.receive()).accepted[0].nodeID == "n-2"


async def test_a_new_client_authority_counts_for_new_connections(
    tmp_path: Path, ca: Authority, server_pair: Pair
) -> None:
    clients, next_clients = Authority(tmp_path, "clients"), Authority(tmp_path, "next")
    old, new = clients.issue("shim-1", file="old"), next_clients.issue("shim-1", file="new")
    async with secured(tmp_path, ca=ca.file, server=server_pair, client_ca=clients.file, policy=POLICY) as site:
        async with site.channel(old) as channel:
            assert await code_of(register(channel)) is grpc.StatusCode.OK
        next_clients.file.replace(clients.file)
        site.security.reload()
        async with site.channel(old) as channel:
            assert await code_of(register(channel)) is grpc.StatusCode.UNAVAILABLE
        async with site.channel(new) as channel:
            assert await code_of(register(channel)) is grpc.StatusCode.OK


async def test_files_that_do_not_fit_change_nothing(site: Site, ca: Authority, server_pair: Pair) -> None:
    ca.issue("core", file="other").key.replace(server_pair.key)
    site.security.reload()
    assert "new TLS files cannot be used" in site.log.read_text()
    async with site.channel(ca.issue("shim-1")) as channel:
        assert await code_of(register(channel)) is grpc.StatusCode.OK
