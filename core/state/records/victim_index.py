"""Keeps the allocations of each leaf in the order in which preemption would take them, from one attempt to the next.

Most attempts only look at the first few allocations of each leaf, but without an order they would have to look at all.
The order depends on the flags, the priority and the age of allocations. So it is computed again only for a leaf whose
allocations have changed. That is found by comparison with the leaf itself, not by notifications, which code might
forget to send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, overload

from kornel.core.domain.priorities import PRIORITY_MIN
from kornel.core.model.allocations import BOUND, Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.state.records.giving_queues import GivingQueues

Ranked = tuple[int, int, str, Allocation]
"""An allocation as (priority, age, key, allocation); the smallest is taken first."""

IDLE_NS: Final = 2**64
"""Added to the age of placeholders, this makes those that are not replaced yet younger than every allocation that does
work."""

CLASSES = (0, 1, 2, 3)
"""The classes of victims by reluctance: 0 ordinary, +1 opted out, +2 originator; a class is taken only after all before
it (law 1).

With an originator, its whole application is lost; with a task that opted out, only that task.
"""

MILDEST = ((False, False), (False, True), (True, False), (True, True))
"""The first part of the key, (any originator, any opted out), of the best solution that needs the class of the same
index."""

_shape_of = attrgetter("shape")
_standing_of = attrgetter("standing")


def reluctance_of(allocation: Allocation) -> int:
    """Returns the class of *allocation* as a victim, one of :data:`CLASSES`."""
    spec = allocation.spec
    return (2 if spec.originator else 0) + (0 if spec.allow_preempt_self else 1)


def age_of(allocation: Allocation) -> int:
    """Returns the key that orders equally important victims: idle placeholders first, then the youngest."""
    return -allocation.created_ns - IDLE_NS if allocation.spec.placeholder else -allocation.created_ns


class Band:
    """The allocations of one class and priority, which differ in age only. They are sorted when they are first read."""

    __slots__ = ("_allocations", "_sorted", "priority")

    def __init__(self, priority: int, allocations: list[Allocation]) -> None:
        self.priority: Final = priority
        self._allocations = allocations
        self._sorted = False

    def __len__(self) -> int:
        return len(self._allocations)

    def in_order(self) -> list[Allocation]:
        """Returns the allocations, idle placeholders first, then the youngest. Those of equal age are in no particular
        order, because a merge of several leaves has to sort them anyway."""
        if not self._sorted:
            self._allocations.sort(key=age_of)
            self._sorted = True
        return self._allocations


class InOrder(Sequence[Ranked]):
    """The possible victims of one class in order. Most attempts read only a few, so the rest is not sorted."""

    __slots__ = ("_bands", "_length", "_opened", "_reached")

    def __init__(self, bands: Sequence[Band]) -> None:
        self._bands: Final = bands
        self._length: Final = sum(map(len, bands))
        self._opened = 0
        self._reached: list[Allocation] = []

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Ranked: ...
    @overload
    def __getitem__(self, at: slice) -> list[Ranked]: ...
    def __getitem__(self, at: int | slice) -> Ranked | list[Ranked]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(self._length))]
        if at < 0:
            at += self._length
        if not 0 <= at < self._length:
            raise IndexError(at)
        reached = self._reached
        while at >= len(reached):
            reached += self._bands[self._opened].in_order()
            self._opened += 1
        allocation = reached[at]
        return (allocation.spec.priority, age_of(allocation), allocation.key, allocation)


class RankedLeaf:
    """The allocations of one leaf by class, in order. Allocations with a required node are left out, because they are
    never victims."""

    __slots__ = ("_allocations", "_bands", "_by_age", "_shapes", "highest", "required", "shapes", "sizes", "total")

    def __init__(self, allocations: list[Allocation], shapes: list[Shape]) -> None:
        self._allocations = allocations
        self._shapes = shapes
        alike: dict[int, list[Allocation]] = {}
        for allocation, standing in zip(allocations, map(_standing_of, allocations), strict=True):
            found = alike.get(standing)
            if found is None:
                alike[standing] = [allocation]
            else:
                found.append(allocation)
        self._bands: tuple[list[Band], ...] = tuple([] for _ in CLASSES)
        """The bands of each class, in the order of their priorities."""
        self._by_age: dict[tuple[int, int], Band] = {}
        """The bands of a class merged by age, by class and number of bands merged."""
        self.sizes = Counter(shapes)
        """The number of possible victims of each size."""
        self.total = len(allocations)
        self.required = 0
        """The number of allocations with a required node, which are left out."""
        self.highest = PRIORITY_MIN
        """The highest priority of a possible victim."""
        for standing in sorted(alike):
            equals = alike[standing]
            if standing & BOUND:
                self.required += len(equals)
                self.sizes.subtract(map(_shape_of, equals))
            else:
                priority = standing >> 3
                self._bands[standing & 3].append(Band(priority, equals))
                self.highest = max(self.highest, priority)
        self.shapes = frozenset(self.sizes)

    def count_class(self, c: int) -> int:
        """Returns the number of possible victims of class *c*."""
        return sum(map(len, self._bands[c]))

    def in_order(self, c: int, highest: int | None = None, *, by_age: bool = False) -> InOrder:
        """Returns the possible victims of class *c* up to the priority *highest* (``None``: all).

        With *by_age*, they are in the order behind a priority fence, where all priorities look the same.
        """
        bands = [band for band in self._bands[c] if highest is None or band.priority <= highest]
        if by_age and len(bands) > 1:
            merged = self._by_age.get((c, len(bands)))
            if merged is None:
                everybody = [allocation for band in bands for allocation in band.in_order()]
                merged = self._by_age[c, len(bands)] = Band(bands[0].priority, everybody)
            bands = [merged]
        return InOrder(bands)

    def is_current(self, allocations: list[Allocation], shapes: list[Shape]) -> bool:
        """Tells whether this order was made for exactly these *allocations*, with these *shapes*."""
        return self._allocations == allocations and self._shapes == shapes


class VictimIndex:
    """The ranked leaves of one partition, by queue, and by the queue above them, what they may give up."""

    def __init__(self) -> None:
        self._leaves: dict[Queue, RankedLeaf] = {}
        self._giving: dict[Queue, GivingQueues] = {}
        self.protected: Final[dict[Node, int]] = {}
        """The nodes on which searches have met tasks that their minimum run time protects, each with the first time at
        which such a protection ends. Whoever searches for the partition clears it."""

    def sort_below(self, parent: Queue) -> GivingQueues:
        """Returns the queues directly below *parent* as they are now, by the types of which they may give something
        up."""
        known = self._giving.get(parent) or self._giving.setdefault(parent, GivingQueues())
        known.compare_children(parent)
        return known

    def rank_leaf(self, leaf: Queue) -> RankedLeaf:
        """Returns the allocations of *leaf* as they are now, ranked."""
        allocations: list[Allocation] = []
        for application in leaf.applications.values():
            allocations += application.allocations.values()
        shapes = list(map(_shape_of, allocations))
        known = self._leaves.get(leaf)
        if known is None or not known.is_current(allocations, shapes):
            known = self._leaves[leaf] = RankedLeaf(allocations, shapes)
        return known

    def note_protected(self, task: Allocation, until_ns: int) -> None:
        """Notes that a search has met *task*, which is protected until *until_ns*."""
        node = task.node
        if node is not None and until_ns < self.protected.get(node, until_ns + 1):
            self.protected[node] = until_ns

    def drop_ranking(self, leaf: Queue) -> None:
        """Drops the order of *leaf*, because the rank of an allocation there has changed."""
        self._leaves.pop(leaf, None)

    def keep_only(self, leaves: set[Queue]) -> None:
        """Drops what is kept of all other queues; to be called now and then, because it keeps allocations that have
        left."""
        self._leaves = {leaf: ranked for leaf, ranked in self._leaves.items() if leaf in leaves}
        parents = {queue for leaf in leaves for queue in leaf.lineage()}
        self._giving = {parent: giving for parent, giving in self._giving.items() if parent in parents}
