"""Preemption: a queue gets its guarantee back, and the pods that have to go are gone before others run."""

from __future__ import annotations

import pytest

from tests.kubernetes.api import make_pods, node_of
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: production
            resources: {guaranteed: {vcore: 8}}
            properties: {preemption.delay: 1s}
          - name: batch
            resources: {guaranteed: {vcore: 4}}
"""


def make_classes(cluster: Cluster) -> None:
    cluster.api.create(
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000},
        {
            "kind": "PriorityClass",
            "metadata": {"name": "safe", "annotations": {"yunikorn.apache.org/allow-preemption": "false"}},
            "value": 0,
        },
    )


def test_a_queue_gets_its_guarantee_back_and_no_more(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    make_classes(cluster)
    cluster.start(QUEUES)
    cluster.api.create(*make_pods("batch", 16, queue="root.batch", annotations={"kornel.test/stop-for": "1"}))
    cluster.wait_for_pods("batch", 16)
    cluster.api.create(*make_pods("service", 10, queue="root.production", priorityClassName="high"))
    cluster.wait_for_pods("service", 8)
    assert len(cluster.wait_for_pods("batch", 8)) == 8
    # Kubelets refuse a pod that comes before the victim has gone; nothing was refused.
    cluster.check_books()


def test_pods_that_may_not_be_preempted_stay(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    make_classes(cluster)
    cluster.start(QUEUES)
    cluster.api.create(*make_pods("safe", 4, queue="root.batch", priorityClassName="safe"))
    cluster.wait_for_pods("safe", 4)
    cluster.api.create(*make_pods("batch", 4, queue="root.batch"))
    cluster.wait_for_pods("batch", 4)
    cluster.api.create(*make_pods("service", 2, queue="root.production", priorityClassName="high"))
    cluster.wait_for_pods("service", 2)
    cluster.wait_for_pods("safe", 4)
    cluster.check_books()


def test_the_core_is_killed_while_victims_stop(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    make_classes(cluster)
    cluster.start(QUEUES)
    cluster.api.create(*make_pods("batch", 8, queue="root.batch", annotations={"kornel.test/stop-for": "5"}))
    cluster.wait_for_pods("batch", 8)
    cluster.api.create(*make_pods("service", 2, queue="root.production", priorityClassName="high"))
    wait_for(
        lambda: any("deletionTimestamp" in pod["metadata"] for pod in cluster.api.pods("batch")), "victims to be told"
    )
    cluster.core.program.kill()
    cluster.core.start()
    placed = cluster.wait_for_pods("service", 2)
    assert None not in map(node_of, placed)
    cluster.check_books()
