"""Keeps what a run that enforces a max remembers from step to step (preemption.md D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.core.domain.effects import VictimRecord
from kornel.core.model.queues import Queue
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.quota.plan import QuotaPlan
from kornel.core.preemption.quota.planner import Steps
from kornel.core.preemption.quota.timer_rules import Terms
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.enforcement import Numbers, Run


class QuotaRun(Run):
    """A run that brings one queue below its max, in steps with other work in between."""

    __slots__ = (
        "again", "at", "changed", "freed", "grew", "miss", "numbers", "plan", "records", "replaces", "staying",
        "steps", "stopped", "whole",
    )  # fmt: skip

    def __init__(
        self, queue: Queue, miss: int, steps: Steps, numbers: Numbers, staying: Mapping[int, int], *, again: bool
    ) -> None:
        super().__init__(queue)
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


def run_of(state: PartitionState) -> QuotaRun | None:
    """Returns the run that is under way in *state*; ``None``: there is none."""
    run = state.enforcement.run
    assert run is None or isinstance(run, QuotaRun), "no other kind enforces a max"
    return run
