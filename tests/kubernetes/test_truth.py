"""What nobody tells the shim, and what pods tell those who own them."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.kubernetes.api import Object, make_node, make_pod, make_pods, name_of, node_of, uid_of
from tests.kubernetes.cluster import Cluster, Shim
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)

GRACE = {"gracePeriodSeconds": "0"}
REPAIR_S = 30.0
"""The longest time until a difference is repaired."""
LIMITED = """
partitions:
  - name: default
    placementrules: [{name: provided}]
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: one, maxapplications: 1}]
"""


def condition_of(pod: Object) -> tuple[str, str]:
    """Returns the reason and the message of why a pod is not scheduled; both empty: it does not say so."""
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


def find_pod(cluster: Cluster, name: str) -> Object:
    found = cluster.api.find("Pod", name)
    assert found is not None
    return found


def notes_about(cluster: Cluster, pod: Object) -> list[str]:
    """Returns the texts of the events of a pod."""
    events = cluster.api.read_all("Event")
    return [event.get("note", "") for event in events if event.get("regarding", {}).get("uid") == uid_of(pod)]


def wait_for_reason(cluster: Cluster, name: str, reason: str, *words: str) -> None:
    """Waits until the condition of a pod has a reason and all *words*, and an event of it has them, too."""
    pod = find_pod(cluster, name)

    def judge() -> object:
        found = condition_of(find_pod(cluster, name))
        notes = notes_about(cluster, pod)
        said = any(all(word in note for word in words) for note in notes)
        return (found[0] == reason and all(word in found[1] for word in words) and said) or (found, notes)

    wait_for(judge, f"{name} to say {words}")


def change_unseen(cluster: Cluster, shim: Shim, change: Callable[[], None]) -> None:
    """Makes a change while the shim stands still and its watches are cut, and lets the API server forget that it was
    one: a watch that goes on from before finds the state that there is now, and not what happened."""
    control = cluster.control
    shim.program.signal(signal.SIGSTOP)
    try:
        control.program.kill()
        control.start()
        change()
        control.program.kill()
        control.start()
    finally:
        shim.program.signal(signal.SIGCONT)


def wait_until_books_agree(cluster: Cluster) -> None:
    wait_for(lambda: not (found := cluster.find_differences()) or found[:5], "the books to agree", REPAIR_S + 30)


def test_pods_that_are_made_again_unseen_are_not_taken_for_the_former(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    shim = cluster.start()
    cluster.api.create(*make_pods("set", 3), make_pod("foreign", "", schedulerName="other", nodeName="node-0"))
    cluster.wait_for_pods("set", 3)
    wait_until_books_agree(cluster)

    def make_again() -> None:
        cluster.api.delete("Pod", "set-0", "set-1", "set-2", "foreign", **GRACE)
        # The largest one has room only if nothing of the former ones is left in the books.
        cluster.api.create(
            make_pod("set-0", "set", cpu="500m"),
            make_pod("set-1", "set", cpu="3"),
            make_pod("set-2", "set", cpu="100m", nodeName="node-0"),
            make_pod("foreign", "", cpu="500m", schedulerName="other", nodeName="node-0"),
        )
        cluster.wait_for_pods("set", 1)
        cluster.api.patch("Pod", "set-2/status", {"status": {"phase": "Succeeded"}})

    change_unseen(cluster, shim, make_again)
    cluster.wait_for_pods("set", 2)
    cluster.check_books()
    assert shim.metric("kornel_shim_repairs_total") > 0
    assert "another one has its name" in shim.program.printed()


def test_a_node_that_is_made_again_smaller_unseen_has_its_new_size(cluster: Cluster) -> None:
    cluster.add_nodes(2, cpu="4")
    shim = cluster.start()
    cluster.api.create(*make_pods("job", 2, nodeSelector={"kubernetes.io/hostname": "node-0"}))
    cluster.wait_for_pods("job", 2)

    def make_again() -> None:
        cluster.api.delete("Node", "node-0", "node-1")
        cluster.api.create(make_node("node-0", cpu="3"), make_node("renamed", cpu="1"))

    change_unseen(cluster, shim, make_again)
    wait_for(lambda: "a node was made again unseen" in shim.program.printed() or "silence", "the shim to say so")

    def judge() -> object:
        nodes = cluster.core.read("/partition/default/nodes")
        found = {node["nodeID"]: node["capacity"].get("vcore") for node in nodes}
        return found == {"node-0": 3000, "renamed": 1000} or found

    wait_for(judge, "the core to know the nodes as they are", REPAIR_S)
    # One more on the node that is smaller now, and one on the node with a new name.
    cluster.api.create(*make_pods("more", 4))
    placed = cluster.wait_for_pods("more", 2)
    assert sorted(node_of(pod) or "" for pod in placed) == ["node-0", "renamed"]
    cluster.check_books()


def test_nodes_that_are_made_again_in_sight_keep_their_pods(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    shim = cluster.start()
    cluster.api.create(*make_pods("job", 6))
    before = {uid_of(pod) for pod in cluster.wait_for_pods("job", 6)}
    cluster.api.delete("Node", "node-0")
    cluster.api.create(make_node("node-0"))
    wait_until_books_agree(cluster)
    alive = {uid_of(pod) for pod in cluster.api.pods("job")}
    print(f"{len(alive & before)} of 6 pods are left; {shim.metric('kornel_shim_repairs_total'):.0f} repairs")
    cluster.api.create(*make_pods("more", 2))
    cluster.wait_for_pods("more", 2)
    cluster.check_books()


def test_pods_that_are_forced_away_while_they_end_give_their_room_back(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start()
    for _ in range(3):
        cluster.api.create(*make_pods("job", 8))
        cluster.wait_for_pods("job", 4)
        cluster.api.delete("Pod", *map(name_of, cluster.api.pods("job")), **GRACE)
    cluster.api.create(*make_pods("last", 4))
    cluster.wait_for_pods("last", 4)
    cluster.check_books()


def test_a_pod_with_resource_claims_says_that_it_gets_no_devices(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.start()
    claim = {"name": "gpu", "resourceClaimName": "one-gpu"}
    cluster.api.create(make_pod("learner", "learner", resourceClaims=[claim]), *make_pods("plain", 2))
    cluster.wait_for_pods("plain", 2)
    wait_for_reason(cluster, "learner", "Unschedulable", "resource claims")
    assert node_of(find_pod(cluster, "learner")) is None


def test_a_pod_that_is_refused_says_by_what(cluster: Cluster) -> None:
    taint = {"key": "only", "value": "gpu", "effect": "NoSchedule"}
    cluster.api.create(make_node("tainted", taints=[taint]))
    cluster.start()
    cluster.api.create(make_pod("picky", "picky", nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}]))
    cluster.api.create(make_pod("plain", "plain"), make_pod("large", "large", cpu="64"))
    wait_for_reason(cluster, "picky", "Unschedulable", "refused", "node affinity/selector")
    wait_for_reason(cluster, "plain", "Unschedulable", "refused", "taint")
    wait_for_reason(cluster, "large", "Unschedulable", "No node has enough room")


def test_a_pod_whose_application_waits_for_a_slot_says_so(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.start(LIMITED)
    cluster.api.create(make_pod("first", "first", queue="root.one"))
    cluster.wait_for_pods("first", 1)
    cluster.api.create(make_pod("second-0", "second", queue="root.one"))
    wait_for_reason(cluster, "second-0", "SchedulingSkipped", "waits for a slot", "root.one")
    cluster.api.create(make_pod("second-1", "second", queue="root.one"))
    wait_for_reason(cluster, "second-1", "SchedulingSkipped", "waits for a slot", "root.one")
    cluster.api.delete("Pod", "first")
    cluster.wait_for_pods("second", 2)
