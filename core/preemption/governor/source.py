"""Describes the governor as a source of decisions: it bounds what all kinds take, and takes nothing itself
(preemption.md K13)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.governor.bounds import NAME
from kornel.core.preemption.kind import DecisionSource, Ending, Level, Tone

BOUNDS: Final = MappingProxyType(
    {
        Outcome.BUDGET_SPENT: Ending("budget spent", tone=Tone.WARN),
        Outcome.COOLING_DOWN: Ending("pause of the queue that would lose", tone=Tone.WARN),
        Outcome.LOOP: Ending("two queues take from each other in turns", tone=Tone.WARN),
        Outcome.VICTIM_LIMIT: Ending("victims for one ask", counted=True, tone=Tone.WARN),
        Outcome.ROUND_LIMIT: Ending(tone=Tone.WARN),
    }
)
"""The outcomes with which the governor stops a lawful plan of a kind."""

GOVERNOR: Final = DecisionSource(
    name=NAME,
    outcomes=MappingProxyType(
        {
            outcome: Ending(counted=outcome is not Outcome.VICTIM_LIMIT, level=Level.INFO, tone=Tone.WARN)
            for outcome in BOUNDS
        }
    ),
)
