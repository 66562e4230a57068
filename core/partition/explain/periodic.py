"""Whether the periodic monitor could make room for an ask: what its last round found, and what has come of it."""

from __future__ import annotations

from core.domain.explanation import PreemptionOutlook, PreemptionVerdict
from core.domain.reasons import Outcome
from core.model.allocations import Allocation
from core.partition.state import PartitionState

RESTS = "the periodic monitor is on: asks do not preempt by themselves"


def left_to_monitor(state: PartitionState, ask: Allocation) -> bool:
    """Whether only the monitor makes room for *ask*: asks do not preempt beside it, or this one never does (H)."""
    settings = state.notices.settings
    by_itself = state.guarantee_preemption and ask.spec.allow_preempt_other
    return settings is not None and not settings.observe_only and not by_itself


def by_monitor(state: PartitionState, ask: Allocation) -> PreemptionOutlook:
    """What becomes of *ask* by the monitor's last round."""
    verdict, notices, names = PreemptionVerdict, state.notices, state.types.names
    path = ask.queue.path
    if not notices.rounds:
        return PreemptionOutlook(verdict.FORBIDDEN, RESTS, "", "its first round has not ended yet")
    lacking = {t: amount for t, amount in notices.lacking.get(path, {}).items() if amount > 0}
    asked = dict(ask.shape.pairs)
    if not any(t in lacking for t in asked):
        detail = f"round {notices.rounds}: {path} holds what it should, or free room makes up for the rest"
        return PreemptionOutlook(verdict.FORBIDDEN, "monitor: no share is owed to its queue", "", detail)
    owed = ", ".join(f"{amount} {names[t]}" for t, amount in sorted(lacking.items()))
    detail = f"round {notices.rounds}: {path} should hold {owed} more"
    entries = [entry for entry in notices.entries.values() if any(t in asked for t, _ in entry.allocation.shape.pairs)]
    if not entries:
        return PreemptionOutlook(verdict.NO_VICTIMS, "monitor: nobody is asked for it now", "", detail)
    first = min(entry.deadline_ns for entry in entries)
    return PreemptionOutlook(
        verdict.UNDER_WAY, "", Outcome.NOTIFIED, f"{detail}; {len(entries)} allocations are at risk", first
    )
