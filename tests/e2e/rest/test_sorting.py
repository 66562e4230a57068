"""Lists in the order that the client names (rest.md 12.3)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from kornel.core.rest.serving.listing import Wishes, page_in_order
from kornel.core.rest.serving.sorting import APPLICATIONS, NODES, QUEUES, USERS
from tests.e2e.rest.shim import Cluster, P
from tests.e2e.rest.test_pages import pages

QUEUES_CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
          - name: slow
            properties: {preemption.delay: 1h}
            resources: {max: {vcore: 2}}
          - name: quick
            properties: {preemption.delay: 5s}
            resources: {max: {vcore: 9}}
          - {name: parent, parent: true}
"""


async def names(cluster: Cluster, path: str, name: str) -> list[Any]:
    return [item[name] for item in await cluster.get(path)]


async def nodes(cluster: Cluster) -> None:
    """Used: n1 nothing, n2 half, n3 and n4 all; n4 has a zone."""
    for number in (3, 1, 4, 2):
        await cluster.node(f"n{number}", attributes={"a.b/zone": "z"} if number == 4 else {}, vcore=10, memory=number)
    await cluster.submit("app")
    for node_id, vcore in (("n2", 5), ("n3", 10), ("n4", 10)):
        await cluster.ask(f"k-{node_id}", fields={"nodeID": node_id}, vcore=vcore)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("nodeID", "1234"),
        ("-nodeID", "4321"),
        ("utilized.vcore", "1234"),
        ("-utilized.vcore", "3421"),
        ("-capacity.memory", "4321"),
        ("-capacity.nothing", "1234"),
        ("-attributes.a.b/zone", "4123"),
        ("schedulable", "1234"),
        ("", "1234"),
    ],
)
async def test_nodes_in_order(cluster: Cluster, sort: str, expected: str) -> None:
    """Equals by their IDs, also where the greatest comes first."""
    await nodes(cluster)
    path = f"{P}/nodes?sort={sort}"
    wanted = [f"n{number}" for number in expected]
    assert await names(cluster, path, "nodeID") == wanted
    assert await names(cluster, f"{path}&summary=true&fields=nodeID&schedulable=true", "nodeID") == wanted
    everything = {node["nodeID"]: node for node in await cluster.get(f"{P}/nodes")}
    assert await cluster.get(path) == [everything[node_id] for node_id in wanted], "the items stay what they are"
    for limit in (1, 2, 3):
        found = await pages(cluster, f"{path}&limit={limit}")
        assert [node["nodeID"] for page in found for node in page] == wanted


async def test_page_goes_on_among_equals_when_its_last_item_is_gone(cluster: Cluster) -> None:
    for name in "abcde":
        await cluster.submit(name, user="ann" if name in "bcd" else "bob")
    path = f"{P}/applications/active?sort=user&limit=2"
    answer = await cluster.http.get(path)
    assert [item["applicationID"] for item in answer.json()] == ["b", "c"]
    assert answer.headers["x-total-count"] == "5"
    after = answer.headers["link"].partition(">")[0][1:]
    await cluster.remove("c")
    await cluster.submit("bb")
    assert [item["applicationID"] for page in await pages(cluster, after) for item in page] == ["d", "a", "e"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=-submissionTime", ["late", "big", "small"]),
        ("sort=-usedResource.vcore", ["big", "small", "late"]),
        ("sort=applicationState&user=ann", ["late", "small"]),
        ("sort=-queueName", ["big", "small", "late"]),
        ("sort=-queueName&limit=2&summary=true", ["big", "small"]),
    ],
)
async def test_applications_in_order(cluster: Cluster, query: str, expected: list[str]) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("small")
    await cluster.wait(1)
    await cluster.submit("big", user="bob")
    await cluster.wait(1)
    await cluster.submit("late", queue="root.a.a1")
    await cluster.ask("k1", "small", vcore=1)
    await cluster.ask("k2", "big", vcore=2)
    assert await names(cluster, f"{P}/applications/active?{query}", "applicationID") == expected
    found = await names(cluster, f"{P}/queue/root.default/applications?{query}", "applicationID")
    assert found == [name for name in expected if name != "late"]


