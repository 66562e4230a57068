"""What a round of the periodic policy comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from core.model.allocations import Allocation, Reservation
from core.model.queues import Queue
from core.model.shapes import Pairs

KIND: Final = "monitor"


class Selection:
    """Who should go, in the order of selection, within *limits*: the most one round may select, by type."""

    __slots__ = ("allocations", "lacking", "limits", "neediest", "reservations", "selected", "targets", "waits")

    def __init__(self, limits: dict[int, int]) -> None:
        self.limits: Final = limits
        self.selected: Final[dict[int, int]] = {}
        self.allocations: Final[list[Allocation]] = []
        self.waits: Final[dict[str, int]] = {}
        """By key: nanoseconds from notice to kill."""
        self.targets: Final[dict[Queue, dict[int, int]]] = {}
        """By leaf and type: what it should give up in this turn."""
        self.lacking: Final[dict[str, dict[int, int]]] = {}
        """By path of leaf and type: what it should hold more."""
        self.neediest: Final[dict[int, Queue]] = {}
        """By type: the leaf that lacks most of what it should hold, the first by path among equals."""
        self.reservations: Final[list[Reservation]] = []
        """To be given back: their applications are asked for what they hold already."""

    def fits(self, pairs: Pairs) -> bool:
        """Whether *pairs* may still be selected in this round."""
        return all(self.selected.get(t, 0) + amount <= self.limits.get(t, 0) for t, amount in pairs)

    def count(self, pairs: Pairs) -> None:
        """*pairs* are selected; negative amounts are not any more."""
        for t, amount in pairs:
            self.selected[t] = self.selected.get(t, 0) + amount

    def add(self, allocation: Allocation, wait_ns: int) -> None:
        self.allocations.append(allocation)
        self.waits[allocation.key] = wait_ns


@dataclass(frozen=True, slots=True)
class Doomed:
    """A victim whose time is up: notified at ``notified_ns`` in round ``first_round``, selected ``times`` since."""

    allocation: Allocation
    notified_ns: int
    first_round: int
    times: int


@dataclass(frozen=True, slots=True)
class MonitorPlan:
    """Mark *victims*, as part of *round*.

    ``limits`` is what one round may select, ``selected`` what this one selected, both by type.
    """

    round: int
    now_ns: int
    max_wait_ns: int
    victims: tuple[Doomed, ...]
    limits: Mapping[int, int]
    selected: Mapping[int, int]
