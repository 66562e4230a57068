"""Records what the periodic proportional policy decided, for each leaf.

Rules: preemption.md E, H.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption.eviction import victim_record
from kornel.core.preemption.monitor.plan import KIND, Selection
from kornel.core.preemption.priorities import adjustment_of
from kornel.core.state.partition_state import PartitionState


def note_observed(state: PartitionState, selection: Selection) -> None:
    """Records what would have been taken, for leaves where that has changed since the last round."""
    notices = state.notices
    seen: dict[Queue, list[Allocation]] = {}
    for allocation in selection.allocations:
        seen.setdefault(allocation.queue, []).append(allocation)
    observed: dict[str, tuple[str, ...]] = {}
    for leaf, allocations in seen.items():
        observed[leaf.path] = tuple(allocation.key for allocation in allocations)
        if observed[leaf.path] != notices.observed.get(leaf.path):
            target = state.types.to_resources(selection.targets.get(leaf, {}))
            record_decision(state, leaf, allocations, Outcome.OBSERVED, f"round {notices.rounds}, to give up {target}")
    notices.observed = observed


def record_each(state: PartitionState, allocations: Iterable[Allocation], outcome: Outcome, number: int) -> None:
    """Records one decision for each leaf."""
    by_leaf: dict[Queue, list[Allocation]] = {}
    for allocation in allocations:
        by_leaf.setdefault(allocation.queue, []).append(allocation)
    for leaf, theirs in by_leaf.items():
        record_decision(state, leaf, theirs, outcome, f"round {number}")


def record_decision(
    state: PartitionState, leaf: Queue, allocations: Sequence[Allocation], outcome: Outcome, detail: str
) -> None:
    """Records *outcome* about *allocations*, all of *leaf*; *detail* is text for people."""
    adjusted = adjustment_of(leaf, state.root)
    victims = tuple(victim_record(allocation, adjusted.of(allocation.priority)) for allocation in allocations)
    state.report_decision(
        PreemptionDecided(state.notices.now_ns, state.name, KIND, "", "", leaf.path, outcome, detail, "", victims)
    )
