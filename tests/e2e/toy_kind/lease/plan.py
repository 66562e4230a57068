"""Who has run for too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.policies.view import PartitionView

NAME: Final = "lease"


@dataclass(frozen=True, slots=True)
class LeasePlan:
    """End *victims*, which have all run for longer than *longest_ns* at *now_ns*."""

    victims: tuple[Allocation, ...]
    longest_ns: int
    now_ns: int


def plan(view: PartitionView, longest_ns: int, now_ns: int) -> LeasePlan:
    """Returns everybody whose lease is over. Changes nothing."""
    victims = [
        allocation
        for node in view.nodes.values()
        for allocation in node.allocations.values()
        if now_ns - allocation.bound_ns > longest_ns and not allocation.preempted and not allocation.released
    ]
    return LeasePlan(tuple(victims), longest_ns, now_ns)
