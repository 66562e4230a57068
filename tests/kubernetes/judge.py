"""Follows the pods of an API server from outside, and judges each binding by the words of Kubernetes' documentation.

The judge knows nothing of who schedules. :mod:`tests.kubernetes_rules` has the rules between pods; those between a pod
and its node are here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

import httpx

from tests.kubernetes.api import (
    Api,
    Object,
    application_of,
    is_live,
    is_placeholder,
    make_node,
    name_of,
    node_of,
    uid_of,
)
from tests.kubernetes_rules import Placed, Pod, Spread, Term, depends_on_placements, find_faults, find_idle

SCHEDULER: Final = "yunikorn"
LAG_S: Final = 10.0
"""A scheduler binds side by side what it has decided one after the other: so much later may come what was first."""
SILENCE_S: Final = 1.0
"""So long a watch waits before it looks whether it is to end."""
SUFFIXES: Final = {"m": Decimal("0.001"), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30)}


class Seen(NamedTuple):
    """A pod was bound to *node*, or had ended (``None``), at that moment of the clock."""

    key: str
    node: str | None
    moment_s: float


class Judge:
    """The pods of an API server, in the order in which it told of their bindings and ends. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._history: list[Seen] = []
        self._pods: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {}
        self._running: dict[str, str] = {}

    def see(self, pod: Object, nodes: Mapping[str, Object], moment_s: float, *, gone: bool = False) -> None:
        """Notes a pod as it is now, or as it was when it went, and the *nodes* that there are."""
        key, node = uid_of(pod), node_of(pod)
        with self._lock:
            self._nodes |= nodes
            if gone or not is_live(pod):
                self._end(key, moment_s)
            elif node is not None and key not in self._running:
                self._pods[key] = pod
                self._running[key] = node
                self._history.append(Seen(key, node, moment_s))

    def keep_only(self, keys: set[str], moment_s: float) -> None:
        """Notes that pods with other *keys* went while nobody watched."""
        with self._lock:
            for key in self._running.keys() - keys:
                self._end(key, moment_s)

    def _end(self, key: str, moment_s: float) -> None:
        if self._running.pop(key, None) is not None:
            self._history.append(Seen(key, None, moment_s))

    def knows(self, pods: Iterable[Object]) -> bool:
        """Tells whether the judge has seen which of *pods* are bound, and no others."""
        with self._lock:
            return self._running == find_bound(pods)

    def find_violations(self) -> list[str]:
        """Returns what was wrong with each binding of the scheduler at its moment."""
        with self._lock:
            history, objects, nodes = list(self._history), dict(self._pods), dict(self._nodes)
        pods = {key: read_pod(pod) for key, pod in objects.items()}
        topology = {name: labels_of(node) for name, node in nodes.items()}
        dependent = _find_dependent(pods)
        found: list[str] = []
        running: dict[str, str] = {}
        for number, (key, node, _) in enumerate(history):
            if node is None:
                running.pop(key, None)
                continue
            ours = objects[key]["spec"]["schedulerName"] == SCHEDULER
            if ours and (why := refuse_pod(objects[key], nodes[node])):
                found.append(f"{name_of(objects[key])} on {node}: {why}")
            if key in dependent:
                running[key] = node
                under_way = {each: where for each, where in _bound_after(history, number) if each in dependent}
                if ours:
                    found += find_faults(Placed(key, node), running, pods, topology, under_way)
        return [_name_pods(text, objects) for text in found]


def find_waiting(objects: list[Object], nodes: list[Object]) -> list[str]:
    """Returns which of the pods *objects* wait although they may run on one of *nodes* that has room for them.

    Members of a gang that waits as a whole are left out, and so are pods with claims of devices.
    """
    by_key = {uid_of(pod): pod for pod in objects}
    pods = {key: read_pod(pod) for key, pod in by_key.items()}
    topology = {name_of(node): labels_of(node) for node in nodes}
    running = find_bound(objects)
    room = {name_of(node): read_amounts(node["status"]["allocatable"]) for node in nodes}
    for key, where in running.items():
        for what, amount in read_requests(by_key[key]).items():
            room[where][what] = room[where].get(what, Decimal(0)) - amount
    gangs = {application_of(pod) for pod in objects if is_placeholder(pod)}
    found: list[str] = []
    for key, pod in by_key.items():
        spec = pod["spec"]
        if spec["schedulerName"] != SCHEDULER or node_of(pod) is not None or not is_live(pod):
            continue
        if application_of(pod) in gangs or spec.get("resourceClaims"):
            continue
        wanted = read_requests(pod)
        fitting = [
            name_of(node)
            for node in nodes
            if all(room[name_of(node)].get(what, 0) >= amount for what, amount in wanted.items())
            and not node["spec"].get("unschedulable")
            and not refuse_pod(pod, node)
        ]
        found += find_idle([key], fitting, running, pods, topology)
    return [_name_pods(text, by_key) for text in found]


