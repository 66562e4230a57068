"""Applications, nodes and users (rest.md 11, cases 19 and 21 to 34)."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.resources import Resources
from kornel.core.telling.encoding.values import percents_of
from kornel.si.v1 import si_pb2 as si
from tests.e2e.rest.shim import PREFIX, Cluster, P
from tests.exposition import by_key

LIMITS = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
            limits:
              - limit: developers
                groups: [dev]
                maxresources: {vcore: 10m}
"""
QUOTAS = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        limits:
          - limit: everybody
            users: ["*"]
            maxresources: {{vcore: {user}m}}
        queues:
          - name: default
            resources: {{max: {{vcore: {queue}m}}}}
"""


@pytest.mark.parametrize(
    ("used", "capacity", "expected"),
    [
        ({"vcore": 5, "x": 1}, {"vcore": 10, "gpu": 2}, {"vcore": 50}),
        ({"vcore": 5}, {"vcore": 0}, {"vcore": 100}),
        ({"vcore": 30}, {"vcore": 20}, {"vcore": 150}),
        ({"vcore": -1}, {"vcore": 20}, {"vcore": 0}),
        ({"vcore": 199}, {"vcore": 1000}, {"vcore": 19}),
        ({"vcore": 199}, None, {}),
        ({"vcore": 2**62}, {"vcore": 1}, {"vcore": 2147483647}),
    ],
)
def test_case_19_percent_rule(used: dict[str, int], capacity: dict[str, int] | None, expected: dict[str, int]) -> None:
    assert percents_of(Resources(used), Resources(capacity) if capacity is not None else None) == expected


async def test_case_21_applications_are_those_of_the_very_queue(cluster: Cluster) -> None:
    await cluster.submit("one", "two")
    found = await cluster.get(f"{P}/queue/root.default/applications")
    assert [application["applicationID"] for application in found] == ["one", "two"]
    assert await cluster.get(f"{P}/queue/root/applications") == []
    one = await cluster.get(f"{P}/queue/root.default/application/one")
    assert one == found[0] == await cluster.get(f"{P}/application/one")
    await cluster.refused(f"{P}/queue/root/application/one", 404, "Application not found")


async def test_case_22_placeholders_by_task_group(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app", gangSchedulingStyle="Soft", executionTimeoutMilliSeconds=1000)
    await cluster.ask("p", fields={"placeholder": True, "taskGroupName": "tg"}, vcore=1)
    await cluster.wait(2)
    await cluster.release("p", termination=si.TIMEOUT)
    found = await cluster.get(f"{P}/application/app")
    assert found["placeholderData"] == [{"taskGroupName": "tg", "count": 1, "minResource": {"vcore": 1}, "timedout": 1}]


async def test_case_23_times_of_an_application(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    found = await cluster.get(f"{P}/application/app")
    assert found["startTime"] == -62135596800000
    assert found["submissionTime"] == cluster.core.clock.now_ns()
    await cluster.ask("k", vcore=1)
    found = await cluster.get(f"{P}/application/app")
    assert found["startTime"] == cluster.core.clock.now_ns() // 10**6
    assert "finishedTime" not in found
    assert [entry["applicationState"] for entry in found["stateLog"]][-2:] == ["Accepted", "Running"]


async def test_case_24_requests_are_those_that_wait(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    await cluster.ask("k", vcore=1)
    await cluster.ask("waits", fields={"priority": 0}, vcore=100)
    found = await cluster.get(f"{P}/application/app")
    (waiting,) = found["requests"]
    assert (waiting["allocationKey"], waiting["priority"], waiting["applicationId"]) == ("waits", "0", "app")
    (placed,) = found["allocations"]
    assert (placed["allocationKey"], placed["nodeId"]) == ("k", "n1")
    assert (found["usedResource"], found["pendingResource"]) == ({"vcore": 1}, {"vcore": 100})


async def test_case_25_why_an_ask_waits(cluster: Cluster) -> None:
    """It is looked at again when there may be room, and another one takes that. The last to occur is told last."""
    await cluster.configure(QUOTAS.format(queue=6, user=100))
    await cluster.node("n1", vcore=100)
    await cluster.submit("app")
    await cluster.ask("taker-0", vcore=4)
    await cluster.ask("waits", vcore=5)

    async def log() -> list[tuple[str, int]]:
        requests = (await cluster.get(f"{P}/application/app"))["requests"]
        (found,) = [ask["allocationLog"] for ask in requests if ask["allocationKey"] == "waits"]
        assert found[-1]["lastOccurrence"] == cluster.core.clock.now_ns()
        assert sorted(entry["lastOccurrence"] for entry in found) == [entry["lastOccurrence"] for entry in found]
        return [(entry["message"], entry["count"]) for entry in found]

    of_queue, of_user = "Not enough queue quota", "Not enough user quota"
    assert await log() == [(of_queue, 1)]
    for number in (1, 2):
        await cluster.wait(1)
        await cluster.ask(f"taker-{number}", fields={"priority": 10}, vcore=4)
        await cluster.release(f"taker-{number - 1}")
        assert await log() == [(of_queue, 1 + number)]
    await cluster.wait(1)
    await cluster.configure(QUOTAS.format(queue=9, user=1))
    await cluster.wait(0)
    assert await log() == [(of_queue, 3), (of_user, 1)]
    await cluster.wait(1)
    await cluster.configure(QUOTAS.format(queue=4, user=9))
    await cluster.wait(0)
    assert await log() == [(of_user, 1), (of_queue, 4)]


async def test_case_26_applications_by_state(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("new", "running")
    await cluster.ask("k", "running", vcore=1)
    await cluster.submit("failed", gangSchedulingStyle="Hard", executionTimeoutMilliSeconds=1000)
    await cluster.ask("p", "failed", fields={"placeholder": True, "taskGroupName": "tg"}, vcore=1)
    await cluster.wait(2)
    await cluster.release("p", "failed", si.TIMEOUT)

    async def listed(path: str) -> list[str]:
        return [f"{found['applicationID']}" for found in await cluster.get(f"{P}/{path}")]

    assert await listed("applications/Active?status=RUNNING") == ["running"]
    assert await listed("applications/active") == ["new", "running"]
    assert await listed("queue/root.default/applications/ACTIVE?status=new") == ["new"]
    assert await listed("applications/completed") == ["failed"]
    assert await listed("applications/completed?status=Running") == ["failed"]
    assert await listed("applications/completed?status=nonsense") == ["failed"]
    said = await cluster.refused(f"{P}/applications/active?status=failed", 400)
    assert "running" in said
    said = await cluster.refused(f"{P}/applications/accepted", 400)
    assert all(state in said for state in ("active", "completed", "rejected"))
    await cluster.refused(f"{P}/queue/root.default/applications/completed", 400)


async def test_case_27_completed_application(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.run_and_finish("app")
    await cluster.refused(f"{P}/application/app", 404, "Application not found")
    (found,) = await cluster.get(f"{P}/applications/completed")
    assert (found["applicationState"], found["queueName"]) == ("Completed", "root.default")
    assert found["finishedTime"] > found["submissionTime"]
    await cluster.run_and_finish("app", "second")
    both = await cluster.get(f"{P}/applications/completed")
    assert [application["applicationID"] for application in both] == ["app", "app"]
    latest = await cluster.get(f"{P}/application/app?state=any")
    assert latest["submissionTime"] == max(application["submissionTime"] for application in both)


async def test_case_28_rejected_application(cluster: Cluster) -> None:
    await cluster.submit("app", user="no user!")
    (found,) = await cluster.get(f"{P}/applications/rejected")
    assert (found["applicationID"], found["applicationState"]) == ("app", "Rejected")
    assert found["rejectedMessage"]


@pytest.mark.parametrize(("kind", "preemptable"), [("default", True), ("static", None)])
async def test_case_29_node_with_load_of_others(cluster: Cluster, kind: str, preemptable: bool | None) -> None:
    await cluster.node("n1", attributes={"si/hostname": "h1", "si/rackname": "r1"}, vcore=1000)
    await cluster.submit("app")
    await cluster.ask("k", vcore=500)
    await cluster.ask("f", "", fields={"nodeID": "n1", "allocationTags": {"foreign": kind}}, vcore=200)
    found = await cluster.get(f"{P}/node/n1")
    assert found == (await cluster.get(f"{P}/nodes"))[0]
    assert found["capacity"] == {"vcore": 1000}
    assert (found["allocated"], found["occupied"], found["available"]) == (
        {"vcore": 500},
        {"vcore": 200},
        {"vcore": 300},
    )
    assert found["utilized"] == {"vcore": 50}
    assert found["foreignAllocations"][0].get("preemptable") is preemptable
    assert (found["hostName"], found["rackName"], found["schedulable"]) == ("h1", "r1", True)


async def test_case_30_unknown_node(cluster: Cluster) -> None:
    await cluster.refused(f"{P}/node/none", 404, "Node not found")


async def utilization(cluster: Cluster) -> dict[str, list[list[str]]]:
    (found,) = await cluster.get(f"{PREFIX}/scheduler/node-utilizations")
    assert (found["clusterId"], found["partition"]) == ("rm-1", "default")
    shown = {}
    for kind in found["utilizations"]:
        assert [bucket["bucketName"] for bucket in kind["utilization"]] == [f"{k}-{k + 10}%" for k in range(0, 100, 10)]
        for bucket in kind["utilization"]:
            assert bucket.get("numOfNodes", 0) == len(bucket.get("nodeNames", ()))
            assert len(bucket) in (1, 3)
        shown[kind["type"]] = [bucket.get("nodeNames", []) for bucket in kind["utilization"]]
    return shown


async def filled(cluster: Cluster, node_id: str, memory: int, vcore: int) -> None:
    await cluster.node(node_id, memory=1000, vcore=1000)
    await cluster.ask(f"k-{node_id}", fields={"nodeID": node_id}, memory=memory, vcore=vcore)


async def test_case_31_how_full_nodes_are(cluster: Cluster) -> None:
    await cluster.submit("app")
    await filled(cluster, "n1", 500, 300)
    await filled(cluster, "n2", 300, 500)
    await cluster.node("n3", vcore=1000)
    found = await utilization(cluster)
    empty: list[str] = []
    assert found["memory"] == [empty, empty, ["n2"], empty, ["n1"], empty, empty, empty, empty, empty]
    assert found["vcore"] == [["n3"], empty, ["n1"], empty, ["n2"], empty, empty, empty, empty, empty]


async def test_case_32_more_than_full(cluster: Cluster) -> None:
    """REST cuts percents off, metrics do not."""
    await cluster.submit("app")
    await filled(cluster, "n1", 1050, 109)
    found = await utilization(cluster)
    assert found["memory"][9] == ["n1"]
    assert found["vcore"][0] == ["n1"]
    now = by_key((await cluster.http.get(f"{PREFIX}/metrics")).text)
    for resource, filled_range in (("memory", "(90%,100%]"), ("vcore", "(10%,20%]")):
        name = f"yunikorn_scheduler_{resource}_node_usage_total"
        assert [key[1] for key, count in now.items() if key[0] == name and count] == [filled_range]


async def test_case_33_what_users_and_groups_use(cluster: Cluster) -> None:
    await cluster.configure(LIMITS)
    await cluster.node("n1", vcore=10)
    await cluster.submit("app-1")
    await cluster.ask("k", "app-1", vcore=1)
    user = await cluster.get(f"{P}/usage/user/ann")
    assert (user["userName"], user["groups"]) == ("ann", {"app-1": "dev"})
    assert user["queues"]["resourceUsage"] == {"vcore": 1}
    (child,) = user["queues"]["children"]
    assert (child["queuePath"], child["resourceUsage"]) == ("root.default", {"vcore": 1})
    assert child["runningApplications"] == ["app-1"]
    group = await cluster.get(f"{P}/usage/group/dev")
    assert (group["groupName"], group["applications"]) == ("dev", ["app-1"])
    assert group["queues"]["children"][0]["maxResources"] == {"vcore": 10}
    assert await cluster.get(f"{P}/usage/users") == [user]
    assert await cluster.get(f"{P}/usage/groups") == [group]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("default/usage/user/1abc", 400, "Invalid user name"),
        ("default/usage/user/zoe", 404, "User not found"),
        ("default/usage/user/a%25Zt", 400, 'invalid URL escape "%Zt"'),
        ("default/usage/group/a@b", 400, "Invalid group name"),
        ("default/usage/group/*", 400, "Invalid group name"),
        ("default/usage/group/dev", 404, "Group not found"),
        ("nope/usage/user/zoe", 404, "User not found"),
        ("nope/usage/group/dev", 404, "Group not found"),
    ],
)
async def test_case_34_users_that_are_none(cluster: Cluster, path: str, status: int, message: str) -> None:
    await cluster.refused(f"{PREFIX}/partition/{path}", status, message)


async def test_case_34_nobody_uses_anything(cluster: Cluster) -> None:
    for partition in ("default", "nope"):
        for kind in ("users", "groups"):
            assert await cluster.get(f"{PREFIX}/partition/{partition}/usage/{kind}") == []


async def test_case_34_user_with_a_slash(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app", user="a/b")
    await cluster.ask("k", vcore=1)
    found: dict[str, Any] = await cluster.get(f"{P}/usage/user/a%252Fb")
    assert found["userName"] == "a/b"
