"""Takes the turn of preemption for guarantees in a round of the periodic cycle (preemption.md F2 to F8).

A round does not place or preempt in a way of its own: its attempts are those of the allocation cycle.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.policies.ask_order import line_up
from kornel.core.preemption.guarantee.attempts import drive as guarantee_drive
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.state.asks import finding
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import UNSERVED

SEARCHES: Final = 4
"""The most searches for victims in one round, because each takes milliseconds. The other asks stay due, so the slices
of the allocation cycle, which try them in the same way, go on with them."""


def has_asks(state: PartitionState) -> bool:
    """Tells whether the attempt of an ask may be due that the last round had no time for, or that something has changed
    for since."""
    due = state.root.with_due
    while due:
        application, _ = due.popitem()
        if any(group.due for group in application.groups.values()):
            due[application] = None
            return state.records[GuaranteeRecord].settled_at != state.changes
    return False


def serve_asks(state: PartitionState, now_ns: int) -> None:
    """Tries aged asks that may preempt for a guarantee, until the limit is reached or none is left (preemption.md
    F4)."""
    record = state.records[GuaranteeRecord]
    record.prospects.begin_slice()
    round_ = PartitionRound(state, now_ns)
    while round_.within_limit() and (batch := round_.next_batch()):
        for ask in batch:
            # An ask that preempts ends its batch, because what its queue has claimed changes the order (F7).
            if round_.try_allocate(ask):
                break
    record.settled_at = state.changes if round_.within_limit() else None


class PartitionRound:
    """A round of one partition, in which each ask is tried once, in batches (preemption.md F4, F6)."""

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
        return self._may_search() and guarantee_drive.is_open(self._state, self._now_ns)

    def _may_search(self) -> bool:
        return self._searches < SEARCHES and not self._state.records[GuaranteeRecord].prospects.behind

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
        if not isinstance(found, NotPlaced) or not self._state.victims_may_help(ask, found):
            return False
        if guarantee_drive.keep_waiting(self._state, group, self._now_ns):
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
    """Returns up to *most* due asks that were not tried in this round yet, in the order of queues over what is left to
    try (preemption.md F5, G.2)."""
    found: list[Allocation] = []
    # Most waiting asks were refused and wait for a change, so it is not worth sorting all of them.
    for application in list(state.root.with_due):
        due = [group for group in application.groups.values() if group.due]
        if not due:
            del state.root.with_due[application]
        elif application.state not in UNSERVED and not application.backoff_until_ns:
            for group in due:
                if not group.kept_back:
                    found += islice((ask for ask in group.next_due() if ask not in tried), most)
    return list(islice(line_up(found), most))
