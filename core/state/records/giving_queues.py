"""Sorts the queues directly below one queue by what the laws tell them apart by.

There may be thousands, and hardly one changes between two attempts. As for nodes, changes are found by a comparison
(:mod:`kornel.core.model.orders.numbered_nodes`), which takes no step of the interpreter for each queue, so nothing can
forget to announce them.
"""

from __future__ import annotations

from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final, NamedTuple

from kornel.core.domain.settings import PreemptionPolicyKind, PriorityPolicy
from kornel.core.model.queues import Queue

_SETTINGS = ("properties.preemption_policy", "properties.priority_policy", "properties.priority_offset")
_settings_of = attrgetter(*_SETTINGS)
_state_of = attrgetter("leaf", "guaranteed", "used", "preempting", *_SETTINGS)


class Alike(NamedTuple):
    """The traits of a leaf by which the laws judge it; leaves below one queue that share them have the same rules."""

    given: frozenset[int]
    """The types of which they may give something up."""
    guaranteed: frozenset[int]
    preemption_policy: PreemptionPolicyKind
    priority_policy: PriorityPolicy
    priority_offset: int


class GivingQueues:
    """The queues below one queue that hold anything, as at the last look."""

    __slots__ = ("_groups", "_known", "leaves", "parents")

    def __init__(self) -> None:
        self.leaves: Final[dict[Alike, dict[Queue, None]]] = {}
        self.parents: Final[dict[Queue, None]] = {}
        self._groups: dict[Queue, dict[Queue, None]] = {}
        """For each queue, that of the maps above in which it is."""
        self._known: dict[Queue, tuple[Any, ...]] = {}
        """The state of each queue at the last look."""

    def compare_children(self, parent: Queue) -> None:
        """Looks at all queues directly below *parent*."""
        known, children = self._known, parent.children.values()
        changed = list(compress(children, map(ne, map(_state_of, children), map(known.get, children))))
        if len(known) + sum(queue not in known for queue in changed) > len(children):
            for queue in known.keys() - children:
                del known[queue]
                self._take_out(queue)
        for queue in changed:
            self._take_out(queue)
            used, leaving = queue.used.copy(), queue.preempting.copy()
            known[queue] = (queue.leaf, queue.guaranteed, used, leaving, *_settings_of(queue))
            if any(queue.used):
                group = self.parents
                if queue.leaf:
                    group = self.leaves.setdefault(describe_leaf(queue), {})
                group[queue] = None
                self._groups[queue] = group

    def _take_out(self, queue: Queue) -> None:
        group = self._groups.pop(queue, None)
        if group is not None:
            del group[queue]


def describe_leaf(leaf: Queue) -> Alike:
    """Returns the traits of *leaf*; it may give up types of which it holds more than its guarantee, or has none."""
    guaranteed, used, leaving = leaf.guaranteed, leaf.used, leaf.preempting
    given = frozenset(t for t in range(len(used)) if t not in guaranteed or used[t] - leaving[t] > guaranteed[t])
    return Alike(given, frozenset(guaranteed), *_settings_of(leaf))
