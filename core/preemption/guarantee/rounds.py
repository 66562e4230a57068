"""Takes the turn of preemption for guarantees in a round of the periodic cycle (preemption.md F2 to F8).

A round does not place or preempt in a way of its own: its attempts are those of the allocation cycle.
"""

from __future__ import annotations

from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.partition.asks import finding
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.rooms import UNSERVED
from kornel.core.policies.application_order import application_key
from kornel.core.preemption.entitlement import project_usage
from kornel.core.preemption.guarantee import cycle_limit
from kornel.core.preemption.guarantee import drive as guarantee_drive
from kornel.core.preemption.guarantee.batches import in_batches

SEARCHES: Final = 4
"""The most searches for victims in one round, because each takes milliseconds. The other asks stay due, so the slices
of the allocation cycle, which try them in the same way, go on with them."""


def has_asks(state: PartitionState) -> bool:
    """Tells whether any ask waits."""
    return state.root.waiting > 0


def serve_asks(state: PartitionState, now_ns: int) -> None:
    """Tries aged asks that may preempt for a guarantee, until the limit is reached or none is left (preemption.md
    F4)."""
    state.guarantee.prospects.begin_slice()
    in_batches(PartitionRound(state, now_ns))


class PartitionRound:
    """A round of one partition (:class:`kornel.core.preemption.guarantee.batches.Round`)."""

    def __init__(self, state: PartitionState, now_ns: int) -> None:
        self._state = state
        self._now_ns = now_ns
        self._batch = state.preemption.cycle_batch
        self._tried: set[Allocation] = set()
        """The asks that were tried and are not tried again in this round."""
        self._searches = 0
        self.served = 0

    def within_limit(self) -> bool:
        """Tells whether another search may be made in this round."""
        return self._may_search() and cycle_limit.is_open(self._state, self._now_ns)

    def _may_search(self) -> bool:
        return self._searches < SEARCHES and not self._state.guarantee.prospects.behind

    def next_batch(self) -> list[Allocation]:
        """Returns the next batch of asks to try."""
        return _list_candidates(self._state, self._tried, self._batch)

    def try_allocate(self, ask: Allocation) -> bool:
        """Tries to preempt for *ask*. Returns whether it did."""
        self._tried.add(ask)
        group = ask.group
        if group is None or not self._may_search():
            return False
        found = finding.find_node(self._state, ask)
        if not isinstance(found, NotPlaced) or not found.preemption_may_help:
            return False
        if cycle_limit.keep_waiting(self._state, group, self._now_ns):
            return False
        group.attempt_is_over(ask)
        before = self._state.preemption_attempts
        made_room = guarantee_drive.attempt_preemption(self._state, ask, self._now_ns)
        if self._state.preemption_attempts != before:
            self._searches += 1
        if not made_room:
            ask.missed += 1
            return False
        self.served += 1
        return True


def _list_candidates(state: PartitionState, tried: set[Allocation], most: int) -> list[Allocation]:
    """Returns up to *most* due asks that were not tried in this round yet, from the queues that hold least net of
    victims first, in each queue in scheduling order (preemption.md F5)."""
    found: list[Allocation] = []
    # Most waiting asks were refused and wait for a change, so it is not worth sorting all of them each second.
    leaves = [queue for queue in state.queues.values() if queue.with_due and queue.waiting and _has_due(queue)]
    for leaf in sorted(leaves, key=_net_share):
        served = [a for a in leaf.with_due if a.state not in UNSERVED and not a.backoff_until_ns]
        for application in sorted(served, key=application_key):
            groups = [group for group in application.groups.values() if not group.kept_back]
            due = [ask for group in groups for ask in group.due if ask not in tried]
            found.extend(sorted(due, key=lambda ask: ask.order))
            if len(found) >= most:
                return found[:most]
    return found


def _has_due(leaf: Queue) -> bool:
    """Tells whether an ask of *leaf* is due, and forgets the applications of which none is."""
    for application in list(leaf.with_due):
        if not any(group.due for group in application.groups.values()):
            del leaf.with_due[application]
    return bool(leaf.with_due)


def _net_share(queue: Queue) -> tuple[float, str]:
    """Returns the sort key of *queue*: the largest share of (used - preempting + claimed) in its fair-share
    denominators, then its path, which makes the order total."""
    share = 0.0
    for t, denominator in queue.fair_terms:
        if denominator > 0:
            share = max(share, project_usage(queue, t) / denominator)
    return (share, queue.path)
