"""Limits the victims for a lowered max, by what the governor allows now and by what is left of one interval."""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.readable_amounts import format_count
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.partition.state import PartitionState
from kornel.core.preemption import pacing
from kornel.core.preemption.governor import governing
from kornel.core.preemption.governor.bounds import CLUSTER, SECOND_NS, Denial
from kornel.core.preemption.pace import Taken
from kornel.core.preemption.quota.plan import KIND


def allow_victims(
    state: PartitionState, victims: Sequence[Allocation], now_ns: int, run: object
) -> tuple[int, Denial | None]:
    """Returns how many of *victims*, from the first on, may be taken now for the lowered max of *run*, and why the rest
    may not.

    They are counted as taken, because the caller preempts them next.
    """
    most, denial = governing.allow_victims(state, victims, "", now_ns, run)
    window, bound = pacing.current_window(state, KIND, now_ns), state.preemption.governor.bound_of(KIND).interval
    room = bound - window.totals.victims
    if bound and room < most:
        interval_ns = state.preemption.cycle_interval_ns
        # The run goes on only when the whole limit is open again, because each part of a run costs as much as the
        # whole.
        again_ns = (window.taken[-1].at_ns if room <= 0 else now_ns) + interval_ns
        detail = f"{format_count(bound, 'victim')} for lowered maxima may be taken within {interval_ns / SECOND_NS:g} s"
        most, denial = max(0, room), Denial(Outcome.ROUND_LIMIT, CLUSTER, detail, again_ns)
        pacing.say_held_back(state, KIND, detail, now_ns)
    if most:
        window.add(Taken(now_ns, (), most))
    return most, denial
