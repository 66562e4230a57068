"""One round of the preemption cycle, as preemption for guarantees sees it (preemption.md F2, F4)."""

from __future__ import annotations

from typing import Protocol

from kornel.core.model.allocations import Allocation


class Round(Protocol):
    """A round of one partition."""

    def within_limit(self) -> bool:
        """Tells whether the round may go on: the part of the cluster that one round may take is not used up (F7)."""
        ...

    def next_batch(self) -> list[Allocation]:
        """Returns the next batch of aged asks not tried in this round, those of the queue with the least in hand first
        (F5)."""
        ...

    def try_allocate(self, ask: Allocation) -> bool:
        """Find room for *ask*, by victims if need be. Returns whether it preempted. It is not a candidate again (F3,
        F6)."""
        ...


def in_batches(round_: Round) -> None:
    """Tries aged asks, batch after batch and each once, until the limit is reached or nobody is left (F4, F6)."""
    while round_.within_limit():
        batch = round_.next_batch()
        if not batch:
            return
        for ask in batch:
            round_.try_allocate(ask)
