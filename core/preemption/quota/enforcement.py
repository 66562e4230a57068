"""The record that a partition keeps of maxima that are being enforced, or will be (preemption.md D.4, D.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.core.domain.effects import VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.quota.plan import Protection, QuotaPlan
from kornel.core.preemption.quota.planner import Steps
from kornel.core.preemption.quota.timer_rules import Terms

Numbers = list[object]
"""The numbers that decide how far a queue can be enforced, kept for comparison with later ones."""


class QuotaRun:
    """A run that brings one queue below its max, in steps with other work in between."""

    __slots__ = (
        "again", "at", "changed", "freed", "grew", "miss", "numbers", "plan", "queue", "records", "replaces", "staying",
        "steps", "stopped", "whole",
    )  # fmt: skip

    def __init__(
        self, queue: Queue, miss: int, steps: Steps, numbers: Numbers, staying: Mapping[int, int], *, again: bool
    ) -> None:
        self.queue: Final = queue
        self.miss: Final = miss
        self.steps: Final = steps
        self.numbers: Final = numbers
        """The numbers of the queue when the run began."""
        self.staying = staying
        """The amounts held by earlier victims that are stuck, for which others are released instead."""
        self.replaces: Final = bool(staying)
        """Tells whether the run began with amounts of stuck victims to replace."""
        self.again: Final = again
        """Tells whether an earlier run left a remainder that this one tries again."""
        self.plan: QuotaPlan | None = None
        """The plan, once it is worked out."""
        self.at = 0
        """The number of planned victims that have been handled."""
        self.freed: dict[int, int] = {}
        """The amounts of the victims so far, by type of the target."""
        self.records: list[VictimRecord] = []
        self.whole: list[str] = []
        """The gangs that leave as a whole, in words."""
        self.changed: Terms | None = None
        """The terms before the first change made during the run."""
        self.stopped: Refusal | None = None
        """The refusal that stopped the run, at its beginning or later; its ``retry_ns`` says when to go on."""
        self.grew = False
        """Tells whether something was added to the queue unchecked during the run."""

    @property
    def target(self) -> Mapping[int, int]:
        """The amounts above the max that the run is to free, by type index."""
        return self.plan.target if self.plan is not None else {}


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


class Standing:
    """A queue above its max, since *since_ns*."""

    __slots__ = ("began_again", "reached", "rest", "since_ns")

    def __init__(self, since_ns: int) -> None:
        self.since_ns: Final = since_ns
        self.reached: Outcome | None = None
        """The outcome of its last run; ``None``: there was none, or another run is due."""
        self.rest: Remainder | None = None
        """The remainder of that run, if it is to be tried again."""
        self.began_again = False
        """Tells whether the delay that runs began again because the core was restarted."""

    def drop_result(self) -> None:
        """Drop the outcome and the remainder of the last run, which no longer count."""
        self.reached = self.rest = None


class Enforcement:
    """The queues that hold more than their max, which of them are to be enforced, and when."""

    __slots__ = ("above", "armed", "deferred", "due", "postponed", "replacing", "run", "served", "ticking")

    def __init__(self) -> None:
        self.above: dict[Queue, Standing] = {}
        """Every configured queue above its max, whether it is to be enforced or not."""
        self.replacing: dict[Allocation, None] = {}
        """Victims that replace stuck ones; they are not replaced themselves."""
        self.armed: dict[Queue, int] = {}
        """The time when each armed queue becomes due, in nanoseconds."""
        self.postponed: dict[Queue, tuple[int, int]] = {}
        """The queues that were put off: when each was first to be enforced, and how often it was put off (K9)."""
        self.due: list[Queue] = []
        """The queues whose time has come, in the order in which they are served; all still armed."""
        self.run: QuotaRun | None = None
        self.deferred: dict[Allocation, None] = {}
        """Asks that wait to preempt for a guarantee until nothing is left to enforce."""
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
