"""Five hundred nodes and five thousand pods."""

from __future__ import annotations

import time

import pytest

from tests.kubernetes.api import make_node, make_pods, phase_of
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)

NODES = 500
APPLICATIONS = 10
PODS = 500


def test_five_thousand_pods_on_five_hundred_nodes(cluster: Cluster) -> None:
    cluster.api.create(*(make_node(f"node-{number}", cpu="16") for number in range(NODES)))
    cluster.start(**{"kubernetes.qps": "300", "kubernetes.burst": "300"})
    began = time.monotonic()
    for number in range(APPLICATIONS):
        cluster.api.create(*make_pods(f"wave-{number}", PODS))
    created = time.monotonic()

    def judge() -> object:
        running = sum(phase_of(pod) == "Running" for pod in cluster.api.pods())
        return running == APPLICATIONS * PODS or running

    wait_for(judge, "all pods to run", patience_s=600)
    ended = time.monotonic()
    count = APPLICATIONS * PODS
    print(f"{count} pods: made at {count / (created - began):.0f}/s, running at {count / (ended - began):.0f}/s")
    cluster.check_books()
