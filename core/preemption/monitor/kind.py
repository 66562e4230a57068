"""The record by which all other code knows the periodic proportional policy."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.kind import Colour, Driver, Ending, Kind, Level, Tone
from kornel.core.preemption.monitor import drive as monitor
from kornel.core.preemption.monitor import laws, noticing
from kornel.core.preemption.monitor.foresight import foresee_round
from kornel.core.preemption.monitor.plan import KIND
from kornel.core.preemption.monitor.selection.selection import select_victims

MONITOR: Final = Kind(
    name=KIND,
    laws=(1, 2, 4, 5, 6, 7),
    allowed_by="its queue holds more than its share, it had notice, and no queue ends below its guarantee (law 2)",
    planner=select_victims,
    check=laws.check,
    driver=Driver(
        configured=monitor.follow_settings,
        has_work=monitor.has_work,
        is_busy=monitor.is_round_under_way,
        advance=monitor.advance_round,
        end_slice=monitor.resume_rounds,
        repeat_notices=noticing.repeat_notices,
        note_answer=noticing.note_answer,
    ),
    foresee=foresee_round,
    outcomes=MappingProxyType(
        {
            Outcome.TRIGGERED: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.ACCENT),
            Outcome.NOTIFIED: Ending(tone=Tone.ACCENT),
            Outcome.WITHDRAWN: Ending(),
            Outcome.OBSERVED: Ending(),
            Outcome.VICTIM_STUCK: Ending(level=Level.INFO, tone=Tone.WARN),
            Outcome.UNIT_CALLED_OFF: Ending(level=Level.INFO, tone=Tone.WARN),
            Outcome.LAW_BROKEN: Ending("the plan broke a law", tone=Tone.BAD),
        }
    ),
    colour=Colour.TEAL,
)
