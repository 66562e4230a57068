"""Metrics over HTTP: upstream's names and labels, cases 55 to 59 of rest.md, and what only we tell."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
import time

import pytest

from kornel.core.telling.reader import PartitionReader
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import resource
from tests.e2e.rest.shim import TREE, Cluster, rest_cluster
from tests.exposition import by_key, parse, types

UPSTREAM = {
    "yunikorn_scheduler_container_allocation_attempt_total": ("counter", {"state"}),
    "yunikorn_scheduler_application_submission_total": ("counter", {"result"}),
    "yunikorn_scheduler_application_total": ("gauge", {"state"}),
    "yunikorn_scheduler_node": ("gauge", {"state"}),
    "yunikorn_scheduler_vcore_node_usage_total": ("gauge", {"range"}),
    "yunikorn_scheduler_memory_node_usage_total": ("gauge", {"range"}),
    "yunikorn_scheduler_pods_node_usage_total": ("gauge", {"range"}),
    "yunikorn_scheduler_ephemeral_storage_node_usage_total": ("gauge", {"range"}),
    "yunikorn_scheduler_scheduling_latency_milliseconds": ("histogram", set()),
    "yunikorn_scheduler_scheduling_cycle_milliseconds": ("histogram", set()),
    "yunikorn_scheduler_node_sorting_latency_milliseconds": ("histogram", {"level"}),
    "yunikorn_scheduler_trynode_latency_milliseconds": ("histogram", set()),
    "yunikorn_scheduler_trynode_evaluation_milliseconds": ("histogram", set()),
    "yunikorn_scheduler_trypreemption_latency_milliseconds": ("histogram", set()),
    "yunikorn_queue_app": ("gauge", {"queue", "state"}),
    "yunikorn_queue_app_total": ("counter", {"queue", "state"}),
    "yunikorn_queue_resource": ("gauge", {"queue", "state", "resource"}),
    "yunikorn_root_a_a1_queue_container": ("counter", {"state"}),
    "process_resident_memory_bytes": ("gauge", set()),
}
"""The table of rest.md 6, but for what only a Go process has."""

VALUES = {
    ("yunikorn_scheduler_container_allocation_attempt_total", "state"): "allocated released rejected error",
    ("yunikorn_scheduler_application_submission_total", "result"): "new accepted rejected",
    ("yunikorn_scheduler_application_total", "state"): "running resuming failing completing completed failed",
    ("yunikorn_scheduler_node", "state"): "active draining failed decommissioned",
    ("yunikorn_scheduler_vcore_node_usage_total", "range"): (
        "[0,10%] (10%,20%] (20%,30%] (30%,40%] (40%,50%] (50%,60%] (60%,70%] (70%,80%] (80%,90%] (90%,100%]"
    ),
    ("yunikorn_scheduler_node_sorting_latency_milliseconds_count", "level"): "app queue",
}


async def scrape(cluster: Cluster) -> str:
    answer = await cluster.http.get("/ws/v1/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return str(answer.text)


async def values(cluster: Cluster) -> dict[tuple[str, ...], float]:
    return by_key(await scrape(cluster))


async def busy(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=1_000, memory=100)
    await cluster.submit("app", "done", queue="root.a.a1")
    await cluster.ask("k1", vcore=150, memory=5)
    await cluster.ask("d1", "done", vcore=100)
    await cluster.release("d1", "done")
    await cluster.wait(31)


async def test_names_types_and_labels_are_upstreams(cluster: Cluster) -> None:
    await busy(cluster)
    text = await scrape(cluster)
    kinds = types(text)
    labels: dict[str, set[str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for sample in parse(text):
        labels.setdefault(sample.name, set()).update(name for name, _ in sample.labels)
        for name, value in sample.labels:
            found.setdefault((sample.name, name), []).append(value)
    for name, (kind, expected) in UPSTREAM.items():
        assert kinds[name] == kind, name
        if kind == "histogram":
            assert labels[f"{name}_bucket"] == expected | {"le"}, name
        else:
            assert labels[name] == expected, name
    for key, listed in VALUES.items():
        assert found[key] == listed.split(), key


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")
async def test_promtool_takes_every_line(cluster: Cluster) -> None:
    """It finds fault with upstream's names, which cannot be helped; with ours it must not."""
    await busy(cluster)
    text = await scrape(cluster)
    promtool = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, said = await promtool.communicate(text.encode())
    assert b"error while linting" not in said, said
    assert [line for line in said.splitlines() if line.startswith(b"kornel_")] == []


