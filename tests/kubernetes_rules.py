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
from types import MappingProxyType
from typing import NamedTuple


class Term(NamedTuple):
    """A term of ``requiredDuringSchedulingIgnoredDuringExecution``: about pods of that label in *namespaces* (none:
    that of the pod), in one domain of *topology*."""

    label: str
    topology: str
    namespaces: tuple[str, ...] = ()


class Spread(NamedTuple):
    """``whenUnsatisfiable: DoNotSchedule``: pods of that label, by domain of *topology*."""

    label: str
    topology: str
    max_skew: int


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``labels`` are all that selectors look at, each as one text.

    It runs in no domain with a pod that a term of ``anti_affinity`` is about, and only in domains with one for each
    term of ``affinity``.
    """

    key: str
    labels: tuple[str, ...]
    anti_affinity: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()
    host_port: int = 0
    affinity: tuple[Term, ...] = ()
    namespace: str = "team"


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
    if pod.anti_affinity or pod.spread or pod.host_port or pod.affinity:
        return True
    return any(
        any(is_about(other, term, pod) for term in (*other.anti_affinity, *other.affinity))
        or any(_counts(other, rule, pod) for rule in other.spread)
        for other in pods
    )


def is_about(owner: Pod, term: Term, other: Pod) -> bool:
    """Tells whether the *term* of *owner* is about *other*: by its namespace and its label."""
    return term.label in other.labels and other.namespace in (term.namespaces or (owner.namespace,))


def _counts(owner: Pod, rule: Spread, other: Pod) -> bool:
    """Tells whether *other* counts for the spread of *owner*, which is about pods of its namespace."""
    return rule.label in other.labels and other.namespace == owner.namespace


def refuse_node(pod: Pod, node: str, running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology) -> str:
    """Returns why *pod* may not run on *node* beside those *running* (key to node); empty: it may."""
    here = topology[node]
    for key, where in running.items():
        other = pods[key]
        if pod.host_port and where == node and other.host_port == pod.host_port:
            return "node(s) didn't have free ports for the requested pod ports"
        for owner, neighbour in ((pod, other), (other, pod)):
            for term in owner.anti_affinity:
                if is_about(owner, term, neighbour) and topology[where][term.topology] == here[term.topology]:
                    return "node(s) didn't match pod anti-affinity rules"
    for term in pod.affinity:
        found = [where for key, where in running.items() if is_about(pod, term, pods[key])]
        alone = not found and is_about(pod, term, pod)
        if not alone and all(topology[where][term.topology] != here[term.topology] for where in found):
            return "node(s) didn't match pod affinity rules"
    for rule in pod.spread:
        counts = dict.fromkeys((labels[rule.topology] for labels in topology.values()), 0)
        for key, where in running.items():
            if _counts(pod, rule, pods[key]):
                counts[topology[where][rule.topology]] += 1
        itself = _counts(pod, rule, pod)
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
        yield from find_faults(happened, running, pods, topology)


def find_faults(
    placed: Placed,
    running: Mapping[str, str],
    pods: Mapping[str, Pod],
    topology: Topology,
    under_way: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yields what is wrong with *placed*, the last placement of those *running* (key to node).

    What was seen soon afterwards may have been decided before: those *under way* count where they help.
    """
    yield from _check_ports(placed, running, pods)
    yield from _check_anti_affinity(placed, running, pods, topology)
    yield from _check_affinity(placed, {**running, **under_way}, pods, topology)
    yield from _check_spread(placed, running, pods, topology, under_way)


def find_idle(
    waiting: Iterable[str], room: Iterable[str], running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology
) -> Iterator[str]:
    """Yields who of those *waiting* may run on which of the nodes with *room*."""
    nodes = list(room)
    for key in waiting:
        for node in nodes:
            if next(find_faults(Placed(key, node), {**running, key: node}, pods, topology), None) is None:
                yield f"{key} waits although it may run on {node}"
                break


def _check_ports(placed: Placed, running: Mapping[str, str], pods: Mapping[str, Pod]) -> Iterator[str]:
    """ "A hostPort can be bound once on a node": no port is bound twice where the pod has come."""
    bound = Counter(pods[key].host_port for key, node in running.items() if node == placed.node)
    yield from (
        f"port {port} is bound {times} times on {placed.node}" for port, times in bound.items() if port and times > 1
    )


