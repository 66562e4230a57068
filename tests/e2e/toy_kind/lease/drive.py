"""When the toy kind acts: in every round of the preemption cycle, if its section says how long a lease is."""

from __future__ import annotations

from kornel.core.preemption.lease import laws
from kornel.core.preemption.lease.lease_record import LeaseRecord
from kornel.core.preemption.lease.plan import NAME, plan

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption import eviction
from kornel.core.preemption.foresight import Circumstances, PreemptionOutlook, PreemptionVerdict
from kornel.core.state.partition_state import PartitionState


def has_leases(state: PartitionState) -> bool:
    """Tells whether anything runs whose lease may end."""
    return NAME in state.preemption.sections and state.allocation_count > 0


def foresee_ends(state: PartitionState, ask: Allocation, _asked: Circumstances) -> PreemptionOutlook | None:
    """Returns that the next lease that ends makes room for *ask*, if anything runs whose lease may end."""
    if not has_leases(state):
        return None
    return PreemptionOutlook(PreemptionVerdict.WOULD_HELP, "", "", "a lease ends")


def end_leases(state: PartitionState, now_ns: int) -> None:
    """Have everybody leave whose lease is over, with one decision for each queue."""
    settings = state.preemption.sections.get(NAME)
    if settings is None:
        return
    found = plan(state, int(settings["longest_ms"]) * 10**6, now_ns)
    if not found.victims or eviction.judge_plan(state, laws.check(state, found)) is not None:
        return
    state.records[LeaseRecord].ended_ns.update(dict.fromkeys((victim.key for victim in found.victims), now_ns))
    eviction.evict_victims(state, found.victims, None, "its lease is over", now_ns)
    for queue in dict.fromkeys(victim.queue for victim in found.victims):
        records = [eviction.victim_record(one, one.priority) for one in found.victims if one.queue is queue]
        state.effects.append(
            PreemptionDecided(
                now_ns, state.name, NAME, "", "", queue.path, Outcome.TRIGGERED, "its lease is over", "", tuple(records)
            )
        )
