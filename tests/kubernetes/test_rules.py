"""A thousand pods with random rules about each other on thirty nodes."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from kornel.core.domain.history.events import EventChange, EventDetail
from tests.kubernetes.api import NAMESPACE, Object, make_node, make_pod, name_of, node_of, uid_of
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_S, wait_for
from tests.kubernetes_rules import Placed, Pod, Spread, Term, find_idle, find_violations, random_rules

pytestmark = pytest.mark.timeout(BUILD_S)

SEED = 20261130
PODS = 1000
NODES = 30
MOST = 110
"""The most pods on a node; all of them need less than its other amounts."""
KEYS = {"hostname": "kubernetes.io/hostname", "zone": "topology.kubernetes.io/zone"}
QUIET_S = 45.0
"""After so long without a placement there are no more to come: a no is doubted after 15 s, and again after 30 s."""


def write_term(term: Term) -> Object:
    written: Object = {"topologyKey": KEYS[term.topology], "labelSelector": {"matchLabels": {"kind": term.label}}}
    return written | ({"namespaces": [NAMESPACE]} if term.namespaces else {})


def write_pod(pod: Pod) -> Object:
    """Returns the object for *pod*."""

    def require(terms: tuple[Term, ...]) -> Object:
        return {"requiredDuringSchedulingIgnoredDuringExecution": list(map(write_term, terms))}

    def write_spread(rule: Spread) -> Object:
        selector = {"matchLabels": {"kind": rule.label}}
        when = {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"maxSkew": rule.max_skew, "topologyKey": KEYS[rule.topology], **when}

    affinity = {}
    if pod.anti_affinity:
        affinity["podAntiAffinity"] = require(pod.anti_affinity)
    if pod.affinity:
        affinity["podAffinity"] = require(pod.affinity)
    spec = {"affinity": affinity, "topologySpreadConstraints": list(map(write_spread, pod.spread))}
    ports = [pod.host_port] if pod.host_port else []
    application = f"random-{int(pod.key[1:]) % 10}"
    return make_pod(pod.key, application, cpu="100m", labels={"kind": pod.labels[0]}, ports=ports, **spec)


def read_placements(cluster: Cluster, names: dict[str, str]) -> list[Placed]:
    """Returns what the core has placed, in order; *names*: the key of each pod by its UID."""
    records: list[Object] = []
    while found := cluster.core.read(f"/events/batch?start={len(records)}&count=5000").get("EventRecords"):
        records += found
    wanted = EventChange.ADD, EventDetail.NODE_ALLOC
    made = [each for each in records if (each.get("eventChangeType"), each.get("eventChangeDetail")) == wanted]
    return [Placed(names[each["referenceID"]], each["objectID"]) for each in made if each["referenceID"] in names]


def wait_until_quiet(cluster: Cluster) -> None:
    """Returns when nothing has been placed for a while."""
    placed, since = -1, 0.0

    def is_quiet() -> object:
        nonlocal placed, since
        now_placed, now = sum(node_of(pod) is not None for pod in cluster.api.pods()), time.monotonic()
        if now_placed != placed:
            placed, since = now_placed, now
        return now > since + QUIET_S or f"{placed} placed"

    wait_for(is_quiet, "nothing more to be placed", 1200)


def test_a_thousand_random_pods_break_no_rule_and_wait_for_nothing(cluster: Cluster) -> None:
    zones = {f"node-{number}": f"zone-{number % 3}" for number in range(NODES)}
    topology = {name: {"hostname": name, "zone": zone} for name, zone in zones.items()}
    cluster.api.create(*(make_node(name, cpu="16", labels={KEYS["zone"]: zone}) for name, zone in zones.items()))
    pods = random_rules(random.Random(SEED), PODS, 60, (NAMESPACE,))
    cluster.start()
    cluster.api.create(*map(write_pod, pods.values()))
    wait_until_quiet(cluster)
    found = cluster.api.pods()
    running = {name_of(pod): node for pod in found if (node := node_of(pod))}
    history = read_placements(cluster, {uid_of(pod): name_of(pod) for pod in found})
    assert {placed.key: placed.node for placed in history} == running
    assert list(find_violations(history, pods, topology)) == []
    load = Counter(running.values())
    waiting, room = sorted(pods.keys() - running.keys()), [name for name in zones if load[name] < MOST]
    print(f"{len(running)} of {PODS} pods run, {len(waiting)} wait")
    assert list(find_idle(waiting, room, running, pods, topology)) == []
    cluster.check_books()