def _check_anti_affinity(
    placed: Placed, running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology
) -> Iterator[str]:
    """No pod shares the domain of a term with a pod that the term is about, whichever of both came first."""
    for other, where in running.items():
        if other == placed.key:
            continue
        for owner, neighbour in ((placed.key, other), (other, placed.key)):
            for term in pods[owner].anti_affinity:
                domain = topology[where][term.topology]
                if is_about(pods[owner], term, pods[neighbour]) and topology[placed.node][term.topology] == domain:
                    yield f"{placed.key} on {placed.node} and {other} on {where} share a {term.topology}"


def _check_affinity(
    placed: Placed, running: Mapping[str, str], pods: Mapping[str, Pod], topology: Topology
) -> Iterator[str]:
    """Each term needs a pod that it is about in the domain. "The first pod of a series" that have affinity to each
    other runs where there is none anywhere."""
    pod = pods[placed.key]
    for term in pod.affinity:
        others = {node for key, node in running.items() if key != placed.key and is_about(pod, term, pods[key])}
        near = {topology[node][term.topology] for node in others}
        if topology[placed.node][term.topology] not in near and (others or not is_about(pod, term, pod)):
            yield f"{placed.key} on {placed.node}: no {term.label} in its {term.topology}"


def _check_spread(
    placed: Placed,
    running: Mapping[str, str],
    pods: Mapping[str, Pod],
    topology: Topology,
    under_way: Mapping[str, str],
) -> Iterator[str]:
    """ "maxSkew is the maximum permitted difference between the number of matching pods in the target topology and the
    global minimum", with the pod in place."""
    pod = pods[placed.key]
    for rule in pod.spread:

        def count_matching(among: Mapping[str, str], rule: Spread = rule) -> Counter[str]:
            found = Counter({labels[rule.topology]: 0 for labels in topology.values()})
            others = (node for key, node in among.items() if key != placed.key and _counts(pod, rule, pods[key]))
            found.update(topology[node][rule.topology] for node in others)
            return found

        target = count_matching(running)[topology[placed.node][rule.topology]] + _counts(pod, rule, pod)
        least = min(count_matching({**running, **under_way}).values())
        if target - least > rule.max_skew:
            yield f"{placed.key} on {placed.node}: {target} in its {rule.topology}, {least} in another"


def random_topology(dice: random.Random, most: int = 12) -> dict[str, dict[str, str]]:
    """Returns up to *most* nodes in a few zones."""
    zones = dice.randint(1, 4)
    count = dice.randint(max(2, zones), most)
    return {f"n{at}": {"hostname": f"n{at}", "zone": f"z{at % zones}"} for at in range(count)}


def random_pods(dice: random.Random, count: int) -> dict[str, Pod]:
    """Returns pods of a few labels: some with each rule, some that rules of others are about, some free of all."""
    labels = ("web", "db", "cache", "batch")
    rules: dict[str, tuple[tuple[Term, ...], tuple[Spread, ...], int]] = {}
    for label in labels[:3]:
        kind = dice.randrange(5)
        topology = dice.choice(("hostname", "hostname", "zone"))
        about = dice.choice(labels[:3])
        rules[label] = (
            (Term(about if kind == 1 else label, "hostname"),) if kind < 2 else (),
            (Spread(label, topology, dice.randint(1, 2)),) if kind in (2, 3) else (),
            8080 if kind == 4 else 0,
        )
    rules["batch"] = ((), (), 0)
    return {
        f"p{number}": Pod(f"p{number}", (label,), *rules[label])
        for number in range(count)
        for label in [dice.choice(labels)]
    }


def random_rules(
    dice: random.Random, count: int, labels: int, spaces: tuple[str, ...] = ("team", "other")
) -> dict[str, Pod]:
    """Returns pods of so many *labels* in the namespaces *spaces*: none to two terms of anti-affinity each, affinity,
    spread, and host ports; the pods of one label have the same rules."""
    names = [f"l{number}" for number in range(labels)]
    levels = ("hostname", "hostname", "zone")
    patterns = []
    for label in names:
        anti = tuple(
            Term(dice.choice((label, dice.choice(names))), dice.choice(levels), dice.choice(((), (), spaces)))
            for _ in range(dice.choice((0, 0, 1, 2)))
        )
        near = (Term(dice.choice((label, dice.choice(names))), dice.choice(levels)),)
        rule = (Spread(label, dice.choice(levels), dice.randint(1, 3)),)
        port = dice.choice((0, 0, 0, 8080, 9090))
        patterns.append(((label,), anti, rule * dice.choice((0, 0, 1)), port, near * dice.choice((0, 0, 0, 1))))
    return {
        f"p{number}": Pod(f"p{number}", *dice.choice(patterns), namespace=dice.choice(spaces))
        for number in range(count)
    }
