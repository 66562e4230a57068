"""Describes the enforcement of lowered maxima to all code outside this package."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.kind import Colour, Driver, Ending, Kind, Level, Tone
from kornel.core.preemption.quota import drive, laws, timers
from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.quota.plan import KIND

_PART: Final = Ending(leaves=True, level=Level.INFO)
"""The outcome of a run that was ended early. The victims that it had already asked to leave still leave."""

QUOTA: Final = Kind(
    name=KIND,
    laws=(1, 2, 5),
    allowed_by="the queue holds more than its max, and stays at or above its guarantee (law 2)",
    planner=quota.plan_enforcement,
    check=laws.check_whole,
    driver=Driver(
        in_round=drive.enforce_due,
        wants_round=drive.is_enforcing,
        has_work=drive.has_work,
        is_busy=drive.is_enforcing,
        advance=drive.advance_enforcement,
        begin_again=timers.begin_again,
        note_arrival=timers.note_arrival,
    ),
    outcomes=MappingProxyType(
        {
            Outcome.FULL: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.GOOD),
            Outcome.BEST_EFFORT: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.WARN),
            Outcome.PARTIAL: Ending(leaves=True, counted=True, level=Level.WARNING, tone=Tone.WARN),
            Outcome.NONE: Ending(leaves=True, counted=True, level=Level.WARNING, tone=Tone.BAD),
            Outcome.NOTHING_TO_DO: Ending(leaves=True),
            Outcome.TIMER_POSTPONED: _PART,
            Outcome.SHADOW: Ending(level=Level.INFO),
            Outcome.VICTIM_STUCK: Ending(counted=True, level=Level.WARNING, tone=Tone.WARN),
            Outcome.LAW_BROKEN: Ending("the plan broke a law", leaves=True, level=Level.INFO, tone=Tone.BAD),
            Outcome.BUDGET_SPENT: Ending("budget spent", leaves=True, level=Level.INFO, tone=Tone.WARN),
            Outcome.COOLING_DOWN: Ending(
                "pause of the queue that would lose", leaves=True, level=Level.INFO, tone=Tone.WARN
            ),
            Outcome.LOOP: Ending(
                "two queues take from each other in turns", leaves=True, level=Level.INFO, tone=Tone.WARN
            ),
            Outcome.ROUND_LIMIT: Ending(leaves=True, level=Level.INFO, tone=Tone.WARN),
        }
    ),
    colour=Colour.AMBER,
)
