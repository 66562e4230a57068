"""How an ask or allocation was told to leave, in words: by what decision, for whom, and what allowed it."""

from __future__ import annotations

from core.partition.history.recent_victims import RecentVictim
from core.preemption.registry import allowed_by
from core.telling.allocations.explanation import PreemptedWork


def preempted_work(victim: RecentVictim) -> PreemptedWork:
    """Says how *victim* was told to leave."""
    record, decided = victim
    reason, _, alternatives = decided.detail.partition("; weighed: ")
    return PreemptedWork(
        record,
        decided.at_ns,
        decided.kind,
        decided.key,
        decided.application_id,
        decided.queue,
        allowed_by(decided.kind),
        reason,
        alternatives,
    )
