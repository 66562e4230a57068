"""Tries asks in batches in a round of the preemption cycle (preemption.md F2, F4)."""

from __future__ import annotations

from typing import Protocol

from kornel.core.model.allocations import Allocation


class Round(Protocol):
    """The operations of a round in one partition."""

    def within_limit(self) -> bool:
        """Tells whether the round may go on: the share of the cluster that one round may take is not used up
        (preemption.md F7)."""
        ...

    def next_batch(self) -> list[Allocation]:
        """Returns the next batch of aged asks that were not tried in this round yet, in order (preemption.md F5)."""
        ...

    def try_allocate(self, ask: Allocation) -> bool:
        """Finds room for *ask*, with victims if necessary. Returns whether it preempted. It is not tried again in this
        round (preemption.md F3, F6)."""
        ...


def in_batches(round_: Round) -> None:
    """Tries aged asks in batches, each ask once, until the limit is reached or none is left (preemption.md F4, F6).

    An ask that preempts ends its batch, because what its queue has claimed changes the order (F7).
    """
    while round_.within_limit():
        batch = round_.next_batch()
        if not batch:
            return
        for ask in batch:
            if round_.try_allocate(ask):
                break
