"""A queue above its max, seen from outside: over gRPC, REST, the command line, metrics, and in why an ask waits."""

from __future__ import annotations

from kornel.cli.text.bounds import render_queue
from kornel.core.metrics.exposition import Exposition
from kornel.v1.explain_pb2 import ExplainRequest
from kornel.v1.explain_pb2_grpc import ExplainServiceStub
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
          - name: p
            resources: {guaranteed: {memory: 100}}
            queues:
              - name: v
                properties: {quota.preemption.delay: 1s}
                resources: {max: {memory: 200}}
"""
LOWERED = BEFORE.replace("max: {memory: 200}", "max: {memory: 100}")


async def test_a_queue_above_its_max_is_shown_everywhere() -> None:
    """120 are held, the max becomes 100 and all of it is guaranteed above: 20 could go, tasks of 40 cannot."""
    async with rest_cluster() as cluster:
        await cluster.register(BEFORE)
        await cluster.node("n1", memory=200)
        await cluster.submit("app", queue="root.p.v")
        for key in ("k1", "k2", "k3"):
            await cluster.ask(key, memory=40)
        await cluster.configure(LOWERED)
        await cluster.ask("waits", memory=10)
        await cluster.wait(5)
        path = f"{P}/queue/root.p.v"
        shown = (await cluster.get(path))["aboveMax"]
        assert shown["resource"] == {"memory": 20}
        assert shown["course"].startswith("it was enforced as far as the laws allow")
        assert shown["protectedBy"] == [
            "root.p is guaranteed memory=100 and holds memory=120, the smallest task there has memory=40"
        ]
        found = await StatusServiceStub(cluster.core.channel).ExplainQueue(ExplainQueueRequest(path="root.p.v"))
        (above,) = found.above_max
        assert (above.path, dict(above.above), list(above.protected_by)) == (
            "root.p.v", {"memory": 20}, shown["protectedBy"]
        )  # fmt: skip
        text = render_queue(found, now_ns=above.since_ns)
        assert "root.p.v is memory=20" in text
        assert shown["protectedBy"][0] in text
        report = await ExplainServiceStub(cluster.core.channel).Explain(ExplainRequest(name="waits"))
        assert "the queue is above its max" in report.ask.blockers[0].detail
        exported = Exposition(cluster.core.server.metrics.sources).render().decode()
        assert 'kornel_queue_above_max{partition="default",queue="root.p.v",resource="memory"} 20.0' in exported
        assert 'kornel_queues_above_max{partition="default"} 1.0' in exported
        await cluster.release("k1")
        await cluster.wait(2)
        assert "aboveMax" not in await cluster.get(path)
