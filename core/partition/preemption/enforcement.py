"""What the partition knows about maxima that are being enforced, or will be (preemption.md D.4, D.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from core.domain.effects import VictimRecord
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.policies.preemption.plan import QuotaPlan, Refusal
from core.policies.preemption.quota import Steps
from core.policies.preemption.quota_timer import Terms


class QuotaRun:
    """One queue that is being brought below its max, in steps that other work goes on between."""

    __slots__ = ("at", "changed", "freed", "grew", "miss", "plan", "queue", "records", "steps", "stopped")

    def __init__(self, queue: Queue, miss: int, steps: Steps) -> None:
        self.queue: Final = queue
        self.miss: Final = miss
        self.steps: Final = steps
        self.plan: QuotaPlan | None = None
        """Who is to go, once that is worked out."""
        self.at = 0
        """How many of the chosen have been dealt with."""
        self.freed: dict[int, int] = {}
        """By type of the target, what those told to leave hold."""
        self.records: list[VictimRecord] = []
        self.changed: Terms | None = None
        """The terms before the first change made during the run."""
        self.stopped: Refusal | None = None
        """What kept it from going on, or from being carried out at all; ``retry_ns``: when to go on."""
        self.grew = False
        """Something was added to the queue unchecked during the run."""

    @property
    def target(self) -> Mapping[int, int]:
        return self.plan.target if self.plan is not None else {}


class Enforcement:
    """Which queues are to be enforced, and when."""

    __slots__ = ("armed", "deferred", "due", "postponed", "run", "served", "ticking")

    def __init__(self) -> None:
        self.armed: dict[Queue, int] = {}
        """When each becomes due, in nanoseconds."""
        self.postponed: dict[Queue, tuple[int, int]] = {}
        """Of those put off: when each was to be enforced at first, and how often that was put off (K9)."""
        self.due: list[Queue] = []
        """Those whose time has come, in the order in which they are served; all still armed."""
        self.run: QuotaRun | None = None
        self.deferred: dict[Allocation, None] = {}
        """Asks that were about to preempt for a guarantee: their turn comes once there is nothing left to enforce."""
        self.served: dict[Queue, None] = {}
        """Those that were served since the round of the periodic policy under way began, or are just now."""
        self.ticking = False
        """The next tick is among the timers."""

    @property
    def busy(self) -> bool:
        """Whether there is something to do at once."""
        return self.run is not None or bool(self.due)

    def round_begins(self) -> None:
        """The periodic policy looks at the queues anew: only what is being served now is in its way."""
        self.served = {} if self.run is None else {self.run.queue: None}

    def __contains__(self, leaf: object) -> bool:
        """Whether the max of *leaf* or of a queue above it was enforced in this round of the periodic policy (H)."""
        return bool(self.served) and isinstance(leaf, Queue) and any(queue in self.served for queue in leaf.lineage())
