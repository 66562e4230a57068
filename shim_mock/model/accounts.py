"""The simulated cluster's own accounts: the usage of each queue over time.

They follow the order of the core's allocation stream, so between two messages they equal the core's accounts at the
time when it wrote the second message. They are therefore an independent check of the core: of its sums at the end of a
run, and of every preemption at the time of its decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kornel.shim_mock.queues import QueueLimits, ancestors

# The seconds between two points of the picture. A reader could not distinguish more points.
RESOLUTION_S: Final = 0.1


@dataclass(slots=True)
class QueueAccount:
    """The account of one queue and all queues below it.

    Amounts are in base units; *preempting* is the part of *used* that victims hold.
    """

    limits: QueueLimits
    used: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    preempting: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    hopeless: int = 0  # of those waiting: larger than every node
    unsubmitted: int = 0
    preempted: int = 0
    noticed: int = 0  # tasks that got a notice
    recreated: int = 0
    first_ask_s: float | None = None
    latencies_s: list[float] = field(default_factory=list)

    def usage_net_of_victims(self, resource_type: str) -> int:
        """Returns the usage of *resource_type* without the usage of victims that still run."""
        return self.used.get(resource_type, 0) - self.preempting.get(resource_type, 0)

    @property
    def is_served(self) -> bool:
        """Tells whether the queue has its guarantee, or has everything it asked for that could fit a node.

        It is enough that one guaranteed type has reached its guarantee, because an ask may preempt only while its queue
        is below the guarantee in every guaranteed type that it asks for.
        """
        if self.first_ask_s is None:
            return False
        if self.waiting == self.hopeless and not self.unsubmitted:
            return True
        return any(self.usage_net_of_victims(kind) >= amount for kind, amount in self.limits.guaranteed.items())


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
    """The usage of each leaf queue at one moment, in real seconds since the start."""

    at_s: float
    used: Mapping[str, Mapping[str, int]]


class Accounts:
    """The accounts of all queues to which applications are submitted, and of the queues above them. Samples and
    latencies, which grow with each task, are kept with *keeps_past* alone."""

    def __init__(self, limits: Mapping[str, QueueLimits], leaves: Iterable[str], *, keeps_past: bool = True) -> None:
        self._keeps_past = keeps_past
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

    def set_limits(self, limits: Mapping[str, QueueLimits]) -> None:
        """Check everything from now on against the *limits* of another configuration."""
        for path, account in self.queues.items():
            account.limits = limits.get(path, QueueLimits())

    def plan_tasks(self, leaf: str, count: int) -> None:
        """Note that *count* tasks will be submitted to *leaf*, or, with a negative count, that they no longer will
        be."""
        for account in self._paths[leaf]:
            account.unsubmitted += count

    def book_ask(self, leaf: str, amounts: Mapping[str, int], *, hopeless: bool, at_s: float) -> None:
        """Add an ask."""
        for account in self._paths[leaf]:
            if account.first_ask_s is None:
                account.first_ask_s = at_s
            account.waiting += 1
            account.hopeless += hopeless
            _add_amounts(account.pending, amounts, 1)

    def remove_ask(self, leaf: str, amounts: Mapping[str, int], *, hopeless: bool) -> None:
        """Remove an ask that was placed, refused or dropped."""
        for account in self._paths[leaf]:
            account.waiting -= 1
            account.hopeless -= hopeless
            _add_amounts(account.pending, amounts, -1)

    def book_task(self, leaf: str, amounts: Mapping[str, int], *, waited_s: float, at_s: float) -> None:
        """Add a task that was placed."""
        self._before_change(at_s)
        for account in self._paths[leaf]:
            _add_amounts(account.used, amounts, 1)
        if self._keeps_past:
            self.queues[leaf].latencies_s.append(waited_s)
        self._after_change(at_s)

    def book_victim(self, leaf: str, amounts: Mapping[str, int], *, key: str, at_s: float) -> None:
        """Mark a task as a victim. From now on it still holds room, but no longer counts towards a guarantee."""
        self._mark_change(leaf, amounts)
        for name, account in zip(self._names[leaf], self._paths[leaf], strict=True):
            account.preempted += 1
            for kind, amount in account.limits.guaranteed.items():
                if amounts.get(kind, 0) > 0 and account.usage_net_of_victims(kind) < amount:
                    self.below_guarantee.append(
                        BelowGuarantee(name, kind, account.usage_net_of_victims(kind), amount, key)
                    )
        self.preemptions.append((at_s, leaf))

    def remove_task(self, leaf: str, amounts: Mapping[str, int], *, victim: bool, at_s: float) -> None:
        """Remove a task that no longer holds room."""
        self._before_change(at_s)
        for account in self._paths[leaf]:
            _add_amounts(account.used, amounts, -1)
            if victim:
                _add_amounts(account.preempting, amounts, -1)
        self._after_change(at_s)

    def finish(self, at_s: float) -> None:
        """Record the usage at the end of the run."""
        self._take_sample(self._changed_s)
        self._take_sample(at_s)

    def _mark_change(self, leaf: str, amounts: Mapping[str, int]) -> None:
        for account in self._paths[leaf]:
            _add_amounts(account.preempting, amounts, 1)

    def _before_change(self, at_s: float) -> None:
        """Record the usage at both ends of a pause, so that the picture shows a level line for it and no slope."""
        if at_s - self._changed_s >= RESOLUTION_S:
            self._take_sample(self._changed_s)
            self._take_sample(at_s)

    def _after_change(self, at_s: float) -> None:
        self._changed_s = at_s
        if at_s - self.samples[-1].at_s >= RESOLUTION_S:
            self._take_sample(at_s)

    def _take_sample(self, at_s: float) -> None:
        if self._keeps_past:
            self.samples.append(Sample(at_s, {leaf: dict(self.queues[leaf].used) for leaf in self.leaves}))


def _add_amounts(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for kind, amount in amounts.items():
        total[kind] = total.get(kind, 0) + sign * amount
