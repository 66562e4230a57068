"""A scheduler as plain as its rules: everything is sorted again for every single allocation (scheduling.md 5, 7).

It knows nothing of the engine. Names and amounts are plain dicts; there are no groups, heaps, waiting rooms or
bounds. Slow, and easy to hold against the text: that is its use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cmp_to_key

from tests.oracles.shares import compare_shares, shares_of

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
    aside: bool = False
    """Tried in vain, and what it lacked has not come."""
    woken: bool = False
    """What it lacked when it was tried has come since, or not enough of it any more (then it is set aside again)."""
    lacks: PlainQueue | None = None
    """The queue whose max kept it back; else it lacks room."""


@dataclass
class PlainApplication:
    name: str
    submitted: int
    asks: list[PlainAsk] = field(default_factory=list)

    def pending(self) -> list[PlainAsk]:
        return [ask for ask in self.asks if not ask.node]

    def real(self) -> dict[str, int]:
        return total(ask.amounts for ask in self.asks if ask.node)

    def waiting(self) -> list[PlainAsk]:
        return [ask for ask in self.pending() if not ask.aside]

    def rank(self) -> int | None:
        """The highest priority of what is left to try."""
        return max((ask.priority for ask in self.waiting()), default=None)


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

    def _parts(self) -> list[PlainQueue | PlainApplication]:
        return [*self.children, *self.applications]

    def waiting(self) -> list[PlainAsk]:
        return [ask for part in self._parts() for ask in part.waiting()]

    def counted(self) -> dict[str, int]:
        """The guarantee of each type that it declares, else what its children count with together."""
        return {**total(child.counted() for child in self.children), **self.guaranteed}

    def rank(self) -> int | None:
        below = [part.rank() for part in self._parts()]
        known = [priority for priority in below if priority is not None]
        if not known:
            return None
        return self.offset if self.fenced else max(-(2**31), min(2**31 - 1, max(known) + self.offset))


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
        for application in _applications(self.root):
            for ask in application.asks:
                if ask.aside and self._may_try_again(ask):
                    ask.aside, ask.woken = False, True
        while self._left_to_try():
            self.root.most = total(node.total for node in self.nodes)
            found = self._walk(self.root, (), {})
            if found is not None:
                placed.append(found)
        return placed

    def _left_to_try(self) -> bool:
        """Sets aside who was woken and finds too little now, and tells whether anybody is left."""
        for ask in self.root.waiting():
            ask.aside = ask.woken and not self._may_try_again(ask)
        return bool(self.root.waiting())

    def _may_try_again(self, ask: PlainAsk) -> bool:
        if ask.lacks is None:
            return any(all(amount <= node.free(t) for t, amount in ask.amounts.items()) for node in self.nodes)
        return self._admits(ask.lacks, ask)

    @staticmethod
    def _admits(queue: PlainQueue, ask: PlainAsk) -> bool:
        used, most = queue.used(), queue.most
        return all(used.get(t, 0) + amount <= most[t] for t, amount in ask.amounts.items() if amount and t in most)

    def _walk(self, queue: PlainQueue, above: tuple[PlainQueue, ...], fair_most: Amounts) -> tuple[str, str] | None:
        """Tries the one ask whose turn it is; in vain, it changes what its queues are worth, so all is sorted anew."""
        path = (*above, queue)
        fair_most = {**fair_most, **queue.most}
        waiting = [child for child in queue.children if child.waiting()]
        if waiting:
            return self._walk(min(waiting, key=lambda c: _queue_key(c, queue, fair_most)), path, fair_most)
        application = _in_order(queue)[0]
        return self._try(min(application.waiting(), key=lambda a: (-a.priority, a.created, a.arrival)), path)

    def _try(self, ask: PlainAsk, path: tuple[PlainQueue, ...]) -> tuple[str, str] | None:
        ask.aside = True
        ask.lacks = next((queue for queue in reversed(path[1:]) if not self._admits(queue, ask)), None)
        if ask.lacks is not None:
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
    counted = queue.counted()
    owed = any(amount > 0 and counted.get(name) for name, amount in queue.pending().items())
    share = 0.0
    for name, amount in queue.used().items():
        if amount < 0:
            continue
        whole = (owed and counted.get(name)) or fair_most.get(name)
        if whole is None:
            continue
        share = max(share, (1.0 if amount > 0 else 0.0) if whole <= 0 else amount / whole)
    return share if owed else 1 + share


def _rank(priority: int | None) -> int:
    """Whoever has nothing that counts comes last."""
    return -(2**31) - 1 if priority is None else priority


def _queue_key(queue: PlainQueue, parent: PlainQueue, fair_most: Amounts) -> tuple[int, float, int, str]:
    """Priority, fair share, larger pending, name; pending amounts that no order compares go by their sum."""
    priority = -_rank(queue.rank()) if parent.by_priority else 0
    share = _fair_share(queue, {**fair_most, **queue.most})
    return (priority, share, -sum(queue.pending().values()), queue.name)


def _in_order(queue: PlainQueue) -> list[PlainApplication]:
    def compare(left: PlainApplication, right: PlainApplication) -> int:
        ranks = (_rank(left.rank()), _rank(right.rank()))
        if queue.by_priority and ranks[0] != ranks[1]:
            return -1 if ranks[0] > ranks[1] else 1
        if queue.fair:
            whole = queue.guaranteed
            ratio = compare_shares(shares_of(left.real(), whole), shares_of(right.real(), whole))
            if ratio:
                return ratio
        mine, other = (left.submitted, left.name), (right.submitted, right.name)
        return -1 if mine < other else 1

    waiting = [application for application in queue.applications if application.waiting()]
    return sorted(waiting, key=cmp_to_key(compare))
