"""Task groups: the placeholders of a gang that real asks of the same group may replace (scheduling.md 10.1), and the
members that run (10.7)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kornel.core.model.orders.keyed_heap import KeyedHeap

if TYPE_CHECKING:
    from kornel.core.domain.topology import TopologyRequest
    from kornel.core.model.allocations import Allocation
    from kornel.core.model.shapes import Shape


by_order: Final[Callable[[Allocation], tuple[int, int, int]]] = attrgetter("order")


def _by_age(placeholder: Allocation) -> tuple[int, str]:
    return (placeholder.created_ns, placeholder.key)


class TaskGroup:
    """One task group of one application. Its counts only grow: ``count`` >= ``replaced`` + ``timed_out`` at any time
    (I10).

    ``shape`` and ``topology`` are those of the first placeholder; by contract they are the same for all.
    """

    __slots__ = (
        "asks", "count", "free", "lost", "name", "replaced", "shape", "stated_minimum", "timed_out", "topology",
    )  # fmt: skip

    def __init__(
        self, name: str, shape: Shape, stated_minimum: int | None = None, topology: TopologyRequest | None = None
    ) -> None:
        self.name: Final = name
        self.shape: Final = shape
        self.topology: Final = topology
        self.stated_minimum: Final = stated_minimum
        """The number of members below which the group is of no use, if the first placeholder says so."""
        self.count = 0
        """The number of placeholders ever asked for or recovered."""
        self.replaced = 0
        """The number of placeholders replaced by a real allocation, as confirmed by the shim."""
        self.timed_out = 0
        """The number of placeholders gone in any other way."""
        self.lost = 0
        """The number of those that ended with their node or by preemption and have not been asked for again since, so
        that their members are still to come."""
        self.asks: KeyedHeap[Allocation] = KeyedHeap(by_order)
        """The pending real asks that wait for a placeholder instead of a node."""
        self.free: KeyedHeap[Allocation] = KeyedHeap(_by_age)
        """The allocated placeholders that are not being released, the oldest first."""

    @property
    def open(self) -> bool:
        """Tells whether a placeholder is left, allocated or pending, that a real ask may replace (scheduling.md
        10.2)."""
        return self.count > self.replaced + self.timed_out

    def minimum(self, *, hard: bool) -> int:
        """Returns the number of members that have to run for any of them to be useful. If the shim has not given it, it
        is all placeholders for a *hard* gang, without those that were given up, and one otherwise."""
        if self.stated_minimum is not None:
            return self.stated_minimum
        return self.count - self.timed_out + self.lost if hard else 1

    def __repr__(self) -> str:
        return f"TaskGroup({self.name}: {self.count}, {self.replaced} replaced, {self.timed_out} timed out)"


class GroupMembers:
    """The members of one task group that run, placeholders and tasks, and those that are still to come."""

    __slots__ = ("gather_until_ns", "in_turn", "most", "running", "short")

    def __init__(self) -> None:
        self.running = 0
        """The number of members that are allocated, those included that were asked to leave."""
        self.most = 0
        """The most that were allocated at once since the first of those that ran last."""
        self.short = 0
        """The number of members that the running ones lack for their minimum since those were lost; 0 if none runs."""
        self.in_turn = False
        """Tells whether some real ask of the group depends on other placements, so that they are placed one by one."""
        self.gather_until_ns: int | None = None
        """The time until which further members are waited for; ``None``: it begins when the members that wait are next
        looked at."""

    def count_members(self, change: int) -> None:
        """Counts *change* more members as allocated."""
        self.running += change
        if change > 0:
            self.most = 1 if self.running == 1 else max(self.most, self.running)

    def describe_number(self) -> str:
        """Returns how many members run and how many would run if none were missing, for people: ``2 of 4``."""
        return f"{self.running} of {self.running + self.short}"

    def __repr__(self) -> str:
        return f"GroupMembers({self.running} of {self.most})"
