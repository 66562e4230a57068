"""Task groups: the placeholders of a gang that may be traded for real asks of the same group (scheduling.md 10.1)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kornel.core.model.keyed_heap import KeyedHeap

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation
    from kornel.core.model.shapes import Shape


def _by_age(placeholder: Allocation) -> tuple[int, str]:
    return (placeholder.created_ns, placeholder.key)


class TaskGroup:
    """One group of one application. Counts only grow: ``count`` >= ``replaced`` + ``timed_out`` at any time (I10).

    ``shape`` is that of the first placeholder; by contract all have it.
    """

    __slots__ = ("asks", "count", "free", "name", "replaced", "shape", "stated_minimum", "timed_out")

    def __init__(self, name: str, shape: Shape, stated_minimum: int | None = None) -> None:
        self.name: Final = name
        self.shape: Final = shape
        self.stated_minimum: Final = stated_minimum
        """The number of members that are of use to anybody, if the first placeholder says so."""
        self.count = 0
        """Placeholders ever asked for or recovered."""
        self.replaced = 0
        """The number of placeholders traded for a real allocation, which the shim confirmed."""
        self.timed_out = 0
        """The number of placeholders gone in any other way."""
        self.asks: KeyedHeap[Allocation] = KeyedHeap(attrgetter("order"))
        """Pending real asks that wait for a placeholder instead of a node."""
        self.free: KeyedHeap[Allocation] = KeyedHeap(_by_age)
        """The allocated placeholders whose release nobody asked for, oldest first."""

    @property
    def open(self) -> bool:
        """Tells whether a placeholder is left that may come to stand in for a real ask (scheduling.md 10.2)."""
        return self.count > self.replaced + self.timed_out

    def minimum(self, *, hard: bool) -> int:
        """Returns how many members have to run for any of them to be of use: all placeholders of a *hard* gang that are
        not gone, otherwise one, unless the shim says something else."""
        if self.stated_minimum is not None:
            return self.stated_minimum
        return self.count - self.timed_out if hard else 1

    def __repr__(self) -> str:
        return f"TaskGroup({self.name}: {self.count}, {self.replaced} replaced, {self.timed_out} timed out)"
