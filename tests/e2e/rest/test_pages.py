"""What clients may ask of lists beyond upstream: pages, fields, filters, summaries (rest.md 12.3)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kornel.si.v1 import si_pb2 as si
from tests.e2e.rest.shim import Cluster, P


async def pages(cluster: Cluster, path: str) -> list[list[dict[str, Any]]]:
    """Every page from *path* on, each found by the link of the one before."""
    found = []
    while path:
        answer = await cluster.http.get(path)
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        link = re.fullmatch('<(.*)>; rel="next"', answer.headers.get("link", ""))
        path = link[1] if link else ""
    return found


async def test_nodes_by_pages(cluster: Cluster) -> None:
    for node_id in ("n3", "n1", "n2", "n/4", "n\u00e45"):
        await cluster.node(node_id, vcore=1)
    everything = await cluster.get(f"{P}/nodes")
    found = await pages(cluster, f"{P}/nodes?limit=2")
    assert [len(page) for page in found] == [2, 2, 1]
    assert [item for page in found for item in page] == everything
    answer = await cluster.http.get(f"{P}/nodes?limit=2")
    assert answer.headers["x-total-count"] == "5"
    assert answer.headers["access-control-expose-headers"] == "Link, X-Total-Count"


async def test_page_goes_on_where_it_ended_when_its_last_item_is_gone(cluster: Cluster) -> None:
    await cluster.submit("a", "b", "c")
    answer = await cluster.http.get(f"{P}/applications/active?limit=2")
    link = re.fullmatch('<(.*)>; rel="next"', answer.headers["link"])
    assert link
    await cluster.remove("b")
    assert [found["applicationID"] for found in await cluster.get(link[1])] == ["c"]


async def test_completed_applications_by_pages(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=1)
    for key in ("k1", "k2"):
        await cluster.run_and_finish("same", key)
    await cluster.run_and_finish("a")
    everything = await cluster.get(f"{P}/applications/completed")
    found = await pages(cluster, f"{P}/applications/completed?limit=1")
    assert [len(page) for page in found] == [1, 1, 1]
    assert sorted(map(str, [item for page in found for item in page])) == sorted(map(str, everything))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("user=bob", ["b1"]),
        ("queuePrefix=root.A", ["a1"]),
        ("since={now}", ["late"]),
        ("user=ann&queuePrefix=root.default", ["d1", "late"]),
        ("user=nobody", []),
    ],
)
async def test_applications_by_filters(cluster: Cluster, query: str, expected: list[str]) -> None:
    await cluster.submit("a1", queue="root.a.a1")
    await cluster.submit("b1", user="bob")
    await cluster.submit("d1")
    await cluster.wait(5)
    await cluster.submit("late")
    query = query.format(now=cluster.core.clock.now_ns())
    found = await cluster.get(f"{P}/applications/active?{query}")
    assert [application["applicationID"] for application in found] == expected


async def test_summaries_and_fields(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    await cluster.ask("k", vcore=1)
    await cluster.ask("w", vcore=100)
    (full,) = await cluster.get(f"{P}/applications/active")
    (short,) = await cluster.get(f"{P}/applications/active?summary=true")
    assert full.keys() - short.keys() == {"allocations", "requests"}
    (node,) = await cluster.get(f"{P}/nodes?summary")
    assert "allocations" not in node
    assert await cluster.get(f"{P}/nodes?fields=nodeID,capacity,nope") == [{"nodeID": "n1", "capacity": {"vcore": 10}}]


async def test_nodes_that_take_no_more(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    assert len(await cluster.get(f"{P}/nodes?schedulable=true")) == 1
    assert await cluster.get(f"{P}/nodes?schedulable=false") == []


async def test_queues_as_a_list(cluster: Cluster) -> None:
    """The same queues as in the tree, none within another, each with its partition."""
    found = await cluster.get(f"{P}/queues/flat")
    assert [queue["queuename"] for queue in found] == ["root", "root.a", "root.a.a1", "root.default"]
    one = await cluster.get(f"{P}/queue/root.a.a1")
    assert found[2] == {**one, "partition": "default"}
    below = await cluster.get(f"{P}/queues/flat?queuePrefix=ROOT.A&fields=queuename")
    assert below == [{"queuename": "root.a"}, {"queuename": "root.a.a1"}]
    await cluster.refused("/ws/v1/partition/nope/queues/flat", 404, "Partition not found")


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "schedulable=perhaps", "summary=perhaps"])
async def test_bad_parameters(cluster: Cluster, query: str) -> None:
    await cluster.refused(f"{P}/nodes?{query}", 400)


async def test_a_list_that_has_not_changed_is_not_sent_again(cluster: Cluster) -> None:
    """Of nodes in short; whatever of a node is shown changes the tag."""
    path = f"{P}/nodes?summary=true&fields=nodeID,schedulable,allocated"
    await cluster.node("n1", vcore=4_000)
    await cluster.node("n2", vcore=4_000)
    first = await cluster.http.get(path)
    assert first.headers["x-total-count"] == "2"
    tag = {"If-None-Match": first.headers["etag"]}
    again = await cluster.http.get(path, headers=tag)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    await cluster.submit("app", queue="root.default")
    await cluster.ask("k", "app", vcore=1_000)
    changed = await cluster.http.get(path, headers=tag)
    assert changed.status_code == 200
    assert sorted(node["allocated"].get("vcore", 0) for node in changed.json() if "allocated" in node) == [1_000]
    await cluster.node_action("n1", si.NodeInfo.DRAIN_NODE)
    closed = await cluster.http.get(path, headers={"If-None-Match": changed.headers["etag"]})
    assert [node["schedulable"] for node in closed.json()] == [False, True]
    only = await cluster.http.get(f"{path}&schedulable=true")
    assert [node["nodeID"] for node in only.json()] == ["n2"]