async def test_case_55_applications_by_queue_and_state(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app", queue="root.a.a1")
    await cluster.ask("k1", vcore=1)
    now = await values(cluster)
    assert now["yunikorn_queue_app", "root.a.a1", "running"] == 1
    assert now["yunikorn_scheduler_application_total", "running"] == 1
    await cluster.release("k1")
    await cluster.wait(31)
    now = await values(cluster)
    assert now["yunikorn_queue_app", "root.a.a1", "running"] == 0
    assert now["yunikorn_queue_app", "root.a.a1", "completed"] == 1
    assert now["yunikorn_scheduler_application_total", "running"] == 0
    assert now["yunikorn_scheduler_application_total", "completed"] == 1
    assert now["yunikorn_queue_app_total", "root.a.a1", "completed"] == 1
    without = TREE.replace("          - name: a\n            queues:\n              - name: a1\n", "")
    await cluster.configure(without)
    await cluster.wait(11)
    now = await values(cluster)
    assert not [key for key in now if key[0] == "yunikorn_queue_app" and key[1] == "root.a.a1"]
    assert now["yunikorn_queue_app_total", "root.a.a1", "completed"] == 1
    await cluster.configure(TREE)
    await cluster.wait(1)
    now = await values(cluster)
    assert now.get(("yunikorn_queue_app", "root.a.a1", "completed"), 0) == 0
    assert now["yunikorn_queue_app_total", "root.a.a1", "completed"] == 1


async def test_case_56_containers_by_queue(fresh: Cluster) -> None:
    await fresh.register(TREE.replace("- name: a1", "- name: a-b"))
    await fresh.node("n1", vcore=10)
    await fresh.submit("app", queue="root.a.a-b")
    await fresh.ask("k1", vcore=1)
    now = await values(fresh)
    assert now["yunikorn_root_a_a_b_queue_container", "allocated"] == 1
    assert now["kornel_queue_containers_total", "root.a.a-b", "allocated"] == 1


@pytest.mark.parametrize("style", ["Soft", "Hard"])
async def test_containers_that_were_allocated_and_not_released_run(cluster: Cluster, style: str) -> None:
    """A placeholder that never ran is not released, and what a node takes along is."""
    name = "yunikorn_scheduler_container_allocation_attempt_total"
    queue = "kornel_queue_containers_total", "root.a.a1"

    async def running() -> tuple[float, float, int]:
        found = await values(cluster)
        history = await cluster.get("/ws/v1/history/containers")
        return (
            found[name, "allocated"] - found[name, "released"],
            found[*queue, "allocated"] - found[*queue, "released"],
            int(history[-1]["totalContainers"]),
        )

    await cluster.node("n1", vcore=3)
    for number in range(3):
        gang = f"gang-{number}"
        await cluster.submit(
            gang, queue="root.a.a1", gangSchedulingStyle=style, executionTimeoutMilliSeconds=10_000,
            placeholderAsk=resource(vcore=5),
        )  # fmt: skip
        for member in range(5):
            fields = {"placeholder": True, "taskGroupName": "g"}
            await cluster.ask(f"{gang}-{member}", gang, fields, vcore=1)
        await cluster.wait(70)
        for member in range(5):
            await cluster.release(f"{gang}-{member}", gang, si.TIMEOUT)
        await cluster.wait(60)
        if (await values(cluster)).get((*queue, "allocated")):
            assert await running() == (0, 0, 0)
    await cluster.submit("app", queue="root.a.a1")
    await cluster.ask("k1", vcore=1)
    await cluster.ask("k2", vcore=1)
    await cluster.ask("waits", vcore=100)
    await cluster.release("waits")
    await cluster.wait(60)
    assert await running() == (2, 2, 2)
    await cluster.node_action("n1", si.NodeInfo.DECOMISSION)
    await cluster.wait(60)
    assert await running() == (0, 0, 0)
    assert (await values(cluster))[name, "allocated"] >= 2


async def test_case_57_resources_of_queues(cluster: Cluster) -> None:
    """Over parents too."""
    limited = TREE + "                resources: {max: {memory: 100, vcore: 2}}\n"
    await cluster.configure(limited)
    await cluster.node("n1", vcore=10, memory=1_000)
    await cluster.submit("app", queue="root.a.a1")
    await cluster.ask("k1", vcore=1, memory=20)
    now = await values(cluster)
    name = "yunikorn_queue_resource"
    assert now[name, "root.a.a1", "vcore", "max"] == 2_000
    assert {path: now[name, path, "memory", "allocated"] for path in ("root", "root.a", "root.a.a1")} == {
        "root": 20, "root.a": 20, "root.a.a1": 20,
    }  # fmt: skip
    await cluster.configure(limited.replace(", vcore: 2", ""))
    await cluster.release("k1")
    now = await values(cluster)
    assert now[name, "root.a.a1", "vcore", "max"] == 0
    assert now[name, "root.a.a1", "memory", "max"] == 100
    assert now[name, "root.a.a1", "memory", "allocated"] == 0


async def test_case_58_cycles_are_timed_in_seconds(cluster: Cluster) -> None:
    began_s = time.monotonic()
    before = await values(cluster)
    await cluster.node("n1", vcore=10)
    now = await values(cluster)
    passed_s = time.monotonic() - began_s
    name = "yunikorn_scheduler_scheduling_cycle_milliseconds"
    assert now[f"{name}_count",] > before[f"{name}_count",]
    assert 0 < now[f"{name}_sum",] - before[f"{name}_sum",] < passed_s
    bounds = [key[1] for key in now if key[0] == f"{name}_bucket"]
    assert bounds == ["0.0001", "0.001", "0.01", "0.1", "1", "10", "100", "1000", "+Inf"]


async def test_case_59_nodes_by_state(cluster: Cluster) -> None:
    """A registration makes nothing undone."""

    async def nodes() -> tuple[float, ...]:
        now = await values(cluster)
        return tuple(
            now["yunikorn_scheduler_node", state] for state in ("active", "draining", "failed", "decommissioned")
        )

    await cluster.node("n1", vcore=10)
    await cluster.node_action("n1", si.NodeInfo.DRAIN_NODE)
    assert await nodes() == (1, 1, 0, 0)
    await cluster.node_action("n1", si.NodeInfo.DRAIN_TO_SCHEDULABLE)
    assert await nodes() == (1, 0, 0, 0)
    await cluster.node_action("n1", si.NodeInfo.DECOMISSION)
    assert await nodes() == (0, 0, 0, 1)
    await cluster.register(TREE)
    assert await nodes() == (0, 0, 0, 1)


async def test_node_usage_in_tenths(cluster: Cluster) -> None:
    """Just above a tenth is in the next range; a type that a node does not offer is left out (scheduling.md 16)."""
    await cluster.node("n1", vcore=1_000, memory=100)
    await cluster.node("n2", vcore=1_000)
    await cluster.submit("app")
    await cluster.ask("k1", vcore=101, memory=10)
    now = await values(cluster)
    vcore = {key[1]: value for key, value in now.items() if key[0] == "yunikorn_scheduler_vcore_node_usage_total"}
    memory = {key[1]: value for key, value in now.items() if key[0] == "yunikorn_scheduler_memory_node_usage_total"}
    assert {name: count for name, count in vcore.items() if count} == {"[0,10%]": 1, "(10%,20%]": 1}
    assert {name: count for name, count in memory.items() if count} == {"[0,10%]": 1}


async def test_refusals_and_configurations_are_counted(cluster: Cluster) -> None:
    await cluster.ask("k1", "nobody", vcore=1)
    with pytest.raises(Exception, match="partitions"):
        await cluster.configure("nonsense: true")
    now = await values(cluster)
    assert now["yunikorn_scheduler_container_allocation_attempt_total", "error"] == 1
    assert now["yunikorn_scheduler_container_allocation_attempt_total", "rejected"] == 1
    assert now["kornel_configurations_total", "update", "refused"] == 1
    assert now["kornel_configurations_total", "registration", "applied"] == 1
    assert now["kornel_configuration_version",] == 1


async def test_nobody_is_registered(fresh: Cluster) -> None:
    now = await values(fresh)
    assert now["kornel_manager_registered",] == 0
    assert now["yunikorn_scheduler_node", "active"] == 0


async def test_a_damaged_partition_does_not_hide_the_rest(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(views: PartitionReader) -> None:
        raise RuntimeError("damaged")

    monkeypatch.setattr(PartitionReader, "gauges", damaged)
    now = await values(cluster)
    assert now["kornel_metrics_partitions_unreadable",] == 1
    assert now["kornel_manager_registered",] == 1


async def test_the_answer_is_compressed_once(cluster: Cluster) -> None:
    async with cluster.http.stream("GET", "/ws/v1/metrics", headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        body = b"".join([piece async for piece in answer.aiter_raw()])
    assert gzip.decompress(body).startswith(b"# HELP ")


async def test_older_names_are_published_on_request() -> None:
    async with rest_cluster(metric_aliases=True) as cluster:
        await cluster.register(TREE)
        await busy(cluster)
        now = await values(cluster)
        assert now["yunikorn_root_a_a1_queue_resource", "vcore", "allocated"] == 150
        assert now["yunikorn_root_a_a1_queue_app", "running"] == 1
        assert now["go_goroutines",] > 0
