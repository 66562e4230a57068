"""The toy kind as everything outside its room knows it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kornel.core.preemption.lease import laws
from kornel.core.preemption.lease.drive import end_leases, foresee_ends, has_leases
from kornel.core.preemption.lease.lease_record import LeaseRecord
from kornel.core.preemption.lease.plan import NAME, plan

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.kind import Colour, Driver, Ending, Kind, Level, Tone

LEASE: Final = Kind(
    name=NAME,
    laws=(2,),
    allowed_by="it ran for longer than its lease, and its queue keeps what it is guaranteed (law 2)",
    planner=plan,
    check=laws.check,
    driver=Driver(in_round=end_leases, wants_round=has_leases),
    foresee=foresee_ends,
    outcomes=MappingProxyType(
        {Outcome.TRIGGERED: Ending(leaves=True, counted=True, level=Level.INFO, tone=Tone.ACCENT)}
    ),
    colour=Colour.ROSE,
    records=(LeaseRecord,),
)
