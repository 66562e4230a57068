"""Partitions, queues and configurations (rest.md 11, cases 10 to 20 and 35 to 41)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import yaml

from kornel.si.v1 import si_pb2 as si
from tests.e2e.rest.shim import PREFIX, TREE, Cluster, P, rest_cluster

QUOTA = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            resources:
              max: {memory: 1000}
"""
TEMPLATE = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: up
            parent: true
            childtemplate:
              maxapplications: 10
              properties: {application.sort.policy: fair}
              resources:
                max: {memory: 600000}
          - name: leaf
"""
BINPACKING = """
partitions:
  - name: default
    nodesortpolicy: {type: binpacking}
    queues:
      - name: root
        submitacl: "*"
"""
RULES = """
partitions:
  - name: default
    placementrules:
      - name: user
        create: true
        filter: {}
      - name: tag
        value: namespace
        create: true
        parent: {name: fixed, value: spaces, create: true}
      - name: fixed
        value: root.default
        filter: {type: deny, users: [ann, bob]}
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: default}]
"""
JUDGED = "partitions:\n  - name: default\n    queues:\n      - name: root\n        queues:\n          - name: test\n"
JUDGED_SUM = "64682562A0D2DC0CE38A81F78107DADA677AFCE769A7DF633E4D3B28964B94DE"


async def test_case_10_partition_sums_up_its_nodes(cluster: Cluster) -> None:
    await cluster.submit("app")
    for name, memory, vcore in (("n1", 100, 400), ("n2", 200, 300)):
        await cluster.node(name, memory=500, vcore=500)
        await cluster.ask(f"k-{name}", fields={"nodeID": name}, memory=memory, vcore=vcore)
    (found,) = await cluster.get(f"{PREFIX}/partitions")
    assert found["capacity"] == {
        "capacity": {"memory": 1000, "vcore": 1000},
        "usedCapacity": {"memory": 300, "vcore": 700},
        "utilization": {"memory": 30, "vcore": 70},
    }
    assert (found["totalNodes"], found["totalContainers"]) == (2, 2)
    assert (found["clusterId"], found["name"], found["state"]) == ("rm-1", "default", "Active")
    assert found["lastStateTransitionTime"] > 0


async def test_case_11_partition_counts_applications_by_state(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.run_and_finish("completed")
    await cluster.submit("failed", gangSchedulingStyle="Hard", executionTimeoutMilliSeconds=1000)
    await cluster.ask("failed-p", "failed", fields={"placeholder": True, "taskGroupName": "tg"}, vcore=1)
    await cluster.submit("new", "accepted", "running", "completing")
    await cluster.submit("rejected", user="no user!")
    await cluster.ask("accepted-k", "accepted", vcore=100)
    await cluster.ask("running-k", "running", vcore=1)
    await cluster.wait(2)
    await cluster.release("failed-p", "failed", si.TIMEOUT)
    await cluster.ask("completing-k", "completing", vcore=1)
    await cluster.release("completing-k", "completing")
    (found,) = await cluster.get(f"{PREFIX}/partitions")
    counts = dict.fromkeys(("New", "Accepted", "Running", "Completing", "Rejected", "Completed", "Failed"), 1)
    assert found["applications"] == {**counts, "total": 7}


async def test_case_12_partition_without_applications(cluster: Cluster) -> None:
    (found,) = await cluster.get(f"{PREFIX}/partitions")
    assert found["applications"] == {"total": 0}
    assert found["totalNodes"] == 0


async def test_case_13_node_sort_policy(cluster: Cluster) -> None:
    (found,) = await cluster.get(f"{PREFIX}/partitions")
    assert found["nodeSortingPolicy"] == {"type": "fair", "resourceWeights": {"memory": 1, "vcore": 1}}
    await cluster.configure(BINPACKING)
    (found,) = await cluster.get(f"{PREFIX}/partitions")
    assert found["nodeSortingPolicy"]["type"] == "binpacking"


async def test_case_14_tree_is_one_object(cluster: Cluster) -> None:
    root = await cluster.get(f"{P}/queues")
    assert (root["queuename"], root["isLeaf"], root["partition"]) == ("root", False, "default")
    assert "parent" not in root
    child = root["children"][0]
    assert (child["queuename"], child["partition"], child["parent"]) == ("root.a", "", "root")
    assert child["children"][0]["queuename"] == "root.a.a1"


@pytest.mark.parametrize("query", ["?subtree", "?subtree=false", "?subtree=true"])
async def test_case_15_children_only_with_subtree(cluster: Cluster, query: str) -> None:
    bare = await cluster.get(f"{P}/queue/root.a")
    assert "children" not in bare
    assert (bare["childNames"], bare["partition"]) == (["root.a.a1"], "")
    assert (await cluster.get(f"{P}/queue/root.a{query}"))["children"][0]["queuename"] == "root.a.a1"


async def test_case_16_queues_have_no_case(cluster: Cluster) -> None:
    assert await cluster.get(f"{P}/queue/ROOT.A") == await cluster.get(f"{P}/queue/root.a")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("default/queue/root.x!", 400, ""),
        (f"default/queue/root.{'x' * 65}", 400, ""),
        ("default/queue/root..x", 400, ""),
        ("default/queue/root.zz", 404, "Queue not found"),
        ("default/queue/other", 404, "Queue not found"),
        ("default/queue/root%25Zt", 400, 'invalid URL escape "%Zt"'),
        ("nope/queue/root.x!", 404, "Partition not found"),
        ("nope/queue/root.x!/applications", 400, ""),
        ("nope/queue/root/applications", 404, "Partition not found"),
        ("default/queue/root.zz/applications", 404, "Queue not found"),
        ("nope/queue/root.x!/application/a", 404, "Partition not found"),
        ("nope/queue/root%25Zt/application/a", 400, ""),
        ("default/queue/root.zz/application/a", 404, "Queue not found"),
        ("default/queue/root/application/a", 404, "Application not found"),
        ("default/queue/root.zz/applications/other", 404, "Queue not found"),
        ("default/queue/root/applications/other?status=x", 400, ""),
        ("nope/queues", 404, "Partition not found"),
        ("%5Brm-1%5Ddefault/queues", 404, "Partition not found"),
        ("nope/placementrules", 404, "Partition not found"),
        ("nope/nodes", 404, "Partition not found"),
        ("nope/node/n", 404, "Partition not found"),
        ("nope/application/a", 404, "Partition not found"),
        ("nope/applications/nope", 404, "Partition not found"),
    ],
)
async def test_case_17_what_is_not_there_and_what_no_queue_is_called(
    cluster: Cluster, path: str, status: int, message: str
) -> None:
    said = await cluster.refused(f"{PREFIX}/partition/{path}", status, message)
    if "x!" in path and status == 400:
        assert "1 to 64 characters of letters, digits and _ : # / @ -" in said


async def test_case_17_slash_in_a_name_is_escaped_twice(cluster: Cluster) -> None:
    await cluster.refused(f"{P}/queue/root.a%252Fb", 404, "Queue not found")


async def test_case_18_queue_with_a_max(cluster: Cluster) -> None:
    await cluster.configure(QUOTA)
    await cluster.node("n1", memory=5000)
    await cluster.submit("app", queue="root.a")
    await cluster.ask("k", memory=250)
    found = await cluster.get(f"{P}/queue/root.a")
    assert found["absUsedCapacity"] == {"memory": 25}
    assert found["headroom"] == {"memory": 750}
    assert found["allocatedResource"] == {"memory": 250}
    assert found["currentPriority"] == -(2**31)


async def test_case_20_template_of_a_parent(cluster: Cluster) -> None:
    await cluster.configure(TEMPLATE)
    up = await cluster.get(f"{P}/queue/root.up")
    assert up["template"] == {
        "maxApplications": 10,
        "maxResource": {"memory": 600000},
        "properties": {"application.sort.policy": "fair"},
    }
    assert "template" not in await cluster.get(f"{P}/queue/root.leaf")


async def test_case_35_placement_rules(cluster: Cluster) -> None:
    assert await cluster.get(f"{P}/placementrules") == [
        {"name": "provided", "parameters": {"create": "false"}},
        {"name": "recovery", "parameters": {"queue": "root.@recovery@"}},
    ]
    await cluster.configure(RULES)
    found = await cluster.get(f"{P}/placementrules")
    assert [rule["name"] for rule in found] == ["user", "tag", "fixed", "recovery"]
    assert found[1]["parentRule"]["name"] == "fixed"
    assert found[1]["parameters"] == {"tagName": "namespace", "create": "true"}
    assert found[2]["parameters"]["qualified"] == "true"


async def test_case_36_filters_of_rules(cluster: Cluster) -> None:
    await cluster.configure(RULES)
    found = await cluster.get(f"{P}/placementrules")
    assert "filter" not in found[0]
    assert found[2]["filter"] == {"type": "deny", "userList": ["ann", "bob"]}


async def test_case_37_config_in_two_forms(cluster: Cluster) -> None:
    await cluster.configure(QUOTA, log_level="INFO")
    answer = await cluster.http.get(f"{PREFIX}/config")
    assert answer.headers["content-type"] == "application/x-yaml; charset=UTF-8"
    text = yaml.safe_load(answer.text)
    assert text["partitions"][0]["queues"][0]["queues"][0]["resources"] == {"max": {"memory": "1000"}}
    assert text["extra"] == {"log.level": "INFO"}
    assert text["deadlocktimeoutseconds"] == 60
    found = await cluster.get(f"{PREFIX}/config", Accept="application/json")
    root = found["Partitions"][0]["Queues"][0]
    assert (root["Name"], root["Parent"], root["SubmitACL"]) == ("root", True, "*")
    assert root["Queues"][0]["Resources"] == {"Max": {"memory": "1000"}}
    assert found["Extra"] == {"log.level": "INFO"}
    assert found["Checksum"] == text["checksum"] == hashlib.sha256(QUOTA.encode()).hexdigest().upper()
    assert found["Partitions"][0]["Preemption"] == {}
    assert found["DeadlockDetectionEnabled"] is False
    both = await cluster.http.get(f"{PREFIX}/config", headers={"Accept": "application/json, text/plain"})
    assert both.headers["content-type"].startswith("application/x-yaml")
    await cluster.configure(TREE)
    assert (await cluster.get(f"{PREFIX}/config", Accept="application/json"))["Checksum"] != found["Checksum"]


async def test_case_37_config_completes_what_was_written_shortly(cluster: Cluster) -> None:
    await cluster.configure(
        "partitions:\n- name: default\n  preemption: {quotapreemptionenabled: true}\n  queues:\n"
        "  - {name: a, resources: {max: {vcore: 1}, quota.preemption.delay: 5m}}\n  - {name: b, parent: true}\n"
    )
    found = await cluster.get(f"{PREFIX}/config", Accept="application/json")
    partition = found["Partitions"][0]
    assert partition["Preemption"] == {"QuotaPreemptionEnabled": True}
    (root,) = partition["Queues"]
    assert root["Name"] == "root"
    assert root["Queues"][0]["Properties"] == {"quota.preemption.delay": "5m"}
    assert root["Queues"][1]["Parent"] is True


async def validate(cluster: Cluster, text: str | bytes) -> dict[str, Any]:
    answer = await cluster.http.post(
        f"{PREFIX}/validate-conf", content=text, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_case_38_good_configuration(cluster: Cluster) -> None:
    before = await cluster.get(f"{P}/queues")
    assert await validate(cluster, JUDGED) == {"allowed": True, "checksum": JUDGED_SUM, "checksumMatch": False}
    assert await cluster.get(f"{P}/queues") == before


@pytest.mark.parametrize(
    "text",
    [
        BINPACKING.replace("binpacking", "invalid"),
        "partitions: []\nnope: 1\n",
        "# only a comment\n",
        "{",
        b"\xff\xfe",
        "partitions: " + "[" * 10_000,
    ],
)
async def test_case_39_bad_configuration(fresh: Cluster, text: str | bytes) -> None:
    found = await validate(fresh, text)
    assert found["allowed"] is False
    assert found["reason"]
    assert "checksum" not in found


async def test_case_39_empty_text_stands_for_the_default(fresh: Cluster) -> None:
    found = await validate(fresh, "")
    assert found["allowed"] is True
    assert found["checksum"] == hashlib.sha256(b"").hexdigest().upper()


async def test_case_39_body_without_end_is_refused(fresh: Cluster) -> None:
    answer = await fresh.http.post(f"{PREFIX}/validate-conf", content=b"x" * (4 * 2**20 + 1))
    assert answer.status_code == 413
    assert answer.json()["status_code"] == 413


async def test_case_40_text_that_carries_its_checksum(fresh: Cluster) -> None:
    found = await validate(fresh, f"{JUDGED}checksum: {JUDGED_SUM}\n")
    plain = hashlib.sha256(f"{JUDGED}\n".encode()).hexdigest().upper()
    assert found["checksum"] == plain
    assert found["checksumMatch"] is False
    found = await validate(fresh, f"{JUDGED}checksum: {plain}\n")
    assert (found["checksum"], found["checksumMatch"]) == (plain, True)


async def test_case_41_history_minute_by_minute() -> None:
    async with rest_cluster(usage_samples=5) as cluster:
        await cluster.register(TREE)
        assert await cluster.get(f"{PREFIX}/history/apps") == []
        await cluster.node("n1", vcore=10)
        await cluster.submit("app", "app-2", "app-3", "app-4")
        await cluster.ask("k", vcore=1)
        await cluster.ask("k2", "app-2", vcore=1)
        await cluster.ask("k3", "app-3", vcore=1)
        await cluster.ask("waits", "app-3", vcore=100)
        await cluster.release("k3", "app-3")
        began_ns = cluster.core.clock.now_ns()
        await cluster.wait(60)
        for key, application in (("k4", "app-4"), ("k5", "app-4"), ("k6", "app")):
            await cluster.ask(key, application, vcore=1)
        await cluster.wait(60)

        async def told(kind: str, field: str) -> list[str]:
            return [sample[field] for sample in await cluster.get(f"{PREFIX}/history/{kind}")]

        assert await told("apps", "totalApplications") == ["3", "4"]
        assert await told("containers", "totalContainers") == ["2", "5"]
        found = await cluster.get(f"{PREFIX}/history/apps")
        assert began_ns < found[0]["timestamp"] < found[1]["timestamp"]
        assert await cluster.get(f"{PREFIX}/history/apps?since={found[1]['timestamp']}") == found[1:]
        await cluster.release("k6")
        await cluster.wait(5 * 60)
        assert await told("apps", "totalApplications") == ["4"] * 5
        assert await told("containers", "totalContainers") == ["4"] * 5
        assert (await cluster.get(f"{PREFIX}/history/apps"))[0]["timestamp"] > found[1]["timestamp"]


async def test_case_41_history_switched_off() -> None:
    async with rest_cluster(usage_samples=0) as cluster:
        await cluster.refused(f"{PREFIX}/history/apps", 500, "Internal metrics collection is not enabled.")
        await cluster.refused(f"{PREFIX}/history/containers", 500, "Internal metrics collection is not enabled.")
