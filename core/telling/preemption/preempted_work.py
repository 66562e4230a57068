"""How an ask or allocation was told to leave, in words: by what decision, for whom, and what allowed it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.partition.history.recent_victims import RecentVictim
from core.telling.allocations.explanation import PreemptedWork

LAWS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "guarantee": "law 4: the asking queue is below its guarantee; laws 2, 3, 5, 6 and 7 let the victim go",
        "required-node": "the ask must run on this node and is at least as important (preemption.md C)",
        "quota": "the queue holds more than its max, and stays at or above its guarantee (law 2)",
        "monitor": "its queue holds more than its share, it had notice, and no queue ends below its guarantee (law 2)",
    }
)
"""What allows each kind of decision."""


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
        LAWS.get(decided.kind, ""),
        reason,
        alternatives,
    )
