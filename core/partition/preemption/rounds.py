"""The periodic preemption cycle: the configured policies in order, within one limit (preemption.md F2 to F8).

It has no way of its own to place or to preempt: what it tries goes through the same attempt as in the allocation cycle.
"""

from __future__ import annotations

from typing import Final

from core.model.allocations import Allocation
from core.model.queues import Queue
from core.partition.preemption import preempting, quota_preemption
from core.partition.scheduling import placement, reserved
from core.partition.scheduling.waiting import UNSERVED
from core.partition.state import PartitionState
from core.policies.application_order import application_key
from core.policies.preemption.registry import run_policies

ENFORCEMENT_BUDGET: Final = 256
"""Decisions that one round spends on lowered maxima; the slices between rounds spend the rest."""


def run(state: PartitionState, now_ns: int) -> int:
    """One round in *state*. Returns how many asks it made room for."""
    round_ = PartitionRound(state, now_ns)
    run_policies(state.preemption.policies, round_)
    return round_.served


class PartitionRound:
    """A round of one partition (:class:`core.policies.preemption.round.Round`)."""

    def __init__(self, state: PartitionState, now_ns: int) -> None:
        self._state = state
        self._now_ns = now_ns
        settings = state.preemption
        self._batch = settings.cycle_batch
        self._limit = {t: amount * settings.cycle_limit for t, amount in state.root.max.items()}
        self._taken = dict.fromkeys(self._limit, 0)
        self._tried: set[Allocation] = set()
        """The mask: asks that need not be tried again in this round."""
        self.served = 0

    def within_limit(self) -> bool:
        return all(self._taken[t] < most for t, most in self._limit.items())

    def candidates(self) -> list[Allocation]:
        return _candidates(self._state, self._tried, self._batch)

    def try_allocate(self, ask: Allocation) -> bool:
        self._tried.add(ask)
        group = ask.group
        if group is None:
            return False
        found = placement.find_node(self._state, ask)
        if not isinstance(found, placement.NotPlaced) or not found.preemption_may_help:
            return False
        group.attempt_is_over(ask)
        if not preempting.attempt(self._state, ask, self._now_ns):
            ask.missed += 1
            return False
        self.served += 1
        for t, amount in ask.shape.pairs:
            if t in self._taken:
                self._taken[t] += amount
        return True

    def serve_required(self) -> None:
        reserved.serve(self._state, self._now_ns, required_only=True)

    def enforce_due(self) -> None:
        quota_preemption.advance(self._state, self._now_ns, ENFORCEMENT_BUDGET)


def _candidates(state: PartitionState, tried: set[Allocation], most: int) -> list[Allocation]:
    """Up to *most* due asks not yet tried this round: queues by what they hold net of victims, then as usual (F5)."""
    found: list[Allocation] = []
    leaves = [queue for queue in state.queues.values() if queue.leaf and queue.waiting]
    for leaf in sorted(leaves, key=_net_share):
        served = [a for a in leaf.applications.values() if a.state not in UNSERVED and not a.backoff_until_ns]
        for application in sorted(served, key=application_key):
            groups = [group for group in application.groups.values() if not group.kept_back]
            due = [ask for group in groups for ask in group.due if ask not in tried]
            found.extend(sorted(due, key=lambda ask: ask.order))
            if len(found) >= most:
                return found[:most]
    return found


def _net_share(queue: Queue) -> tuple[float, str]:
    """Largest share of (used - preempting) against what the queue is entitled to; the path makes it total."""
    share = 0.0
    for t, denominator in queue.fair_terms:
        if denominator > 0:
            share = max(share, (queue.used[t] - queue.preempting[t]) / denominator)
    return (share, queue.path)
