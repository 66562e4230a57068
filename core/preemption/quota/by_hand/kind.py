"""Describes preemption by hand to all code outside this package. It is a source of decisions and no kind that a
configuration lists, because nobody but a person starts it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.kind import Colour, DecisionSource, Ending, Level, Tone
from kornel.core.preemption.quota.by_hand.plan import KIND

BY_HAND: Final = DecisionSource(
    name=KIND,
    outcomes=MappingProxyType(
        {
            Outcome.FULL: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.GOOD),
            Outcome.PARTIAL: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.WARN),
            Outcome.NONE: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.WARN),
            Outcome.NOTHING_TO_DO: Ending(level=Level.INFO),
            Outcome.VICTIM_STUCK: Ending(counted=True, level=Level.WARNING, tone=Tone.WARN),
            Outcome.LAW_BROKEN: Ending("the plan broke a law", level=Level.INFO, tone=Tone.BAD),
        }
    ),
    colour=Colour.GREY,
)
