"""The knowledge of a partition about maxima that are being enforced, or will be (preemption.md D.4, D.5)."""

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
"""The numbers that decide how far a queue can be enforced, to be compared with later."""


class QuotaRun:
    """One queue that is being brought below its max, in steps that other work goes on between."""

    __slots__ = (
        "again", "at", "changed", "freed", "grew", "miss", "numbers", "plan", "queue", "records", "replaces", "staying",
        "steps", "stopped",
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
        """The amounts that earlier victims hold that do not leave: others go instead of them."""
        self.replaces: Final = bool(staying)
        """Tells whether such amounts are what this run began for, or a part of it."""
        self.again: Final = again
        """An earlier run left something, and what kept it there may have changed."""
        self.plan: QuotaPlan | None = None
        """The choice of who is to go, once that is worked out."""
        self.at = 0
        """The number of the chosen that have been dealt with."""
        self.freed: dict[int, int] = {}
        """By type of the target, what those asked to leave hold."""
        self.records: list[VictimRecord] = []
        self.changed: Terms | None = None
        """The terms before the first change made during the run."""
        self.stopped: Refusal | None = None
        """The refusal that kept it from going on, or from being carried out at all; ``retry_ns``: when to go on."""
        self.grew = False
        """Something was added to the queue unchecked during the run."""

    @property
    def target(self) -> Mapping[int, int]:
        """The amounts above the max that the run is to free, by type index."""
        return self.plan.target if self.plan is not None else {}


class Remainder:
    """The amounts that the last run left above a max, and when to look at them again.

    numbers    of the queue when that run looked, or of the last look since
    pause_ns   from that look to the next
    look_ns    not before then
    unmet      by type index
    protected  what kept it there
    ending     tasks on their way out: when one of them is gone there is more to choose from
    """

    __slots__ = ("ending", "look_ns", "numbers", "pause_ns", "protected", "unmet")

    def __init__(
        self,
        numbers: Numbers,
        pause_ns: int,
        look_ns: int,
        unmet: Mapping[int, int],
        protected: tuple[Protection, ...],
        ending: tuple[Allocation, ...],
    ) -> None:
        self.numbers = numbers
        self.pause_ns: Final = pause_ns
        self.look_ns: Final = look_ns
        self.unmet: Final = unmet
        self.protected: Final = protected
        self.ending: Final = ending


class Standing:
    """A queue above its max, since *since_ns*."""

    __slots__ = ("reached", "rest", "since_ns")

    def __init__(self, since_ns: int) -> None:
        self.since_ns: Final = since_ns
        self.reached: Outcome | None = None
        """The outcome of its last run; ``None``: there was none, or another one is to come."""
        self.rest: Remainder | None = None
        """The remainder of that run, if it is to be looked at again."""

    def forget_run(self) -> None:
        """Forget what the last run came to: it says nothing any more."""
        self.reached = self.rest = None


class Enforcement:
    """The queues that hold more than their max: which of them are to be enforced, and when."""

    __slots__ = ("above", "armed", "deferred", "due", "postponed", "replacing", "run", "served", "ticking")

    def __init__(self) -> None:
        self.above: dict[Queue, Standing] = {}
        """Every configured queue above its max, whether it is to be enforced or not."""
        self.replacing: dict[Allocation, None] = {}
        """Victims that go instead of others who do not: they are not replaced in turn."""
        self.armed: dict[Queue, int] = {}
        """The time when each becomes due, in nanoseconds."""
        self.postponed: dict[Queue, tuple[int, int]] = {}
        """The queues that were put off: when each was to be enforced at first, and how often that was put off (K9)."""
        self.due: list[Queue] = []
        """The queues whose time has come, in the order in which they are served; all still armed."""
        self.run: QuotaRun | None = None
        self.deferred: dict[Allocation, None] = {}
        """Asks that were about to preempt for a guarantee: their turn comes once there is nothing left to enforce."""
        self.served: dict[Queue, None] = {}
        """The queues that were served since the round of the periodic policy under way began, or are just now."""
        self.ticking = False
        """The next tick is among the timers."""

    @property
    def busy(self) -> bool:
        """Tells whether there is something to do at once."""
        return self.run is not None or bool(self.due)

    def round_begins(self) -> None:
        """Note that the periodic policy looks at the queues anew: only what is being served now is in its way."""
        self.served = {} if self.run is None else {self.run.queue: None}

    def __contains__(self, leaf: object) -> bool:
        """Tells whether the max of *leaf* or of a queue above it was enforced in this round of the periodic policy
        (H)."""
        return bool(self.served) and isinstance(leaf, Queue) and any(queue in self.served for queue in leaf.lineage())
