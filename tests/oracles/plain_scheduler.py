"""A scheduler as plain as its rules: everything is sorted again for every single allocation (scheduling.md 5, 7).

It knows nothing of the engine. Names and amounts are plain dicts; there are no groups, heaps, waiting rooms or
bounds. Slow, and easy to hold against the text: that is its use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cmp_to_key

from core.domain.priorities import PRIORITY_MIN, exposed
from core.domain.resources import Resources, compare_shares, shares

Amounts = Mapping[str, int]


@dataclass
class PlainNode:
    name: str
    total: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)

    def free(self, name: str) -> int:
        return self.total.get(name, 0) - self.used.get(name, 0)


@dataclass
class PlainAsk:
    key: str
    amounts: dict[str, int]
    priority: int
    created: int
    arrival: int
    node: str = ""


@dataclass
class PlainApplication:
    name: str
    submitted: int
    asks: list[PlainAsk] = field(default_factory=list)

    def pending(self) -> list[PlainAsk]:
        return [ask for ask in self.asks if not ask.node]

    def real(self) -> dict[str, int]:
        return total(ask.amounts for ask in self.asks if ask.node)

    def priority(self) -> int:
        return max((ask.priority for ask in self.pending()), default=PRIORITY_MIN)


@dataclass
class PlainQueue:
    name: str
    children: list[PlainQueue] = field(default_factory=list)
    applications: list[PlainApplication] = field(default_factory=list)
    guaranteed: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    fair: bool = False
    by_priority: bool = True
    offset: int = 0
    fenced: bool = False

    def used(self) -> dict[str, int]:
        return total([*(c.used() for c in self.children), *(a.real() for a in self.applications)])

    def pending(self) -> dict[str, int]:
        asked = [ask.amounts for a in self.applications for ask in a.pending()]
        return total([*(c.pending() for c in self.children), *asked])

    def priority(self) -> int:
        below = [*(c.priority() for c in self.children), *(a.priority() for a in self.applications)]
        return exposed(max(below, default=PRIORITY_MIN), self.offset, fenced=self.fenced)


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            result[name] = result.get(name, 0) + amount
    return result


class PlainScheduler:
    """A cluster and the rules. ``root.most`` is derived from the nodes."""

    def __init__(self, root: PlainQueue, nodes: list[PlainNode], *, binpacking: bool) -> None:
        self.root = root
        self.nodes = nodes
        self._binpacking = binpacking

    def place_all(self) -> list[tuple[str, str]]:
        """(ask, node) of every placement now possible, one full walk of the tree each."""
        placed: list[tuple[str, str]] = []
        while True:
            self.root.most = total(node.total for node in self.nodes)
            found = self._walk(self.root, (), {})
            if found is None:
                return placed
            placed.append(found)

    def _walk(self, queue: PlainQueue, above: tuple[PlainQueue, ...], fair_most: Amounts) -> tuple[str, str] | None:
        path = (*above, queue)
        fair_most = {**fair_most, **queue.most}
        waiting = [child for child in queue.children if any(child.pending().values())]
        for child in sorted(waiting, key=lambda c: _queue_key(c, queue, fair_most)):
            found = self._walk(child, path, fair_most)
            if found is not None:
                return found
        for application in _in_order(queue):
            for ask in sorted(application.pending(), key=lambda a: (-a.priority, a.created, a.arrival)):
                found = self._try(ask, path)
                if found is not None:
                    return found
        return None

    def _try(self, ask: PlainAsk, path: tuple[PlainQueue, ...]) -> tuple[str, str] | None:
        for queue in path:
            used = queue.used()
            for name, amount in ask.amounts.items():
                if amount and name in queue.most and used.get(name, 0) + amount > queue.most[name]:
                    return None
        for node in sorted(self.nodes, key=lambda n: (self._score(n), n.name)):
            if all(amount <= max(0, node.free(name)) for name, amount in ask.amounts.items()):
                ask.node = node.name
                node.used = total([node.used, ask.amounts])
                return (ask.key, node.name)
        return None

    def _score(self, node: PlainNode) -> float:
        weights = {"vcore": 1.0, "memory": 1.0}
        counted = {name: weight for name, weight in weights.items() if node.total.get(name, 0)}
        if not counted:
            usage = 0.0
        else:
            shares_ = sum(weight * (1 - node.free(name) / node.total[name]) for name, weight in counted.items())
            usage = shares_ / sum(counted.values())
        return 1 - usage if self._binpacking else usage

    def release(self, key: str, node_name: str) -> None:
        """An allocation ended."""
        for application in _applications(self.root):
            for ask in application.asks:
                if ask.key == key:
                    application.asks.remove(ask)
                    node = next(node for node in self.nodes if node.name == node_name)
                    node.used = {name: amount - ask.amounts.get(name, 0) for name, amount in node.used.items()}
                    return


def _applications(queue: PlainQueue) -> list[PlainApplication]:
    return [*queue.applications, *(a for child in queue.children for a in _applications(child))]


def _fair_share(queue: PlainQueue, fair_most: Amounts) -> float:
    share = 0.0
    for name, amount in queue.used().items():
        if amount < 0:
            continue
        whole = queue.guaranteed.get(name) or fair_most.get(name)
        if whole is None:
            continue
        share = max(share, (1.0 if amount > 0 else 0.0) if whole <= 0 else amount / whole)
    return share


def _queue_key(queue: PlainQueue, parent: PlainQueue, fair_most: Amounts) -> tuple[int, float, int, str]:
    """Priority, fair share, larger pending, name; pending amounts that no order compares go by their sum."""
    priority = -queue.priority() if parent.by_priority else 0
    share = _fair_share(queue, {**fair_most, **queue.most})
    return (priority, share, -sum(queue.pending().values()), queue.name)


def _in_order(queue: PlainQueue) -> list[PlainApplication]:
    def compare(left: PlainApplication, right: PlainApplication) -> int:
        if queue.by_priority and left.priority() != right.priority():
            return -1 if left.priority() > right.priority() else 1
        if queue.fair:
            whole = Resources(queue.guaranteed)
            ratio = compare_shares(shares(Resources(left.real()), whole), shares(Resources(right.real()), whole))
            if ratio:
                return ratio
        mine, other = (left.submitted, left.name), (right.submitted, right.name)
        return -1 if mine < other else 1

    waiting = [application for application in queue.applications if application.pending()]
    return sorted(waiting, key=cmp_to_key(compare))
