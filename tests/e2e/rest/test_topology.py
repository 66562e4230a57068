"""Gangs of the simulated cluster stand where they must, and REST shows the racks as nodes move between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kornel.shim_client import ShimClient
from kornel.shim_mock.topology import CONFIG, LARGE, REPORT, SOLVE, TRAIN, WEB, Site
from kornel.si.v1 import si_pb2 as si
from tests.e2e.rest.shim import Cluster, P, rest_cluster
from tests.waiting import until

RACK, ZONE = "example.com/rack", "topology.kubernetes.io/zone"


@asynccontextmanager
async def simulated() -> AsyncIterator[tuple[Cluster, ShimClient, Site]]:
    """Yields a core with HTTP, and the simulated cluster of two zones with two racks of sixteen cores each."""
    async with rest_cluster() as cluster, ShimClient(cluster.core.address, "shim-mock") as client:
        await client.register(config=CONFIG)
        site = Site(client)
        handling = asyncio.create_task(site.handle_updates())
        try:
            await site.create_nodes()
            yield cluster, client, site
        finally:
            handling.cancel()
            with suppress(asyncio.CancelledError):
                await handling


async def read_domains(cluster: Cluster, level: str = "rack") -> dict[str, Any]:
    return {each["name"]: each for each in await cluster.get(f"{P}/domains?level={level}")}


async def read_free(cluster: Cluster, level: str = "rack") -> dict[str, int]:
    """The free cores of each domain."""
    return {name: each["free"].get("vcore", 0) // 1_000 for name, each in (await read_domains(cluster, level)).items()}


async def test_gangs_that_require_a_rack_are_placed_within_one() -> None:
    async with simulated() as (cluster, _, site):
        for gang in (TRAIN, SOLVE):
            await site.submit_gang(gang)
            await site.wait_until_running(gang)
        assert site.count_by_rack(TRAIN) == {"a/r1": 12}
        assert site.count_by_rack(SOLVE) == {"a/r2": 8}
        await cluster.core.settle()
        assert await read_free(cluster) == {"a/r1": 4, "a/r2": 8, "b/r3": 16, "b/r4": 16}
        assert await read_free(cluster, "zone") == {"a": 12, "b": 32}

        await site.submit_gang(REPORT)
        await site.wait_until_running(REPORT)
        assert sorted(site.count_by_rack(REPORT).items()) == [("b/r3", 16), ("b/r4", 2)]
        await site.submit_gang(WEB)
        await site.wait_until_running(WEB)
        assert {rack[0]: count for rack, count in site.count_by_rack(WEB).items()} == {"a": 2, "b": 2}

        await site.submit_gang(LARGE)
        await cluster.core.settle()
        assert site.count_by_rack(LARGE) == {}, "there is room for 18, but for 12 at most in one rack"
        await site.end_gang(REPORT)
        await site.wait_until_running(LARGE)
        assert site.count_by_rack(LARGE) == {"b/r3": 16}


async def test_a_node_that_changes_its_rack_moves_its_amounts() -> None:
    async with simulated() as (cluster, client, site):
        await site.submit_gang(TRAIN)
        await site.wait_until_running(TRAIN)
        await cluster.core.settle()
        before = await read_domains(cluster)
        assert [before["a/r1"][name] for name in ("nodes", "schedulableNodes", "path")] == [4, 4, ["a", "r1"]]
        taken = {node["nodeID"]: node.get("allocated", {}).get("vcore", 0) for node in await cluster.get(f"{P}/nodes")}
        own = 4 - taken["r1-n0"] // 1_000

        await move_node(cluster, client, "r1-n0", {ZONE: "b", RACK: "r4"})
        moved = await read_domains(cluster)
        assert [moved[name]["nodes"] for name in ("a/r1", "b/r4")] == [3, 5]
        assert [moved[name]["capacity"]["vcore"] for name in ("a/r1", "b/r4")] == [12_000, 20_000]
        assert await read_free(cluster) == {"a/r1": 4 - own, "a/r2": 16, "b/r3": 16, "b/r4": 16 + own}
        assert await read_free(cluster, "zone") == {"a": 20 - own, "b": 32 + own}
        assert sum(count for count in site.count_by_rack(TRAIN).values()) == 12, "what runs goes on to run"

        await move_node(cluster, client, "r1-n0", {RACK: ""})
        assert (await read_domains(cluster))["b/r4"]["capacity"] == before["b/r4"]["capacity"]
        assert (await read_domains(cluster, "zone"))["b"]["nodes"] == 9, "it still says its zone"


async def move_node(cluster: Cluster, client: ShimClient, node_id: str, attributes: dict[str, str]) -> None:
    info = si.NodeInfo(nodeID=node_id, action=si.NodeInfo.UPDATE, attributes=attributes)
    metrics = cluster.core.metrics
    applied = metrics.commands_applied
    await client.send_nodes([info])
    await until(lambda: metrics.commands_applied > applied, "the engine to have it")
    await cluster.core.settle()


@pytest.mark.parametrize("level", ["row", "example.com/rack"])
async def test_a_level_that_there_is_not_is_not_found(level: str) -> None:
    async with simulated() as (cluster, _, _):
        await cluster.refused(f"{P}/domains?level={level}", 404, "Level not found")


async def test_without_a_level_all_are_listed_outer_ones_first() -> None:
    async with simulated() as (cluster, _, _):
        found = [(each["level"], each["name"]) for each in await cluster.get(f"{P}/domains")]
        assert found == [
            *[("zone", "a"), ("rack", "a/r1"), ("rack", "a/r2")],
            *[("zone", "b"), ("rack", "b/r3"), ("rack", "b/r4")],
        ]


async def test_metrics_tell_what_each_rack_has() -> None:
    async with simulated() as (cluster, _, site):
        await site.submit_gang(TRAIN)
        await site.wait_until_running(TRAIN)
        await cluster.core.settle()
        exported = (await cluster.http.get("/ws/v1/metrics")).text
        rack = 'domain="a/r1",level="rack",partition="default",resource="vcore"'
        found = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in exported.splitlines()}
        sample = {
            name: next(value for key, value in found.items() if key.startswith(f"{name}{{") and is_for(key, rack))
            for name in ("kornel_domain_capacity", "kornel_domain_free", "kornel_domain_held")
        }
        assert sample == {
            "kornel_domain_capacity": "16000.0",
            "kornel_domain_free": "4000.0",
            "kornel_domain_held": "0.0",
        }
        assert found["kornel_metrics_domains_omitted"] == "0.0"


def is_for(key: str, labels: str) -> bool:
    """Tells whether *key* has just these labels, in any order."""
    return sorted(key.partition("{")[2].rstrip("}").split(",")) == sorted(labels.split(","))
