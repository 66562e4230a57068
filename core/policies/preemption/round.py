"""One round of the preemption cycle, as a policy sees it (preemption.md F2, F4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from core.model.allocations import Allocation


class Round(Protocol):
    """A round of one partition. Policies run in it one after the other and share its limit and its mask."""

    def within_limit(self) -> bool:
        """Whether the round may go on: the part of the cluster that one round may take is not used up (F7)."""
        ...

    def candidates(self) -> list[Allocation]:
        """The next batch of aged asks not tried in this round, those of the queue with the least in hand first (F5)."""
        ...

    def try_allocate(self, ask: Allocation) -> bool:
        """Find room for *ask*, by victims if need be; whether it preempted. It is not a candidate again (F3, F6)."""
        ...

    def serve_required(self) -> None:
        """Try the asks again that must run on one node, where something has changed for them."""
        ...

    def enforce_due(self) -> None:
        """Go on with the lowered maxima that are due."""
        ...


Policy = Callable[[Round], None]


def in_batches(round_: Round) -> None:
    """Batch after batch of aged asks, each tried once, until the limit is reached or nobody is left (F4, F6)."""
    while round_.within_limit():
        batch = round_.candidates()
        if not batch:
            return
        for ask in batch:
            round_.try_allocate(ask)


def at_its_own_pace(_: Round) -> None:
    """For a policy that has an interval of its own and is not run by the cycle."""
