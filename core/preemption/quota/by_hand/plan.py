"""The plan for what a person asks to preempt: the victims, and why others stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kornel.core.domain.commands import PreemptByHand, Waivable
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption.quota.plan import QuotaPlan

KIND: Final = "by-hand"


@dataclass(frozen=True, slots=True)
class HandPlan:
    """The plan for the call *order*. ``enforced`` is the same as a plan for a max, that of the root for named tasks.

    waived  the laws that keep nobody back
    kept    the named tasks that stay, each with the reason; empty for an amount, of which the reasons are in
            ``enforced.protected``
    """

    order: PreemptByHand
    waived: frozenset[Waivable]
    enforced: QuotaPlan
    kept: Mapping[Allocation, str] = field(default_factory=dict)

    @property
    def victims(self) -> tuple[Allocation, ...]:
        """The allocations that are to leave."""
        return self.enforced.victims

    @property
    def outcome(self) -> Outcome:
        """Tells whether all that was asked for leaves."""
        return self.enforced.outcome
