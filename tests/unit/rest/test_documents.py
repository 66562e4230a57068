"""Documents have the fields of the tables of rest.md 4, and leave out what those say."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kornel.core.state.asks import moves
from kornel.core.telling.encoding import values
from kornel.core.telling.encoding.yunikorn import applications, cluster, nodes, queues, usage
from kornel.core.telling.reader import PartitionReader, Reader
from tests.scenarios.stage import Stage

ALWAYS = {
    "cluster": {"partition", "clusterName", "rmBuildInformation"},
    "partition": {
        "clusterId", "name", "capacity", "nodeSortingPolicy", "preemptionEnabled", "quotaPreemptionEnabled",
        "totalNodes", "applications", "state",
    },
    "queue": {
        "queuename", "status", "partition", "isLeaf", "isManaged", "currentPriority", "sortingPolicy",
        "prioritySorting", "preemptionEnabled", "isPreemptionFence", "isPriorityFence", "preemptionDelay",
        "quotaPreemptionDelay", "isQuotaPreemptionRunning", "unschedAskBackoff", "askBackoffDelay",
    },
    "application": {
        "applicationID", "partition", "queueName", "applicationState", "startTime", "resourceHistory",
    },
    "node": {"nodeID", "attributes", "schedulable", "isReserved"},
    "ask": {"allocationKey"},
    "allocation": {"allocationKey"},
    "foreign": {"allocationKey"},
}  # fmt: skip

OMITTED = {
    "cluster": {"startTime"},
    "partition": {"totalContainers", "lastStateTransitionTime"},
    "queue": {
        "pendingResource", "maxResource", "guaranteedResource", "allocatedResource", "preemptingResource", "headroom",
        "properties", "parent", "template", "children", "childNames", "absUsedCapacity", "maxRunningApps",
        "runningApps", "allocatingAcceptedApps", "priorityOffset", "quotaPreemptionStartTime",
    },
    "application": {
        "usedResource", "maxUsedResource", "pendingResource", "submissionTime", "finishedTime", "requests",
        "allocations", "user", "groups", "rejectedMessage", "stateLog", "placeholderData", "hasReserved",
        "reservations", "maxRequestPriority", "backoffDeadline", "lastStateChangeTime", "belowMinimum",
    },
    "node": {
        "hostName", "rackName", "capacity", "allocated", "occupied", "available", "utilized", "allocations",
        "foreignAllocations", "reservations",
    },
    "ask": {
        "allocationTags", "requestTime", "resource", "priority", "requiredNodeId", "applicationId", "placeholder",
        "taskGroupName", "allocationLog", "triggeredPreemption", "originator", "schedulingAttempted",
        "triggeredScaleUp",
    },
    "allocation": {
        "allocationTags", "requestTime", "allocationTime", "allocationDelay", "resource", "priority", "nodeId",
        "applicationId", "placeholder", "placeholderUsed", "taskGroupName", "preempted", "originator",
    },
    "foreign": {"allocationTags", "allocationTime", "resource", "priority", "nodeId", "preemptable"},
}  # fmt: skip


def played(*lines: str) -> Stage:
    stage = Stage()
    stage.play(list(lines))
    return stage


def views_of(stage: Stage) -> PartitionReader:
    views = Reader(stage.engine, lambda: stage.now_ns).get("[rm-1]default")
    assert views is not None
    return views


def plain(document: Any) -> Any:
    """As a client reads it."""
    return orjson.loads(orjson.dumps(document))


def application(stage: Stage, name: str = "app1") -> Any:
    view = views_of(stage).application(name)
    assert view is not None
    return plain(applications.write_application(view))


def node(stage: Stage, name: str = "n1") -> Any:
    view = views_of(stage).node(name)
    assert view is not None
    return plain(nodes.write_node(view))


def queue(stage: Stage, path: str) -> Any:
    return plain(queues.write_queue(next(views_of(stage).queues(path, subtree=False))))


def tree(stage: Stage, path: str = "root", partition: str = "default") -> Any:
    grown = queues.QueueTree(partition)
    for view in views_of(stage).queues(path):
        grown.add(view)
    return plain(grown.to_document())


def partition(stage: Stage) -> Any:
    return plain(cluster.PARTITION.write(views_of(stage).partition()))


def everything() -> list[tuple[str, dict[str, Any]]]:
    """One of each kind with as much to say as possible, and one with as little."""
    stage = played(
        "queue root.a max={vcore=20000,memory=100} guaranteed={vcore=1000}",
        "queue root.a timestamp=7",
        "queue root.p parent",
        "node n1 attr.si/hostname=h attr.si/rackname=r",
        "node idle vcore=0 memory=0 draining",
        "foreign f node=n1 vcore=10 kind=static",
        "foreign g node=n1 vcore=10",
        "app app1 queue=root.a user=ann groups=dev,ops",
        "app empty queue=root.a user=bob",
        "ask k1 p=3",
        "cycle",
        "ask big vcore=90000",
        "cycle",
    )
    views = views_of(stage)
    manager = stage.engine.manager
    assert manager is not None
    view = application(stage)
    found: list[tuple[str, dict[str, Any]]] = [
        ("cluster", plain(cluster.CLUSTER.write(cluster.ClusterEntry(views.partition(), manager, 17)))),
        ("cluster", plain(cluster.CLUSTER.write(cluster.ClusterEntry(views.partition(), manager, 0)))),
        ("partition", partition(stage)),
        ("partition", partition(played("node n1"))),
        ("queue", tree(stage)),
        *[("queue", queue(stage, path)) for path in ("root", "root.a", "root.p")],
        ("application", view),
        ("application", application(stage, "empty")),
        *[("node", node(stage, name)) for name in ("n1", "idle")],
        *[("ask", ask) for ask in view["requests"]],
        *[("allocation", placed) for placed in view["allocations"]],
        *[("foreign", load) for load in node(stage)["foreignAllocations"]],
    ]
    return found


@pytest.mark.parametrize(("kind", "document"), everything())
def test_fields_are_those_of_the_tables(kind: str, document: dict[str, Any]) -> None:
    assert document.keys() >= ALWAYS[kind]
    assert document.keys() <= ALWAYS[kind] | OMITTED[kind]
    empty = {key for key in document.keys() & OMITTED[kind] if not document[key]}
    assert not empty, "the tables say to leave these out"


def test_case_27_and_28_what_has_ended_is_remembered() -> None:
    stage = played(
        "node n1", "app app1", "ask k", "cycle", "cycle at=5s", "remove-app app1", "app app1", "remove-app app1"
    )
    assert views_of(stage).application("app1") is None
    stage.play(["app app1", "ask k", "cycle", "cycle at=8s", "remove-app app1", "app bad queue=root.none"])
    first, second = [plain(applications.write_application(view)) for view in views_of(stage).finished_applications()]
    assert (first["applicationID"], second["applicationID"], second["applicationState"]) == (
        "app1",
        "app1",
        "Completed",
    )
    assert second["finishedTime"] == stage.now_ns
    assert first["resourceHistory"] == {"resourceUsage": {"UNKNOWN": {"vcore": 5000}}}
    assert first["maxUsedResource"] == {"vcore": 1000}
    [refused] = [plain(applications.write_application(view)) for view in views_of(stage).rejected_applications()]
    assert refused["applicationState"] == "Rejected"
    assert refused["rejectedMessage"].startswith("no-queue")
    stage.play(["cycle at=260000s"])
    assert not list(views_of(stage).finished_applications())
    assert not list(views_of(stage).rejected_applications())


@pytest.mark.parametrize(
    ("used", "whole", "expected"), [(10, 100, 0), (11, 100, 1), (109, 1000, 0), (50, 100, 4), (105, 100, 9), (1, 0, 9)]
)
def test_case_32_bucket_of_a_node(used: int, whole: int, expected: int) -> None:
    assert nodes.bucket_of(used, whole) == expected


def test_case_33_use_of_users_and_groups() -> None:
    stage = played(
        "queue root.default", "limit root groups=dev apps=5", "limit root.default users=ann max={vcore=2000}",
        "register",
        "node n1", "app app-1 queue=root.default user=ann groups=dev", "ask k app=app-1", "cycle",
    )  # fmt: skip
    [ann] = [plain(usage.USER.write(view)) for view in views_of(stage).users()]
    leaf = {
        "queuePath": "root.default",
        "resourceUsage": {"vcore": 1000},
        "runningApplications": ["app-1"],
        "maxResources": {"vcore": 2000},
    }
    root = {"queuePath": "root", "resourceUsage": {"vcore": 1000}, "runningApplications": ["app-1"]}
    assert ann == {"userName": "ann", "groups": {"app-1": "dev"}, "queues": {**root, "children": [leaf]}}
    assert not list(views_of(stage).users("zoe"))
    [dev] = [plain(usage.GROUP.write(view)) for view in views_of(stage).groups() if view is not None]
    assert dev["applications"] == ["app-1"]
    assert dev["queues"]["maxApplications"] == 5
    assert not list(views_of(stage).groups("ops"))
    stage.play(["remove-app app-1"])
    [left] = [plain(usage.USER.write(view)) for view in views_of(stage).users()]
    assert "runningApplications" not in left["queues"], "a limit still names this user"


def test_case_35_and_36_rules() -> None:
    unset = [plain(cluster.RULE.write(view)) for view in views_of(played("node n1")).rules()]
    assert unset == [
        {"name": "provided", "parameters": {"create": "false"}},
        {"name": "recovery", "parameters": {"queue": "root.@recovery@"}},
    ]
    stage = played(
        "yaml {partitions: [{name: default, queues: [{name: root, submitacl: ann}], placementrules: ["
        "{name: user, create: true}, {name: tag, value: namespace, parent: {name: fixed, value: ns, create: true}},"
        " {name: fixed, value: root.x, create: true, filter: {type: deny, users: [ann, bob]}},"
        " {name: provided, filter: {users: [a.*]}}]}]}",
        "register",
    )
    user, tag, fixed, provided, recovery = [plain(cluster.RULE.write(view)) for view in views_of(stage).rules()]
    assert user == {"name": "user", "parameters": {"create": "true"}}
    assert tag["parameters"] == {"create": "false", "tagName": "namespace"}
    assert tag["parentRule"]["name"] == "fixed"
    assert fixed["parameters"] == {"create": "true", "queue": "root.x", "qualified": "true"}
    assert fixed["filter"] == {"type": "deny", "userList": ["ann", "bob"]}
    assert provided["filter"] == {"type": "allow", "userExp": "a.*"}
    assert recovery["name"] == "recovery"


def test_dynamic_queues_show_what_they_inherit() -> None:
    stage = played(
        "yaml {partitions: [{name: default, placementrules: [{name: user, create: true}], queues: ["
        "{name: root, submitacl: ann, properties: {preemption.policy: fence, timestamp: '5'}, childtemplate:"
        " {properties: {application.sort.policy: fair}}}]}]}",
        "register", "node n1", "app app1 user=ann",
    )  # fmt: skip
    found = queue(stage, "root.ann")
    assert (found["isManaged"], found["sortingPolicy"]) == (False, "fair")
    assert found["properties"] == {
        "application.sort.policy": "fair",
        "preemption.policy": "default",
        "timestamp": "5",
    }


def test_an_allocation_is_encoded_again_only_when_it_changed() -> None:
    stage = played("node n1", "app app1", "ask k", "cycle")

    reader = Reader(stage.engine)

    def shown() -> Any:
        view = reader["[rm-1]default"].node("n1")
        assert view is not None
        plain(nodes.write_node(view))
        return view.allocations[0]

    first = shown()
    assert first.rendered is not None
    assert shown() is first
    stage.play(["resize-ask k vcore=2000"])
    assert shown() is not first
    assert node(stage)["allocations"][0]["resource"] == {"vcore": 2000}


def test_lists_go_on_while_the_partition_changes() -> None:
    """What is gone by the time its turn comes is left out."""
    stage = played("node n1", "node n2", "node n3", "app x", "app y", "app z")
    going, apps = views_of(stage).nodes(), views_of(stage).applications()
    assert (next(going).node_id, next(apps).application_id) == ("n1", "x")
    stage.play(["decommission n2", "remove-app y"])
    assert [view.node_id for view in going] == ["n3"]
    assert [view.application_id for view in apps] == ["z"]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"), (30 * 10**9, "30s"), (60 * 10**9, "1m0s"), (5400 * 10**9, "1h30m0s"), (7200 * 10**9, "2h0m0s"),
        (1_500_000_000, "1.5s"), (500_000_000, "500ms"), (1_500, "1.5µs"), (7, "7ns"), (-10**9, "-1s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_go_writes_them(ns: int, text: str) -> None:
    assert values.write_duration(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1_790_000_000 * 10**9, "2026-09-21T14:13:20Z"),
        (1_790_000_000 * 10**9 + 1_500_000, "2026-09-21T14:13:20.0015Z"),
    ],
)
def test_times_as_rfc_3339(ns: int, text: str) -> None:
    assert values.write_time(ns) == text


def test_amounts_fit_into_64_bits() -> None:
    assert values.write_amounts({"b": 2**80, "a": -(2**80)}) == {"a": -(2**63), "b": 2**63 - 1}


def test_a_real_allocation_that_took_the_place_of_a_placeholder() -> None:
    """It counts as asked for when the placeholder was; what the placeholder used is shown as soon as it has ended."""
    stage = played(
        "node n1 attr.si/instance-type=big", "app app1 gang={vcore=1000} at=1s", "ask h placeholder group=tg at=1s",
        "cycle", "ask real group=tg at=5s", "cycle", "release h app=app1 type=PLACEHOLDER_REPLACED at=8s",
    )  # fmt: skip
    found = application(stage)
    [placed] = found["allocations"]
    assert (placed["allocationKey"], placed["placeholderUsed"], "placeholder" in placed) == ("real", True, False)
    assert (placed["requestTime"], placed["allocationTime"], placed["allocationDelay"]) == (10**9, 5 * 10**9, 4 * 10**9)
    assert found["placeholderData"][0]["replaced"] == 1
    assert found["applicationState"] == "Running"
    assert found["resourceHistory"] == {"placeholderResource": {"big": {"vcore": 7000}}}
    stage.play(["release real app=app1 at=15s"])
    ended = application(stage)
    assert ended["applicationState"] == "Completing"
    assert ended["resourceHistory"] == {
        "placeholderResource": {"big": {"vcore": 7000}},
        "resourceUsage": {"big": {"vcore": 10000}},
    }


def test_an_allocation_counts_as_asked_for_when_its_ask_was_created() -> None:
    """Its delay is how long the ask waited, whether it took the place of a placeholder or not."""
    stage = played("node n1", "app app1", "ask old created=2s", "ask new at=7s", "cycle at=9s")
    waited = {
        placed["allocationKey"]: (placed["requestTime"], placed["allocationTime"], placed["allocationDelay"])
        for placed in application(stage)["allocations"]
    }
    assert waited == {"old": (2 * 10**9, 9 * 10**9, 7 * 10**9), "new": (7 * 10**9, 9 * 10**9, 2 * 10**9)}


def test_what_has_ended_is_shown_while_the_application_runs() -> None:
    """Also in the list that keeps what was made of an application, when it holds again what it held before."""
    stage = played("node n1", "app app1", "ask a", "ask b", "cycle")

    def shown_in_lists() -> Any:
        views = views_of(stage)
        [parts] = views.application_parts("", applications.encode_head)
        return orjson.loads(b"".join(applications.encode_parts(parts)))["resourceHistory"]

    assert shown_in_lists() == {}
    stage.play(["release a app=app1 at=3s", "ask c at=3s", "cycle"])
    assert shown_in_lists() == {"resourceUsage": {"UNKNOWN": {"vcore": 3000}}}
    stage.play(["release c app=app1 at=5s", "ask d at=5s", "cycle"])
    assert application(stage)["applicationState"] == "Running"
    assert shown_in_lists() == {"resourceUsage": {"UNKNOWN": {"vcore": 5000}}}


def test_what_victims_used_is_told_apart() -> None:
    stage = played("node n1", "app app1", "ask k", "cycle")
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    moves.mark_victims(state, {state.requests["k"]: None})
    assert node(stage)["allocations"][0]["preempted"] is True
    stage.play(["release k app=app1 type=PREEMPTED_BY_SCHEDULER at=3s"])
    assert application(stage)["resourceHistory"] == {"preemptedResource": {"UNKNOWN": {"vcore": 3000}}}


def test_the_most_an_application_held() -> None:
    """Also when it gave it back bit by bit, or became smaller in place."""
    stage = played("node n1", "app app1", "ask a vcore=3000", "ask b vcore=2000 memory=4", "cycle")
    stage.play(["resize-ask a vcore=1000"])
    assert application(stage)["maxUsedResource"] == {"memory": 4, "vcore": 5000}
    stage.play(["release b app=app1"])
    found = application(stage)
    assert (found["usedResource"], found["maxUsedResource"]) == ({"vcore": 1000}, {"memory": 4, "vcore": 5000})


def test_the_most_an_application_held_counts_placeholders() -> None:
    """By themselves, as what takes their place does: the larger amount of each type counts, never the sum of both."""
    stage = played(
        "node n1 vcore=9000 memory=9", "app app1 gang={vcore=4000,memory=2}",
        "ask p placeholder group=tg vcore=2000 memory=1", "ask q placeholder group=tg vcore=2000 memory=1", "cycle",
    )  # fmt: skip
    assert application(stage)["maxUsedResource"] == {"memory": 2, "vcore": 4000}
    stage.play(["resize-ask p vcore=1000 memory=1", "ask real group=tg vcore=1000 memory=1", "cycle"])
    stage.play(["release p app=app1 type=PLACEHOLDER_REPLACED", "release q app=app1"])
    stage.play(["ask more memory=5 vcore=0", "cycle"])
    found = application(stage)
    assert found["usedResource"] == {"memory": 6, "vcore": 1000}
    assert found["maxUsedResource"] == {"memory": 6, "vcore": 4000}
    stage.play(["cycle at=9s", "remove-app app1"])
    [ended] = [plain(applications.write_application(view)) for view in views_of(stage).finished_applications()]
    assert ended["maxUsedResource"] == {"memory": 6, "vcore": 4000}


@pytest.mark.parametrize(
    "change",
    [
        ["ask more", "cycle"], ["release k app=app1"], ["resize-ask k vcore=7"], ["decommission n1"],
        ["release k app=app1 type=SCHEDULING_FAILED_ON_RM"], ["remove-app app1"],
    ],
)  # fmt: skip
def test_what_was_shown_is_shown_no_more_after_a_change(change: list[str]) -> None:
    """Whatever changes an allocation, lists made afterwards say what lists made for the first time say."""
    looked, other = (played("node n1", "node n2", "app app1", "ask k", "ask l", "cycle") for _ in range(2))
    for _ in views_of(looked).nodes():
        application(looked)
    for stage in (looked, other):
        stage.play(change)

    def told(stage: Stage) -> Any:
        shown = [applications.write_application(view) for view in views_of(stage).applications()]
        return plain([*shown, *[nodes.write_node(view) for view in views_of(stage).nodes()]])

    assert told(looked) == told(other)
