"""The judge itself: it sees each kind of violation, and none where there is none. Needs no API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.api import HOSTNAME, Object, keep_apart, make_node, make_pod, pin_to, spread
from tests.kubernetes.judge import LAG_S, Judge, find_waiting

TAINT = {"key": "only", "value": "gpu", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
NODES = {
    name: make_node(name, cpu="2", labels={ZONE: zone}, **spec)
    for name, zone, spec in (("a", "east", {}), ("b", "west", {}), ("tainted", "west", {"taints": [TAINT]}))
}


def near(application: str) -> Object:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": application}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def pod(name: str, application: str = "app", node: str | None = None, **options: Any) -> Object:
    made = make_pod(name, application, **options)
    made["metadata"]["uid"] = name
    made["status"] = {"phase": "Running"} if node else {"phase": "Pending"}
    made["spec"] |= {"nodeName": node} if node else {}
    return made


def judge(*pods: Object, pause_s: float = 0.0) -> list[str]:
    """Has *pods* bound one after the other; one that was bound before ends."""
    made = Judge()
    seen: set[str] = set()
    for number, each in enumerate(pods):
        name = each["metadata"]["name"]
        made.see(each, NODES, number * pause_s, gone=name in seen)
        seen.add(name)
    return made.find_violations()


GUARD = pod("guard", node="a", affinity=keep_apart("web"))
WEB = pod("web", "web", "a")


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ((GUARD, WEB), "web on a and guard on a share"),
        ((WEB, GUARD), "guard on a and web on a share"),
        ((pod("one", node="a", ports=[80]), pod("two", node="a", ports=[80])), "port 80"),
        ((pod("one", node="a", topologySpreadConstraints=spread("app")), pod("two", node="b")), ""),
        ((WEB, pod("near", node="b", affinity=near("web"))), "near on b: no app=web"),
        ((pod("picky", node="a", nodeSelector={"disk": "ssd"}),), "nodeSelector"),
        ((pod("daemon", node="a", affinity=pin_to("b")),), "nodeAffinity"),
        ((pod("plain", node="tainted"),), "tolerate only"),
        ((pod("tolerant", node="tainted", tolerations=[TAINT | {"operator": "Equal"}]),), ""),
        ((GUARD, GUARD, WEB), ""),
        ((WEB, pod("near", node="a", affinity=near("web"))), ""),
    ],
)
def test_each_binding_is_judged_with_what_runs_then(pods: tuple[Object, ...], words: str) -> None:
    found = judge(*pods, pause_s=2 * LAG_S)
    assert bool(found) == bool(words)
    assert words in " ".join(found)


def test_pods_are_spread_over_nodes() -> None:
    rule = {"topologySpreadConstraints": spread("app")}
    nodes = {name: node for name, node in NODES.items() if name != "tainted"}
    made = Judge()
    for number, where in enumerate("aab"):
        made.see(pod(f"p{number}", node=where, **rule), nodes, number * 2 * LAG_S)
    assert made.find_violations() == [f"p1 on a: 2 in its {HOSTNAME}, 0 in another"]


def test_what_is_bound_side_by_side_may_have_been_decided_in_another_order() -> None:
    assert judge(pod("near", node="a", affinity=near("web")), WEB) == []
    assert judge(WEB, GUARD) != []


def test_who_waits_beside_room_is_found() -> None:
    nodes = list(NODES.values())
    full = [pod("one", node="a", cpu="2"), pod("two", node="b", cpu="1500m")]
    assert find_waiting([*full, pod("small", cpu="500m")], nodes) == ["small waits although it may run on b"]
    assert find_waiting([*full, pod("large", cpu="600m")], nodes) == []
    assert find_waiting([*full, pod("apart", cpu="100m", affinity=keep_apart("app"))], nodes) == []
    closed = [NODES["a"], make_node("b", unschedulable=True)]
    assert find_waiting([*full, pod("small", cpu="500m")], closed) == []
    assert find_waiting([*full, pod("claims", cpu="500m", resourceClaims=[{"name": "gpu"}])], nodes) == []
