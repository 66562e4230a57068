"""Gangs: complete ones, those that are too large, and placeholders that nobody takes the place of."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.api import Object, is_placeholder, make_node, make_pods, node_of, phase_of
from tests.kubernetes.cluster import QUEUES, Cluster
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)


def make_gang(name: str, members: int, pods: int, style: str = "Hard", timeout_s: int = 60) -> list[Object]:
    group = {"name": "workers", "minMember": members, "minResource": {"cpu": "1", "memory": "64Mi"}}
    marks = {
        "yunikorn.apache.org/task-group-name": "workers",
        "yunikorn.apache.org/task-groups": json.dumps([group]),
        "yunikorn.apache.org/schedulingPolicyParameters": (
            f"placeholderTimeoutInSeconds={timeout_s} gangSchedulingStyle={style}"
        ),
    }
    return make_pods(name, pods, annotations=marks)


def has_placeholders(cluster: Cluster, application: str) -> bool:
    return any(is_placeholder(pod) for pod in cluster.api.pods(application))


def test_a_complete_gang_takes_the_place_of_its_placeholders(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.start()
    cluster.api.create(*make_gang("gang", 5, 5))
    cluster.wait_for_pods("gang", 5)
    wait_for(lambda: not has_placeholders(cluster, "gang"), "the placeholders to go")
    started = [report["name"] for report in cluster.reports() if report["what"] == "started"]
    assert len(started) == 10, started
    cluster.check_books()


def test_a_hard_gang_that_is_too_large_waits_and_holds_nothing(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start()
    cluster.api.create(*make_gang("gang", 6, 6, "Hard", timeout_s=4))
    wait_for(lambda: has_placeholders(cluster, "gang"), "placeholders")
    cluster.api.create(*make_pods("other", 4))
    cluster.wait_for_pods("other", 4)
    assert not any(node_of(pod) for pod in cluster.api.pods("gang"))
    cluster.api.create(make_node("node-1"), make_node("node-2"))
    cluster.wait_for_pods("gang", 6)
    cluster.check_books()


def test_a_hard_gang_whose_placeholders_ask_singly_fails_if_it_is_too_large(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start(QUEUES.replace("- name: default\n", "- name: default\n    gang: {scheduling: upstream}\n"))
    cluster.api.create(*make_gang("gang", 6, 6, "Hard", timeout_s=4))
    failed = cluster.wait_for_pods("gang", 6, "Failed")
    assert {pod["status"]["reason"] for pod in failed} == {"ResourceReservationTimeout"}
    wait_for(lambda: not has_placeholders(cluster, "gang"), "the placeholders to go")
    cluster.api.create(*make_pods("other", 4))
    cluster.wait_for_pods("other", 4)
    cluster.check_books()


def test_a_soft_gang_that_is_too_large_runs_as_single_pods(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start()
    cluster.api.create(*make_gang("gang", 6, 6, "Soft", timeout_s=4))
    cluster.wait_for_pods("gang", 4)
    wait_for(lambda: not has_placeholders(cluster, "gang"), "the placeholders to go")
    pending = [pod for pod in cluster.api.pods("gang") if phase_of(pod) == "Pending"]
    assert len(pending) == 2
    cluster.check_books()


def test_placeholders_without_members_go_after_a_while(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start()
    cluster.api.create(*make_gang("gang", 4, 2, timeout_s=5))
    cluster.wait_for_pods("gang", 2)
    wait_for(lambda: not has_placeholders(cluster, "gang"), "the placeholders to go")
    cluster.api.create(*make_pods("other", 2))
    cluster.wait_for_pods("other", 2)
    cluster.check_books()


def test_a_gang_goes_on_when_the_core_is_killed_with_its_placeholders_bound(cluster: Cluster) -> None:
    cluster.add_nodes(5)
    cluster.start()
    cluster.api.create(*make_gang("gang", 20, 20))
    wait_for(
        lambda: any(is_placeholder(pod) and node_of(pod) for pod in cluster.api.pods("gang")) or "none",
        "placeholders that are bound",
    )
    cluster.core.program.kill()
    cluster.core.start()
    cluster.wait_for_pods("gang", 20)
    wait_for(lambda: not has_placeholders(cluster, "gang"), "the placeholders to go")
    cluster.check_books()


def test_placeholders_that_end_while_the_api_server_is_away_go_when_it_is_back(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    # It keeps the Lease all the while, so that it is told of the end and cannot carry it out.
    shim = cluster.start(options=("--lease-duration", "600s"))
    cluster.api.create(*make_gang("gang", 4, 2, timeout_s=8))
    cluster.wait_for_pods("gang", 2)
    cluster.control.program.kill()
    wait_for(lambda: shim.metric("kornel_shim_releases_total") >= 4 or "not yet", "the others to time out")
    cluster.control.start()
    wait_for(lambda: not has_placeholders(cluster, "gang"), "the placeholders to go")
    assert shim.metric("kornel_shim_repairs_total") >= 1
    cluster.check_books()
