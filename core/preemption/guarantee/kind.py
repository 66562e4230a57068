"""Describes preemption for a guarantee, and within a leaf, to all code outside this package. Asks try both
with the same finder and driver."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.domain.preemption_kinds import WITHIN as WITHIN_KEYS
from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.guarantee import laws, rounds
from kornel.core.preemption.guarantee.attempts import drive, gang_drive, inheriting
from kornel.core.preemption.guarantee.attempts.gang_attempts import GangAttempt, count_steps_left
from kornel.core.preemption.guarantee.attempts.questions import QuestionGate, RefusedQuestion
from kornel.core.preemption.guarantee.foresight import foresee_attempt, foresee_within
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.kind import BOUNDS, Colour, Driver, Ending, Kind, Level, Tone, say_no
from kornel.core.state.partition_state import PartitionState


def _count_work_left(state: PartitionState) -> int:
    return state.records[GuaranteeRecord].prospects.work_left() + count_steps_left(state)


GUARANTEE: Final = Kind(
    name=guarantee.KIND,
    laws=(1, 2, 3, 4, 5, 6, 7),
    allowed_by="law 4: the asking queue is below its guarantee; laws 2, 3, 5, 6 and 7 let the victim go",
    planner=guarantee.plan_preemption,
    check=laws.check,
    driver=Driver(
        in_round=rounds.serve_asks,
        wants_round=rounds.has_asks,
        has_work=drive.has_work,
        offer_due=drive.offer_due,
        resume=drive.resume_attempts,
        serve_unplaced=drive.serve_unplaced,
        take_over=inheriting.take_over_claim,
        serve_unit=gang_drive.serve_unit,
        serve_reserved=drive.serve_reserved,
        is_busy=gang_drive.any_broken,
        advance=gang_drive.mend_broken,
        work_left=_count_work_left,
        end_slice=drive.end_slice,
    ),
    foresee=foresee_attempt,
    outcomes=MappingProxyType(
        {
            **BOUNDS,
            Outcome.TRIGGERED: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.ACCENT),
            Outcome.SHADOW: Ending(level=Level.INFO),
            Outcome.VICTIM_STUCK: Ending(counted=True, level=Level.INFO, tone=Tone.WARN),
            Outcome.NO_GUARANTEE: Ending("law 4: no queue on its path guarantees a type it asks for", law="4"),
            Outcome.ASK_EXCEEDS_GUARANTEE: Ending("law 4: it asks for more than is guaranteed", law="4"),
            Outcome.NOT_UNDER_GUARANTEE: Ending("law 4: its queue has all that it is guaranteed", law="4"),
            Outcome.FENCED_AT_LEAF: Ending(
                "law 7: the fence, or a max that is used up, lies at its own queue", law="7"
            ),
            Outcome.NO_CANDIDATES: Ending("the laws let nobody go"),
            Outcome.NO_NODE: Ending("those who may go do not make enough room on any node"),
            Outcome.GANG_INCOMPLETE: Ending("not all members of the gang would find a place, so nobody leaves"),
            Outcome.UNIT_CALLED_OFF: Ending(counted=True, level=Level.INFO, tone=Tone.WARN),
            Outcome.LAW_BROKEN: Ending("the plan broke a law", tone=Tone.BAD),
        }
    ),
    colour=Colour.BLUE,
    records=(GuaranteeRecord, QuestionGate, RefusedQuestion, GangAttempt),
)

WITHIN: Final = Kind(
    name=WITHIN_KEYS.name,
    laws=(1, 2, 3, 6),
    allowed_by="preemption.within of its queue: the victim is of another application there, and less important",
    planner=guarantee.plan_preemption,
    check=laws.check,
    driver=Driver(has_work=say_no),
    foresee=foresee_within,
    outcomes=MappingProxyType(
        {
            **BOUNDS,
            Outcome.TRIGGERED: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.ACCENT),
            Outcome.SHADOW: Ending(level=Level.INFO),
            Outcome.VICTIM_STUCK: Ending(level=Level.INFO, tone=Tone.WARN),
            Outcome.NO_CANDIDATES: Ending("its queue has nobody whom the laws let go"),
            Outcome.NO_NODE: Ending("those of its queue who may go do not make enough room on any node"),
            Outcome.LAW_BROKEN: Ending("the plan broke a law", tone=Tone.BAD),
        }
    ),
    colour=Colour.ROSE,
)
