"""The record by which all other code knows preemption on a required node."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.kind import BOUNDS, Colour, Driver, Ending, Kind, Level, Tone
from kornel.core.preemption.required_node import drive, laws
from kornel.core.preemption.required_node import planner as required_node
from kornel.core.preemption.required_node.foresight import foresee_attempt

REQUIRED_NODE: Final = Kind(
    name=required_node.KIND,
    laws=(1, 6),
    allowed_by="the ask must run on this node and is at least as important (preemption.md C)",
    planner=required_node.plan_preemption,
    check=laws.check,
    driver=Driver(
        tries_again=drive.must_run_there,
        wants_round=drive.has_asks,
        serve_reserved=drive.serve_reserved,
        note_arrival=drive.look_at_node,
        note_amendment=drive.look_at_node,
    ),
    foresee=foresee_attempt,
    outcomes=MappingProxyType(
        {
            **BOUNDS,
            Outcome.TRIGGERED: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.ACCENT),
            Outcome.SHADOW: Ending(level=Level.INFO),
            Outcome.VICTIM_STUCK: Ending(level=Level.INFO, tone=Tone.WARN),
            Outcome.NO_VICTIM_REQUIRED_NODE: Ending("its node has too few allocations that may be preempted"),
            Outcome.LAW_BROKEN: Ending("the plan broke a law", tone=Tone.BAD),
        }
    ),
    colour=Colour.VIOLET,
)
