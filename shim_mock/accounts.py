"""The simulated cluster's own books: who uses what, per queue and over time.

They follow the order of the core's allocation stream, so between two messages they say what the core's books
said when it wrote the second one. That makes them an independent check of the core: of its sums at the end of
a run, and of every preemption at the moment it was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shim_mock.queues import QueueLimits, ancestors

# Seconds between two points of the picture: finer than a reader can see.
RESOLUTION_S: Final = 0.1


@dataclass(slots=True)
class QueueAccount:
    """One queue and all below it.

    Amounts in base units; *preempting* is the part of *used* that victims hold.
    """

    limits: QueueLimits
    used: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    preempting: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    hopeless: int = 0  # of those waiting: larger than every node
    unsubmitted: int = 0
    preempted: int = 0
    noticed: int = 0  # tasks that were announced to go
    recreated: int = 0
    first_ask_s: float | None = None
    latencies_s: list[float] = field(default_factory=list)

    def net(self, resource_type: str) -> int:
        """What is used once every victim is gone."""
        return self.used.get(resource_type, 0) - self.preempting.get(resource_type, 0)

    @property
    def served(self) -> bool:
        """Whether the queue has its guarantee, or all that it wants and any node could hold.

        One guaranteed type at its guarantee is enough: an ask may only preempt while its queue is below the
        guarantee in every guaranteed type that it asks for.
        """
        if self.first_ask_s is None:
            return False
        if self.waiting == self.hopeless and not self.unsubmitted:
            return True
        return any(self.net(kind) >= amount for kind, amount in self.limits.guaranteed.items())


@dataclass(frozen=True, slots=True)
class BelowGuarantee:
    """A preemption decision that left *queue* with less of a type than it is guaranteed."""

    queue: str
    resource_type: str
    left: int
    guaranteed: int
    key: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What each leaf queue used at one moment, in real seconds since the start."""

    at_s: float
    used: Mapping[str, Mapping[str, int]]


class Accounts:
    """The books of all queues that applications are submitted to, and of the queues above them."""

    def __init__(self, limits: Mapping[str, QueueLimits], leaves: Iterable[str]) -> None:
        self.leaves: list[str] = list(dict.fromkeys(leaves))
        paths = [*limits, *(path for leaf in self.leaves for path in ancestors(leaf))]
        self.queues: dict[str, QueueAccount] = {
            path: QueueAccount(limits.get(path, QueueLimits())) for path in dict.fromkeys(paths)
        }
        self._paths = {leaf: [self.queues[path] for path in ancestors(leaf)] for leaf in self.leaves}
        self._names = {leaf: ancestors(leaf) for leaf in self.leaves}
        self.samples: list[Sample] = [Sample(0.0, {leaf: {} for leaf in self.leaves})]
        self._changed_s = 0.0
        self.preemptions: list[tuple[float, str]] = []
        self.below_guarantee: list[BelowGuarantee] = []

    def limit(self, limits: Mapping[str, QueueLimits]) -> None:
        """Another configuration is in force: hold what follows to its *limits*."""
        for path, account in self.queues.items():
            account.limits = limits.get(path, QueueLimits())

    def planned(self, leaf: str, count: int) -> None:
        """*count* tasks will be submitted to *leaf*; negative: they never will."""
        for account in self._paths[leaf]:
            account.unsubmitted += count

    def asked(self, leaf: str, amounts: Mapping[str, int], *, hopeless: bool, at_s: float) -> None:
        """A task was asked for."""
        for account in self._paths[leaf]:
            if account.first_ask_s is None:
                account.first_ask_s = at_s
            account.waiting += 1
            account.hopeless += hopeless
            _add(account.pending, amounts, 1)

    def no_longer_waiting(self, leaf: str, amounts: Mapping[str, int], *, hopeless: bool) -> None:
        """An ask was placed, refused or dropped."""
        for account in self._paths[leaf]:
            account.waiting -= 1
            account.hopeless -= hopeless
            _add(account.pending, amounts, -1)

    def placed(self, leaf: str, amounts: Mapping[str, int], *, waited_s: float, at_s: float) -> None:
        """A task got its room."""
        self._before_change(at_s)
        for account in self._paths[leaf]:
            _add(account.used, amounts, 1)
        self.queues[leaf].latencies_s.append(waited_s)
        self._after_change(at_s)

    def chosen(self, leaf: str, amounts: Mapping[str, int], *, key: str, at_s: float) -> None:
        """The core decided to preempt a task: from now on it holds room, and no longer counts for a
        guarantee.
        """
        self._mark(leaf, amounts)
        for name, account in zip(self._names[leaf], self._paths[leaf], strict=True):
            account.preempted += 1
            for kind, amount in account.limits.guaranteed.items():
                if amounts.get(kind, 0) > 0 and account.net(kind) < amount:
                    self.below_guarantee.append(BelowGuarantee(name, kind, account.net(kind), amount, key))
        self.preemptions.append((at_s, leaf))

    def left(self, leaf: str, amounts: Mapping[str, int], *, victim: bool, at_s: float) -> None:
        """A task no longer holds room."""
        self._before_change(at_s)
        for account in self._paths[leaf]:
            _add(account.used, amounts, -1)
            if victim:
                _add(account.preempting, amounts, -1)
        self._after_change(at_s)

    def finish(self, at_s: float) -> None:
        """Note the last moment."""
        self._sample(self._changed_s)
        self._sample(at_s)

    def _mark(self, leaf: str, amounts: Mapping[str, int]) -> None:
        for account in self._paths[leaf]:
            _add(account.preempting, amounts, 1)

    def _before_change(self, at_s: float) -> None:
        """After a pause, note the state that lasted through it: a line between two points must not invent a slope."""
        if at_s - self._changed_s >= RESOLUTION_S:
            self._sample(self._changed_s)
            self._sample(at_s)

    def _after_change(self, at_s: float) -> None:
        self._changed_s = at_s
        if at_s - self.samples[-1].at_s >= RESOLUTION_S:
            self._sample(at_s)

    def _sample(self, at_s: float) -> None:
        self.samples.append(Sample(at_s, {leaf: dict(self.queues[leaf].used) for leaf in self.leaves}))


def _add(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for kind, amount in amounts.items():
        total[kind] = total.get(kind, 0) + sign * amount
