"""The record that a partition keeps of maxima that are being enforced, or will be (preemption.md D.4, D.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue

Numbers = list[object]
"""The numbers that decide how far a queue can be enforced, kept for comparison with later ones."""


class ProtectedBy(StrEnum):
    """The reasons why work stays in a queue above its max."""

    GUARANTEE = "guarantee"
    REQUIRED_NODE = "required-node"
    """Tasks that must run on their node are never victims."""
    ENDING = "ending"
    """Tasks that are being ended for another reason."""
    RUN_TIME = "run-time"
    """Tasks that have not run for their minimum run time yet."""
    GANG = "gang"
    """Members of a gang that would be left with too few to be of use."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The reason why *amount* of type index *t* stays in a queue above its max.

    For a guarantee, ``queue`` is guaranteed ``guaranteed`` and holds ``held`` of type index ``of``, which the tasks use
    too; ``smallest`` is the least that one of the tasks holds of it. For a minimum run time, the first one ends at
    ``until_ns``.
    """

    reason: ProtectedBy
    t: int
    amount: int
    queue: Queue
    of: int = 0
    guaranteed: int = 0
    held: int = 0
    smallest: int = 0
    until_ns: int = 0


class Remainder:
    """The amounts that the last run left above a max, and when to try them again.

    numbers    the queue's numbers when that run began, or at the latest check since
    pause_ns   the time from that check to the next
    look_ns    the earliest time of the next check
    unmet      the amounts that are left, by type index
    protected  what protected them
    """

    __slots__ = ("look_ns", "numbers", "pause_ns", "protected", "unmet")

    def __init__(
        self,
        numbers: Numbers,
        pause_ns: int,
        look_ns: int,
        unmet: Mapping[int, int],
        protected: tuple[Protection, ...],
    ) -> None:
        self.numbers = numbers
        self.pause_ns: Final = pause_ns
        self.look_ns: Final = look_ns
        self.unmet: Final = unmet
        self.protected: Final = protected


class Overuse:
    """A queue above its max, since *since_ns*."""

    __slots__ = ("began_again", "due_ns", "reached", "rest", "since_ns")

    def __init__(self, since_ns: int) -> None:
        self.since_ns: Final = since_ns
        self.due_ns = 0
        """The time since when it was to be enforced; 0: it was not yet."""
        self.reached: Outcome | None = None
        """The outcome of its last run; ``None``: there was none, or another run is due."""
        self.rest: Remainder | None = None
        """The remainder of that run, if it is to be tried again."""
        self.began_again = False
        """Tells whether the delay that runs began again because the core was restarted."""

    def drop_result(self) -> None:
        """Drop the outcome and the remainder of the last run, which no longer count."""
        self.reached = self.rest = None


class Run:
    """A run that brings *queue* below its max, in steps with other work in between; its kind knows the rest."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue: Final = queue


class Enforcement:
    """The queues that hold more than their max, which of them are to be enforced, and when."""

    __slots__ = ("above", "armed", "due", "postponed", "replacing", "run", "served", "ticking")

    def __init__(self) -> None:
        self.above: dict[Queue, Overuse] = {}
        """Every configured queue above its max, whether it is to be enforced or not."""
        self.replacing: dict[Allocation, None] = {}
        """Victims that replace stuck ones; they are not replaced themselves."""
        self.armed: dict[Queue, int] = {}
        """The time when each armed queue becomes due, in nanoseconds."""
        self.postponed: dict[Queue, tuple[int, int]] = {}
        """The queues that were put off: when each was first to be enforced, and how often it was put off (K9)."""
        self.due: list[Queue] = []
        """The queues whose time has come, in the order in which they are served; all still armed."""
        self.run: Run | None = None
        self.served: dict[Queue, None] = {}
        """The queues that have been served since the current round of the periodic policy began, or are being
        served."""
        self.ticking = False
        """Tells whether the next tick is among the timers."""

    @property
    def busy(self) -> bool:
        """Tells whether there is something to do at once."""
        return self.run is not None or bool(self.due)

    def round_begins(self) -> None:
        """Note that a round of the periodic policy begins: only the queue that is being served now counts as served."""
        self.served = {} if self.run is None else {self.run.queue: None}

    def __contains__(self, leaf: object) -> bool:
        """Tells whether the max of *leaf* or of a queue above it was enforced in this round of the periodic policy
        (H)."""
        return bool(self.served) and isinstance(leaf, Queue) and any(queue in self.served for queue in leaf.lineage())