async def test_ended_applications_in_order(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=1)
    for application_id in ("b", "c", "a"):
        await cluster.run_and_finish(application_id)
    path = f"{P}/applications/completed?sort=-applicationID"
    assert await names(cluster, path, "applicationID") == ["c", "b", "a"]
    assert [len(page) for page in await pages(cluster, f"{path}&limit=2")] == [2, 1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=-preemptionDelay&queuePrefix=root.", ["slow", "default", "parent", "quick"]),
        ("sort=-maxResource.vcore&queuePrefix=root.", ["quick", "slow", "default", "parent"]),
        ("sort=isLeaf&queuePrefix=root.", ["parent", "default", "quick", "slow"]),
    ],
)
async def test_queues_in_order(fresh: Cluster, query: str, expected: list[str]) -> None:
    """Durations by their length: 1h is more than 30s."""
    await fresh.register(QUEUES_CONFIG)
    found = await names(fresh, f"{P}/queues/flat?{query}", "queuename")
    assert found == [f"root.{name}" for name in expected]


async def test_users_by_what_they_use(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    for number, user in enumerate(("ann", "bob", "cid"), 1):
        await cluster.submit(user, user=user)
        await cluster.ask(f"k-{user}", user, vcore=number % 3 + 1)
    assert await names(cluster, f"{P}/usage/users?sort=-userName&limit=2", "userName") == ["cid", "bob"]
    assert await names(cluster, f"{P}/usage/users?sort=queues.resourceUsage.vcore", "userName") == ["cid", "ann", "bob"]


@pytest.mark.parametrize("sort", ["-user", "user"])
async def test_long_list_is_sorted_as_a_short_one_is(sort: str) -> None:
    """Page by page there is what sorting all at once gives: it is put in order in many runs."""
    order = APPLICATIONS.find_order({"sort": sort})
    assert order is not None
    ranked = [(f"user-{number * 7 % 11}", f"app-{number:05}", number) for number in range(3_000)]
    expected = sorted(ranked, key=lambda each: each[0], reverse=sort.startswith("-"))
    found: list[int] = []
    after = ""
    while True:
        page, after = await page_in_order(ranked, Wishes({}, 700, after, frozenset(), summary=False), order)
        found += page
        if not after:
            break
    assert found == [number for _, _, number in expected]


@pytest.mark.parametrize("sort", ["nope", "-", "-nope", "--nodeID", "capacity", "capacity.", "allocations", "nodeid"])
async def test_unknown_field_names_those_there_are(cluster: Cluster, sort: str) -> None:
    message = await cluster.refused(f"{P}/nodes?sort={sort}", 400)
    assert "nodeID" in message
    assert "utilized.NAME" in message
    assert "allocations" not in message.partition("wanted")[2]


@pytest.mark.parametrize(
    "path",
    ["nodes", "applications/active", "applications/completed", "queues/flat", "usage/users", "usage/groups"],
)
async def test_unknown_field_on_every_list(cluster: Cluster, path: str) -> None:
    await cluster.refused(f"{P}/{path}?sort=nope", 400)


@pytest.mark.parametrize(
    "cursor",
    [
        "n1",
        "~",
        "[" * 5_000,
        json.dumps(["nodeID", "n1", "n1"]),
        json.dumps(["-nodeID", 1, "n1"]),
        json.dumps(["-nodeID", "n1", None]),
        json.dumps(["-nodeID", "n1"]),
        json.dumps({"a": 1}),
    ],
)
async def test_cursor_of_another_order(cluster: Cluster, cursor: str) -> None:
    message = await cluster.refused(f"{P}/nodes?sort=-nodeID&cursor={quote(cursor)}", 400)
    assert "sort=-nodeID" in message


async def test_lists_without_orders_ignore_the_parameter(cluster: Cluster) -> None:
    assert len(await cluster.get("/ws/v1/partitions?sort=nope")) == 1


def test_what_can_be_sorted_by() -> None:
    """Single values, those in maps and those in objects; no lists."""
    assert "schedulable" in NODES.parameter.description
    assert "template.maxResource.NAME" in QUEUES.parameter.description
    assert "queues.resourceUsage.NAME" in USERS.parameter.description
    for name in ("stateLog", "requests", "resourceHistory", "groups"):
        assert name not in APPLICATIONS.parameter.description.split(": ")[1].split(", ")


def test_absent_values_and_fractions_of_a_second() -> None:
    order = APPLICATIONS.find_order({"sort": "backoffDeadline"})
    assert order is not None
    told = ["2026-01-01T00:00:00.5Z", "", "2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z"]
    found = sorted(told, key=lambda text: order.value_of({"backoffDeadline": text} if text else {}))
    assert found == ["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"]
