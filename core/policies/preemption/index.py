"""The allocations of each leaf, in the order in which preemption would take them, kept from one attempt to the next.

Most attempts look at a handful of victims, the first few of each leaf, but without an order they would have to look at
all. The order hangs on what never changes in an allocation's life: its flags, priority and age. So it is worked out
again only for a leaf whose allocations changed, which is checked against the leaf itself, not left to notifications
that somebody might forget to send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter

from core.domain.priorities import PRIORITY_MIN
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.model.shapes import Shape

Ranked = tuple[int, int, str, Allocation]
"""(priority, -created, key, allocation), the first to go first."""

CLASSES = (0, 1, 2, 3)
"""How reluctant a victim is: 0 plain, +1 originator, +2 opted out (law 1: each goes only after all before it)."""

MILDEST = ((False, False), (False, True), (True, False), (True, True))
"""The best a solution can be, as (any opted out, any originator), that needs the class of the same index."""

_shape_of = attrgetter("shape")


def reluctance(allocation: Allocation) -> int:
    """The class of *allocation* as a victim, one of :data:`CLASSES`."""
    spec = allocation.spec
    return (0 if spec.allow_preempt_self else 2) + (1 if spec.originator else 0)


class RankedLeaf:
    """One leaf's allocations by class, in order. Those bound to their required node are never victims: left out."""

    __slots__ = ("_allocations", "_by_age", "_shapes", "by_priority", "highest", "required", "shapes", "sizes", "total")

    def __init__(self, allocations: list[Allocation], shapes: list[Shape]) -> None:
        self._allocations = allocations
        self._shapes = shapes
        self.by_priority: tuple[list[Ranked], ...] = tuple([] for _ in CLASSES)
        by_class = self.by_priority
        bound: list[Shape] = []
        for allocation in allocations:
            spec = allocation.spec
            if not spec.required_node:
                # reluctance(), written out: this runs once for every allocation there is.
                c = (0 if spec.allow_preempt_self else 2) + (1 if spec.originator else 0)
                by_class[c].append((spec.priority, -allocation.created_ns, allocation.key, allocation))
            else:
                bound.append(allocation.shape)
        for entries in self.by_priority:
            entries.sort()
        self.sizes = Counter(shapes)
        self.sizes.subtract(bound)
        """How many may be victims of each size."""
        self.highest = max((entries[-1][0] for entries in self.by_priority if entries), default=PRIORITY_MIN)
        """Of their priorities."""
        self.shapes = frozenset(shapes)
        self.total = len(allocations)
        self.required = self.total - sum(map(len, self.by_priority))
        """How many were left out."""
        self._by_age: tuple[list[Ranked], ...] | None = None

    def by_age(self) -> tuple[list[Ranked], ...]:
        """The order behind a priority fence, where all priorities look the same."""
        if self._by_age is None:
            self._by_age = tuple(sorted(entries, key=lambda entry: entry[1:3]) for entries in self.by_priority)
        return self._by_age

    def holds(self, allocations: list[Allocation], shapes: list[Shape]) -> bool:
        """Whether this is the order of just these allocations, with these sizes."""
        return self._allocations == allocations and self._shapes == shapes


class VictimIndex:
    """Ranked leaves by queue. One belongs to one partition."""

    def __init__(self) -> None:
        self._leaves: dict[Queue, RankedLeaf] = {}

    def of(self, leaf: Queue) -> RankedLeaf:
        """The allocations of *leaf* as they are now, in order."""
        allocations: list[Allocation] = []
        for application in leaf.applications.values():
            allocations += application.allocations.values()
        shapes = list(map(_shape_of, allocations))
        known = self._leaves.get(leaf)
        if known is None or not known.holds(allocations, shapes):
            known = self._leaves[leaf] = RankedLeaf(allocations, shapes)
        return known

    def known(self) -> Mapping[Queue, RankedLeaf]:
        """What is ranked already, up to date or not: for whoever must not add to it."""
        return self._leaves

    def keep_only(self, leaves: set[Queue]) -> None:
        """Forget all other queues; to be called now and then, since these keep what left them."""
        self._leaves = {leaf: ranked for leaf, ranked in self._leaves.items() if leaf in leaves}
