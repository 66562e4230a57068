"""Determines what guarantees leave for an ask: for each type that it asks for, the lowest queue on its path that
guarantees the type decides (preemption.md A, law 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs

HeldBy = Callable[[Queue, int], int]
"""Returns what a queue holds of a type."""


def project_usage(queue: Queue, t: int) -> int:
    """Returns ``proj``: what *queue* will use of type *t* once its victims have left and their preemptors run."""
    return queue.used[t] - queue.preempting[t] + queue.claimed[t]


class Guarantee(NamedTuple):
    """The guarantee ``E_t`` of one type that an ask wants.

    t       the index of the type
    asked   what the ask wants of it
    queue   the lowest queue on the path of the ask that declares a guarantee of the type
    most    the guarantee
    held    what the queue holds of the type
    """

    t: int
    asked: int
    queue: Queue
    most: int
    held: int

    def has_room(self, mode: GuaranteeMode) -> bool:
        """Tells whether the guarantee entitles the ask by itself: it holds less than the guarantee or, in mode
        ``strict``, no more than that together with the ask."""
        return self.held < self.most if mode is GuaranteeMode.REACH else self.held + self.asked <= self.most


def list_guarantees(
    ask: Allocation, held_by: HeldBy = project_usage, pairs: Pairs | None = None
) -> Iterator[Guarantee]:
    """Yields the guarantees that decide about *ask*; types that no queue on its path guarantees are left out. *pairs*:
    what it asks for together with others of its gang."""
    lineage = ask.queue.lineage()
    for t, asked in ask.shape.pairs if pairs is None else pairs:
        for queue in lineage:
            if t in queue.guaranteed:
                yield Guarantee(t, asked, queue, queue.guaranteed[t], held_by(queue, t))
                break
