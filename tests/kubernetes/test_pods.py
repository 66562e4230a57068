"""Pods and nodes: where pods go, what they may not, and what becomes of those that are refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.kubernetes.api import (
    HOSTNAME,
    Object,
    keep_apart,
    make_node,
    make_pod,
    make_pods,
    name_of,
    node_of,
    phase_of,
    pin_to,
    spread,
)
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)


def count_by_node(pods: list[Object]) -> Counter[str | None]:
    return Counter(map(node_of, pods))


def list_running(cluster: Cluster) -> list[str]:
    """Returns the names of the pods of the applications ``guard`` and ``web`` that run."""
    pods = cluster.api.pods("guard") + cluster.api.pods("web")
    return sorted(name_of(pod) for pod in pods if phase_of(pod) == "Running")


def test_plain_pods_run_end_and_give_their_room_back(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.start()
    cluster.api.create(*make_pods("first", 8, annotations={"kornel.test/run-for": "1"}))
    cluster.wait_for_pods("first", 8, "Succeeded")
    cluster.api.create(*make_pods("second", 8))
    cluster.wait_for_pods("second", 8)
    cluster.check_books()


def test_an_application_that_has_completed_may_come_back(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start()
    cluster.api.create(make_pod("once-0", "once", annotations={"kornel.test/run-for": "0"}))
    cluster.wait_for_pods("once", 1, "Succeeded")
    completed = "/partition/default/applications/completed"
    wait_for(lambda: bool(cluster.core.read(completed)) or "none", "the application to complete")
    cluster.api.create(make_pod("once-1", "once"))
    cluster.wait_for_pods("once", 1)
    cluster.check_books()


def test_nodes_come_and_are_closed(cluster: Cluster) -> None:
    cluster.add_nodes(1, cpu="2")
    cluster.start()
    cluster.api.create(*make_pods("job", 4))
    cluster.wait_for_pods("job", 2)
    cluster.api.create(make_node("late", cpu="1"))
    cluster.wait_for_pods("job", 3)
    cluster.api.patch("Node", "late", {"spec": {"unschedulable": True}})
    cluster.api.delete("Pod", next(name_of(pod) for pod in cluster.api.pods("job") if node_of(pod) == "late"))
    # What waits may not go to the node that was closed, although it is the only one with room.
    cluster.wait_for_pods("job", 2)
    cluster.api.patch("Node", "late", {"spec": {"unschedulable": False}})
    cluster.wait_for_pods("job", 3)
    cluster.check_books()


def test_foreign_pods_take_their_room(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    foreign = make_pod("foreign", "", cpu="3", schedulerName="default-scheduler", nodeName="node-0")
    foreign["metadata"]["labels"] = {}
    cluster.api.create(foreign)
    cluster.start()
    cluster.api.create(*make_pods("job", 2))
    cluster.wait_for_pods("job", 1)
    cluster.api.delete("Pod", "foreign")
    cluster.wait_for_pods("job", 2)


def test_selectors_and_taints_hold(cluster: Cluster) -> None:
    taint = {"key": "only", "value": "gpu", "effect": "NoSchedule"}
    cluster.api.create(
        make_node("plain"), make_node("disk", labels={"disk": "ssd"}), make_node("tainted", taints=[taint], cpu="64")
    )
    cluster.start()
    cluster.api.create(
        *make_pods("picky", 5, nodeSelector={"disk": "ssd"}),
        *make_pods("plain", 8),
        *make_pods("tolerant", 2, tolerations=[taint | {"operator": "Equal"}], nodeSelector={HOSTNAME: "tainted"}),
    )
    assert count_by_node(cluster.wait_for_pods("tolerant", 2)) == {"tainted": 2}
    wait_for(
        lambda: len([pod for pod in cluster.api.pods() if phase_of(pod) == "Running"]) == 10, "eight others to run"
    )
    placed = [pod for pod in cluster.api.pods() if node_of(pod)]
    assert {node_of(pod) for pod in placed if pod["metadata"]["labels"]["app"] == "picky"} <= {"disk"}
    assert {node_of(pod) for pod in placed if pod["metadata"]["labels"]["app"] == "plain"} <= {"disk", "plain"}
    cluster.check_books()


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(lambda name: {"affinity": keep_apart(name)}, id="anti-affinity"),
        pytest.param(lambda name: {"ports": [8080]}, id="host port"),
        pytest.param(lambda name: {"topologySpreadConstraints": spread(name)}, id="spread"),
    ],
)
def test_rules_between_pods_hold_although_all_come_at_once(cluster: Cluster, rule: Any) -> None:
    cluster.add_nodes(20, cpu="16")
    cluster.start()
    for name in ("one", "two", "three"):
        cluster.api.create(*make_pods(name, 20, **rule(name)))
        placed = count_by_node(cluster.wait_for_pods(name, 20))
        assert len(placed) == 20, placed
        if name == "one":
            cluster.api.create(*make_pods("plain", 40))
            cluster.wait_for_pods("plain", 40)
        cluster.api.delete("Pod", *map(name_of, cluster.api.pods(name)))
        cluster.wait_until_gone(name)
    cluster.check_books()


@pytest.mark.parametrize("came_first", ["guard", "web"])
def test_pods_that_a_rule_of_others_is_about_do_not_come_beside_them(cluster: Cluster, came_first: str) -> None:
    """A pod has no rule itself, and another one must not run beside it: whichever comes second waits."""
    cluster.add_nodes(1, cpu="16")
    pods = [make_pod("guard-0", "guard", affinity=keep_apart("web")), make_pod("web-0", "web")]
    cluster.api.create(*(pods if came_first == "guard" else reversed(pods)))
    cluster.start()
    wait_for(lambda: len(list_running(cluster)) == 1 or list_running(cluster), "one of both to run")
    cluster.api.create(*make_pods("plain", 3))
    cluster.wait_for_pods("plain", 3)
    (first,) = list_running(cluster)
    cluster.api.delete("Pod", first)
    (second,) = {"guard-0", "web-0"} - {first}
    wait_for(lambda: list_running(cluster) == [second] or list_running(cluster), "the other one to follow")
    cluster.check_books()


def test_pods_and_those_that_must_not_run_beside_them_come_at_once(cluster: Cluster) -> None:
    cluster.add_nodes(20, cpu="16")
    cluster.api.create(*make_pods("guard", 15, affinity=keep_apart("web")), *make_pods("web", 60))
    cluster.start()
    guarded = count_by_node(cluster.wait_for_pods("guard", 15))
    used = count_by_node(cluster.wait_for_pods("web", 60))
    assert not guarded.keys() & used.keys()
    cluster.check_books()


def test_more_pods_than_rules_allow_wait_until_there_is_a_node(cluster: Cluster) -> None:
    cluster.add_nodes(5, cpu="16")
    cluster.start()
    cluster.api.create(*make_pods("apart", 7, affinity=keep_apart("apart")))
    cluster.wait_for_pods("apart", 5)
    cluster.api.create(make_node("late-0"), make_node("late-1"))
    assert len(count_by_node(cluster.wait_for_pods("apart", 7))) == 7
    cluster.check_books()


def test_the_pod_of_a_daemon_set_gets_its_full_node(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.start()
    cluster.api.create(*make_pods("filler", 8))
    cluster.wait_for_pods("filler", 8)
    daemon = make_pod("agent", "daemon", affinity=pin_to("node-1"))
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "0", "controller": True}
    ]
    cluster.api.create(daemon)
    assert count_by_node(cluster.wait_for_pods("daemon", 1)) == {"node-1": 1}
    assert count_by_node(cluster.wait_for_pods("filler", 7)) == {"node-0": 4, "node-1": 3}
    cluster.check_books()


def test_a_pod_says_why_its_application_was_rejected(cluster: Cluster) -> None:
    queues = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: known}]}]}]"
    cluster.add_nodes(1)
    cluster.start(queues)
    cluster.api.create(make_pod("lost-0", "lost", queue="root.nosuch"), make_pod("kept-0", "kept", queue="root.known"))
    (lost,) = cluster.wait_for_pods("lost", 1, "Failed")
    assert lost["status"]["reason"] == "ApplicationRejected"
    assert "root.nosuch" in lost["status"]["message"]
    assert "(no-queue)" in lost["status"]["message"]
    cluster.wait_for_pods("kept", 1)
