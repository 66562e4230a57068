"""Devices over the wire: reports, wants, what allocations hold, and a shim that starts again with what it was told."""

from __future__ import annotations

from kornel.shim_client import (
    Allocated,
    Ask,
    AskRejected,
    Device,
    Devices,
    ShimClient,
    devices_attribute,
    devices_of,
    resource,
)
from kornel.si.v1 import si_pb2 as si
from tests.e2e.rest.shim import Cluster, P, rest_cluster

CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
GIB = 2**30
GPUS = [Device(str(n), "A100", 80 * GIB, "left" if n < 2 else "right") for n in range(4)]
APP = si.AddApplicationRequest(
    applicationID="app", queueName="root.a", ugi=si.UserGroupInformation(user="u", groups=["g"])
)


def node(devices: list[Device], action: si.NodeInfo.ActionFromRM.ValueType = si.NodeInfo.CREATE) -> si.NodeInfo:
    return si.NodeInfo(
        nodeID="n1",
        action=action,
        attributes=devices_attribute(devices),
        schedulableResource=resource({"vcore": 16_000}),
    )


async def heard(client: ShimClient, number: int) -> dict[str, Allocated | AskRejected]:
    """The next *number* answers about asks and allocations, by key."""
    found: dict[str, Allocated | AskRejected] = {}
    async for update in client.updates():
        if isinstance(update, Allocated | AskRejected):
            found[update.key] = update
            if len(found) == number:
                break
    return found


async def held(cluster: Cluster) -> dict[str, dict[str, int]]:
    """What is held of each device, as REST says."""
    devices = (await cluster.get(f"{P}/node/n1"))["devices"]
    return {
        device["id"]: {holder["allocationKey"]: holder["share"] for holder in device.get("holders", [])}
        for device in devices
    }


async def test_a_shim_passes_on_what_it_was_told() -> None:
    """A second registration with the messages of the first finds the same devices in the same hands."""
    expected = {"0": {"pair": 1000}, "1": {"pair": 1000}, "2": {"part": 250, "memory": 100}, "3": {"one": 1000}}
    async with rest_cluster() as cluster, ShimClient(cluster.core.address, "rm-1") as client:
        await client.register(config=CONFIG)
        await client.create_nodes([node(GPUS)])
        await client.add_applications([APP])
        messages: dict[str, si.Allocation] = {}
        for key, devices in (
            ("pair", Devices(count=2, linked=True)),
            ("part", Devices(fraction=0.25)),
            ("one", Devices(count=1)),
            ("memory", Devices(memory="8Gi")),
        ):
            await client.submit_asks([Ask(key, "app", {"vcore": 1_000}, devices=devices)])
            update = (await heard(client, 1))[key]
            assert isinstance(update, Allocated)
            messages[key] = update.message
        assert devices_of(messages["pair"]) == ("0", "1")
        assert devices_of(messages["part"]) == devices_of(messages["memory"]) == ("2",)
        assert await held(cluster) == expected

        await client.register(config=CONFIG)
        await client.create_nodes([node(GPUS)])
        await client.add_applications([APP])
        await client.report_allocations(reversed(messages.values()))
        echoes = await heard(client, 4)
        assert all(isinstance(echo, Allocated) for echo in echoes.values())
        assert await held(cluster) == expected

        thief = si.Allocation()
        thief.CopyFrom(messages["one"])
        thief.allocationKey = "thief"
        await client.report_allocations([thief])
        refused = (await heard(client, 1))["thief"]
        assert isinstance(refused, AskRejected)
        assert refused.reason == "invalid-devices: thief cannot hold all of 3 on node n1, which one holds"


async def test_a_report_that_changes_is_followed_and_explained() -> None:
    """An ask waits for devices that are not there, is told so, and runs when the node reports them."""
    async with rest_cluster() as cluster, ShimClient(cluster.core.address, "rm-1") as client:
        await client.register(config=CONFIG)
        await client.create_nodes([node(GPUS[:2])])
        await client.add_applications([APP])
        await client.submit_asks([Ask("k", "app", {"vcore": 1_000}, devices=Devices(count=3))])
        await cluster.core.settle()
        (blocker,) = (await cluster.get(f"{P}/explain?key=k"))["ask"]["blockers"]
        assert blocker["kind"] == "node-without-devices"
        assert blocker["detail"] == "wants 3 whole devices; the node has 2 devices"
        await client.send_nodes([node(GPUS, si.NodeInfo.UPDATE)])
        update = (await heard(client, 1))["k"]
        assert isinstance(update, Allocated)
        assert devices_of(update.message) == ("0", "1", "2")
