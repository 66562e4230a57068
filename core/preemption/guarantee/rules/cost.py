"""Defines the costs of victims, for orders other than priority and age (preemption.md F11).

Only the order within a class changes: tasks that opted out and originators are still taken last (law 1), and no law is
weakened. A cost function returns a number, and a comparator says which of two victims goes first; both are turned into
prices. To add an order that ``preemption.cost`` can name, write it here, with a line in :data:`COSTS`, and add its name
to the keys of the kind in ``core/domain/preemption_kinds.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.run_times import unsaved_since

Checkpoints = Mapping[str, int]
"""The times when allocations last saved their work, by key."""

Pricing = Callable[[Sequence[Allocation], Allocation, int, Checkpoints], Mapping[Allocation, int]]
"""A function (candidates, ask, now in ns, checkpoints) -> the price of each. The cheapest goes first, and of equal ones
the youngest."""

Cost = Callable[[Allocation, Allocation, int, Checkpoints], int]
"""A function (candidate, ask, now in ns, checkpoints) -> its price."""

Comparator = Callable[[Allocation, Allocation, Allocation], int]
"""A function (one, other, ask) -> a number: below 0 if *one* goes first, 0 if they are equal."""

SECOND_NS: Final = 10**9


def by_cost(cost: Cost) -> Pricing:
    """Returns the pricing by the cost function *cost*."""

    def prices(
        candidates: Sequence[Allocation], ask: Allocation, now_ns: int, checkpoints: Checkpoints
    ) -> Mapping[Allocation, int]:
        return {candidate: cost(candidate, ask, now_ns, checkpoints) for candidate in candidates}

    return prices


def by_comparison(compare: Comparator) -> Pricing:
    """Returns the pricing by the comparator *compare*: the price is the rank of a candidate, which equal ones share."""

    def prices(
        candidates: Sequence[Allocation], ask: Allocation, _: int, _checkpoints: Checkpoints
    ) -> Mapping[Allocation, int]:
        def order(one: Allocation, other: Allocation) -> int:
            return compare(one, other, ask)

        found: dict[Allocation, int] = {}
        rank, before = 0, None
        for candidate in sorted(sorted(candidates, key=lambda c: c.key), key=cmp_to_key(order)):
            if before is not None and compare(before, candidate, ask):
                rank += 1
            found[candidate] = rank
            before = candidate
        return found

    return prices


def work_lost(victim: Allocation, ask: Allocation, now_ns: int, checkpoints: Checkpoints) -> int:
    """Returns the seconds that *victim* has run since its work was last saved, times its size in thousandths of *ask*;
    for an originator, the sum for its application (preemption.md K7)."""
    demand = ask.shape.amounts
    lost = 0
    for allocation in victim.application.allocations.values() if victim.spec.originator else (victim,):
        seconds = max(0, now_ns - unsaved_since(allocation, checkpoints)) // SECOND_NS
        parts = (amount * 1000 // demand[t] for t, amount in allocation.shape.pairs if t in demand)
        lost += max(parts, default=0) * seconds
    return lost


lost_work: Final = by_cost(work_lost)


COSTS: Final[Mapping[str, Pricing | None]] = {
    "default": None,
    "lost-work": lost_work,
}
"""The order of victims within a class, by the value of ``preemption.cost`` (preemption.md F11); ``None``: priority,
then age (B.5)."""
