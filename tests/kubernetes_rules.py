"""Pods, and the words of the Kubernetes documentation on where they may run, applied to a record of what happened.

:func:`find_violations` is the judge of tests: it looks at every placement in the order in which it was made, with all
pods that ran at that moment, and knows nothing of who decided it. What a scheduler plugin would answer is
:func:`refuse_node`, which is written for one node and one moment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class AntiAffinity(NamedTuple):
    """``requiredDuringSchedulingIgnoredDuringExecution``: not in a domain of *topology* with a pod of that label."""

    label: str
    topology: str


class Spread(NamedTuple):
    """``whenUnsatisfiable: DoNotSchedule``: pods of that label, by domain of *topology*."""

    label: str
    topology: str
    max_skew: int


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``label`` is all that selectors look at."""

    key: str
    label: str
    anti_affinity: AntiAffinity | None = None
    spread: Spread | None = None
    host_port: int = 0


class Placed(NamedTuple):
    """A pod was bound to a node."""

    key: str
    node: str


class Ended(NamedTuple):
    """A pod is gone."""

    key: str


Topology = Mapping[str, Mapping[str, str]]
"""The labels of each node: ``hostname`` and ``zone``."""


def depends_on_placements(pod: Pod, pods: Iterable[Pod]) -> bool:
    """Tells whether the placement of another pod could decide whether *pod* may run on a node."""
    if pod.anti_affinity or pod.spread or pod.host_port:
        return True
    return any(
        pod.label in (other.anti_affinity and other.anti_affinity.label, other.spread and other.spread.label)
        for other in pods
    )


def refuse_node(pod: Pod, node: str, running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology) -> str:
    """Returns why *pod* may not run on *node* beside those *running* (key to node); empty: it may."""
    here = topology[node]
    for key, where in running.items():
        other = pods[key]
        if pod.host_port and where == node and other.host_port == pod.host_port:
            return "node(s) didn't have free ports for the requested pod ports"
        for owner, neighbour in ((pod, other), (other, pod)):
            term = owner.anti_affinity
            if term and term.label == neighbour.label and topology[where][term.topology] == here[term.topology]:
                return "node(s) didn't match pod anti-affinity rules"
    rule = pod.spread
    if rule is None:
        return ""
    counts = dict.fromkeys((labels[rule.topology] for labels in topology.values()), 0)
    for key, where in running.items():
        if pods[key].label == rule.label:
            counts[topology[where][rule.topology]] += 1
    itself = pod.label == rule.label
    if counts[here[rule.topology]] + itself - min(counts.values()) > rule.max_skew:
        return "node(s) didn't match pod topology spread constraints"
    return ""


def find_violations(history: Iterable[Placed | Ended], pods: Mapping[str, Pod], topology: Topology) -> Iterator[str]:
    """Yields what is wrong with each placement of *history*, judged at its moment."""
    running: dict[str, str] = {}
    for happened in history:
        if isinstance(happened, Ended):
            running.pop(happened.key, None)
            continue
        if happened.key in running:
            yield f"{happened.key} runs twice"
        running[happened.key] = happened.node
        yield from _check_ports(happened, running, pods)
        yield from _check_anti_affinity(running, pods, topology)
        yield from _check_spread(happened, running, pods, topology)


def _check_ports(placed: Placed, running: Mapping[str, str], pods: Mapping[str, Pod]) -> Iterator[str]:
    """ "A hostPort can be bound once on a node": no port is bound twice where the pod has come."""
    bound = Counter(pods[key].host_port for key, node in running.items() if node == placed.node)
    yield from (
        f"port {port} is bound {times} times on {placed.node}" for port, times in bound.items() if port and times > 1
    )


def _check_anti_affinity(running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology) -> Iterator[str]:
    """No pod shares the domain of a rule with a pod that the rule is about, whichever of both came first."""
    for key, node in running.items():
        term = pods[key].anti_affinity
        if term is None:
            continue
        domain = {name for name, labels in topology.items() if labels[term.topology] == topology[node][term.topology]}
        for other, where in running.items():
            if other != key and where in domain and pods[other].label == term.label:
                yield f"{key} on {node} and {other} on {where} share a {term.topology}"


def _check_spread(
    placed: Placed, running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology
) -> Iterator[str]:
    """ "maxSkew is the maximum permitted difference between the number of matching pods in the target topology and the
    global minimum", with the pod in place."""
    rule = pods[placed.key].spread
    if rule is None:
        return
    matching = [node for key, node in running.items() if pods[key].label == rule.label]
    domains = {labels[rule.topology] for labels in topology.values()}
    sizes = {domain: sum(topology[node][rule.topology] == domain for node in matching) for domain in domains}
    target = sizes[topology[placed.node][rule.topology]]
    if target - min(sizes.values()) > rule.max_skew:
        yield f"{placed.key} on {placed.node}: {target} in its {rule.topology}, {min(sizes.values())} in another"


def random_topology(dice: random.Random, most: int = 12) -> dict[str, dict[str, str]]:
    """Returns up to *most* nodes in a few zones."""
    zones = dice.randint(1, 4)
    count = dice.randint(max(2, zones), most)
    return {f"n{at}": {"hostname": f"n{at}", "zone": f"z{at % zones}"} for at in range(count)}


def random_pods(dice: random.Random, count: int) -> dict[str, Pod]:
    """Returns pods of a few labels: some with each rule, some that rules of others are about, some free of all."""
    labels = ("web", "db", "cache", "batch")
    rules: dict[str, tuple[AntiAffinity | None, Spread | None, int]] = {}
    for label in labels[:3]:
        kind = dice.randrange(5)
        topology = dice.choice(("hostname", "hostname", "zone"))
        about = dice.choice(labels[:3])
        rules[label] = (
            AntiAffinity(about if kind == 1 else label, "hostname") if kind < 2 else None,
            Spread(label, topology, dice.randint(1, 2)) if kind in (2, 3) else None,
            8080 if kind == 4 else 0,
        )
    rules["batch"] = (None, None, 0)
    return {
        f"p{number}": Pod(f"p{number}", label, *rules[label])
        for number in range(count)
        for label in [dice.choice(labels)]
    }
