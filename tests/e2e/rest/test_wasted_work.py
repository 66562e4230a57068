"""The work that preemption wasted, seen from outside: over gRPC, REST, the command line and metrics."""

from __future__ import annotations

from kornel.cli.text.bounds import render_queue
from kornel.core.metrics.exposition import Exposition
from kornel.v1.status_pb2 import ExplainQueueRequest
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.rest.shim import P, rest_cluster

BEFORE = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: v
            properties: {quota.preemption.delay: 1s}
            resources: {max: {memory: 200}}
"""
LOWERED = BEFORE.replace("memory: 200", "memory: 40")


async def test_wasted_work_is_shown_everywhere() -> None:
    """One of two tasks leaves for a lowered max after ten seconds or a little more."""
    async with rest_cluster() as cluster:
        await cluster.register(BEFORE)
        await cluster.node("n1", memory=200)
        await cluster.submit("app", queue="root.v")
        for key in ("k1", "k2"):
            await cluster.ask(key, memory=40)
        assert "wastedWork" not in await cluster.get(f"{P}/queue/root.v")
        await cluster.wait(10)
        await cluster.configure(LOWERED)
        await cluster.wait(3)
        for path in ("root.v", "root"):
            (work,) = (await cluster.get(f"{P}/queue/{path}"))["wastedWork"]
            assert work["kind"] == "quota"
            wasted = work["resourceSeconds"]["memory"]
            assert wasted % 40 == 0
            assert 400 <= wasted <= 600
        found = await StatusServiceStub(cluster.core.channel).ExplainQueue(ExplainQueueRequest(path="root.v"))
        assert [(one.kind, dict(one.resources)) for one in found.wasted] == [("quota", {"memory": wasted})]
        assert f"preemption, quota, in resource-seconds: memory={wasted}" in render_queue(found, now_ns=0)
        exported = Exposition(cluster.core.server.metrics.sources).render().decode()
        name = "kornel_preemption_wasted_resource_seconds_total"
        assert f'{name}{{kind="quota",queue="root.v",resource="memory"}} {wasted}.0' in exported