class Watcher:
    """Shows a judge the pods of an API server until it is stopped, also behind restarts of the server."""

    def __init__(self, judge: Judge, address: str, token: str) -> None:
        self._judge = judge
        self._api = Api(address, token)
        self._nodes: dict[str, Object] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._follow, name="judge")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._api.close()

    def _follow(self) -> None:
        version: str | None = None
        while not self._stopping.is_set():
            try:
                version = self._list() if version is None else self._watch(version)
            except httpx.HTTPError:
                version = None
                self._stopping.wait(0.1)

    def _list(self) -> str:
        """Shows all pods, and returns the version to go on from."""
        pods, version = self._api.list_pods()
        self._judge.keep_only({uid_of(pod) for pod in pods}, time.monotonic())
        for pod in pods:
            self._show(pod)
        return version

    def _watch(self, version: str) -> str | None:
        """Shows what happens for a while, and returns the version to go on from; ``None``: the server knows no more."""
        try:
            with self._api.watch_pods(version, SILENCE_S) as events:
                for what, pod in events:
                    if what == "ERROR":
                        return None
                    version = pod["metadata"]["resourceVersion"]
                    self._show(pod, gone=what == "DELETED")
                    if self._stopping.is_set():
                        break
        except httpx.ReadTimeout:
            pass
        return version

    def _show(self, pod: Object, *, gone: bool = False) -> None:
        where = node_of(pod)
        if where is not None and where not in self._nodes:
            self._nodes |= {name_of(node): node for node in self._api.read_all("Node")}
            # It may be gone by now.
            self._nodes.setdefault(where, make_node(where))
        self._judge.see(pod, {} if where is None else self._nodes, time.monotonic(), gone=gone)


def read_pod(pod: Object) -> Pod:
    """Returns what the rules are about. Raises ValueError for a selector with more than one label."""
    spec = pod["spec"]
    affinity = spec.get("affinity", {})
    ports = [port["hostPort"] for each in spec["containers"] for port in each.get("ports", ()) if port.get("hostPort")]
    spread = (
        Spread(_read_selector(rule), rule["topologyKey"], rule["maxSkew"])
        for rule in spec.get("topologySpreadConstraints", ())
        if rule["whenUnsatisfiable"] == "DoNotSchedule"
    )
    return Pod(
        uid_of(pod),
        tuple(f"{key}={value}" for key, value in sorted(pod["metadata"].get("labels", {}).items())),
        tuple(_read_terms(affinity.get("podAntiAffinity", {}))),
        tuple(spread),
        ports[0] if ports else 0,
        tuple(_read_terms(affinity.get("podAffinity", {}))),
        pod["metadata"]["namespace"],
    )


def _read_terms(rule: Object) -> Iterator[Term]:
    for term in rule.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        yield Term(_read_selector(term), term["topologyKey"], tuple(term.get("namespaces", ())))


def _read_selector(rule: Object) -> str:
    (pair,) = rule["labelSelector"]["matchLabels"].items()
    return "=".join(pair)


def refuse_pod(pod: Object, node: Object) -> str:
    """Returns why *pod* may not run on *node*, whoever else runs there; empty: it may."""
    spec, labels = pod["spec"], labels_of(node)
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return "its nodeSelector does not match"
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not any(
        all(name_of(node) in field["values"] for field in term.get("matchFields", ()))
        and all(labels.get(each["key"]) in each["values"] for each in term.get("matchExpressions", ()))
        for term in required["nodeSelectorTerms"]
    ):
        return "its nodeAffinity does not match"
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] != "PreferNoSchedule" and not any(
            _tolerates(each, taint) for each in spec.get("tolerations", ())
        ):
            return f"it does not tolerate {taint['key']}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """ "A toleration matches a taint if the keys are the same and the effects are the same", and the values, unless the
    operator is Exists; an empty key or effect matches all."""
    return (
        toleration.get("effect") in {None, taint["effect"]}
        and toleration.get("key") in {None, taint["key"]}
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
    )


def find_bound(pods: Iterable[Object]) -> dict[str, str]:
    """Returns the node of each of *pods* that is bound and has not ended, by key."""
    return {uid_of(pod): node for pod in pods if is_live(pod) and (node := node_of(pod)) is not None}


def labels_of(node: Object) -> dict[str, str]:
    labels: dict[str, str] = node["metadata"].get("labels", {})
    return labels


def read_requests(pod: Object) -> dict[str, Decimal]:
    """Returns what *pod* takes from its node: what its containers request, and one place for a pod."""
    found = {"pods": Decimal(1)}
    for container in pod["spec"]["containers"]:
        for what, amount in read_amounts(container["resources"].get("requests", {})).items():
            found[what] = found.get(what, Decimal(0)) + amount
    return found


def read_amounts(written: Mapping[str, str]) -> dict[str, Decimal]:
    """Returns amounts such as ``500m``, ``4`` and ``16Gi`` as numbers."""
    found: dict[str, Decimal] = {}
    for what, text in written.items():
        suffix = next((each for each in SUFFIXES if text.endswith(each)), "")
        found[what] = Decimal(text.removesuffix(suffix)) * SUFFIXES.get(suffix, Decimal(1))
    return found


def _find_dependent(pods: Mapping[str, Pod]) -> set[str]:
    """Returns the keys of the *pods* that a rule between pods is about. Many have the same rules."""
    patterns = {key: replace(pod, key="") for key, pod in pods.items()}
    kinds = set(patterns.values())
    owners = [kind for kind in kinds if kind.anti_affinity or kind.affinity or kind.spread]
    dependent = {kind for kind in kinds if depends_on_placements(kind, owners)}
    return {key for key, kind in patterns.items() if kind in dependent}


def _bound_after(history: list[Seen], number: int) -> Iterator[tuple[str, str]]:
    """Yields who was bound soon after an entry of *history*, with the node."""
    until_s = history[number].moment_s + LAG_S
    for key, node, moment_s in history[number + 1 :]:
        if moment_s > until_s:
            return
        if node is not None:
            yield key, node


def _name_pods(text: str, objects: Mapping[str, Object]) -> str:
    """Returns *text* with the names of pods in the place of their keys."""
    return " ".join(name_of(objects[word]) if word in objects else word for word in text.split(" "))
