"""Computes what a place for an ask on a node would cost at least (preemption.md B.6).

The bound depends on the node and on the victims that the laws allow one by one, but not on how many of them may leave
together, which is only determined for the nodes that an attempt looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import BOUND
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.guarantee.allowances import LeafTerms, Terms
from kornel.core.preemption.victim_index import CLASSES, IDLE_NS, MILDEST, age_of

_PREEMPTED: Final = AskPlace.PREEMPTED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every allocation on a node
is tested."""

Cost = tuple[bool, bool, int, int]
"""The part of a bound that many nodes have in common: (any originator, any opted out, victims, highest adjusted
priority)."""

Bound = tuple[Cost, int]
"""A lower bound of the keys of all solutions on a node, without depth and node ID: (cost, age of the oldest victim)."""

GLANCES: Final = 5
"""The number of nodes that can be judged by their sums in the time of one node whose victims have to be
distinguished."""

SINGLE: Final = 2
"""The effort for a node on which a single ordinary victim is enough, where a glance is 1."""

MISSES: Final = 3
"""The number of nodes in one step for which a shorter way was in vain, after which the longer way is taken at once."""

_CLASS: Final = 7
"""The bits of ``Allocation.standing`` that hold the class, below the priority."""

_ALONE: Final = (*MILDEST[0], 1)

_Victim = tuple[int, int, tuple[int, ...]]
"""A possible victim as (adjusted priority, age, amount by asked type)."""


class NodeJudge:
    """Judges nodes for asks of one demand in one step, under the laws of one attempt."""

    def __init__(self, demand: Pairs, unowed: frozenset[int], leaves: Mapping[Queue, LeafTerms], laws: Terms) -> None:
        """*unowed*: the types for which a victim needs a guarantee of its own. *leaves*: those that the laws do not
        protect as a whole."""
        self._demand = demand
        self._unowed = unowed
        self._leaves = leaves
        self._laws = laws
        self._amounts: dict[Shape, tuple[int, ...]] = {}
        self._misses = 0
        """The number of nodes, beyond those on which a single victim is enough, on which it is not."""
        self._reached = 0
        """The number of nodes in a row on which several victims were enough, so that a glance was in vain."""
        self.effort = 0
        """The effort that was spent so far."""
        self.blocked: dict[Queue, dict[Shape, None]] = {}
        """By leaf, the shapes that a law protected, so that bounds leave them out."""

    def has_room(self, node: Node) -> bool:
        """Tells whether *node* has room for the ask, or will have it once present victims have left."""
        room = node.beside
        return all(room[t] >= amount for t, amount in self._demand)

    def find_bound(self, node: Node) -> Bound | None:
        """Returns the bound of *node*, which lacks room; ``None``: victims cannot make enough."""
        if not node.could_hold(self._demand):
            self.effort += 1
            return None
        room = node.beside
        short = [(at, amount - room[t]) for at, (t, amount) in enumerate(self._demand) if amount > room[t]]
        if self._misses < MISSES and (bound := self._find_single(node, short)) is not None:
            self.effort += SINGLE
            self._misses -= self._misses > 0
            return bound
        self._misses += 1
        if self._reached < MISSES and self._out_of_reach(node, short):
            self._reached = 0
            self.effort += 1
            return None
        self.effort += GLANCES
        bound = self._find_several(node, short)
        self._reached = 0 if bound is None else self._reached + 1
        return bound

    def _out_of_reach(self, node: Node, short: list[tuple[int, int]]) -> bool:
        """Tells whether *node* would stay *short* even without all allocations of leaves that may give anything up.

        Some of these allocations may be protected, so the answer holds until the node changes or another leaf may give
        something up.
        """
        left = dict(short)
        for allocation in node.allocations.values():
            if allocation.application.queue not in self._leaves:
                continue
            amounts = self._amounts_of(allocation.shape)
            for at, _ in short:
                left[at] -= amounts[at]
            if max(left.values()) <= 0:
                return False
        return True

    def _amounts_of(self, shape: Shape) -> tuple[int, ...]:
        amounts = self._amounts.get(shape)
        if amounts is None:
            by_type = dict(shape.pairs)
            amounts = self._amounts[shape] = tuple(by_type.get(t, 0) for t, _ in self._demand)
        return amounts

    def _is_blocked(self, terms: LeafTerms, shape: Shape) -> bool:
        """Tells whether a law protects all allocations of *shape* in the leaf of *terms*, and notes it."""
        if shape in terms.kinds or not isinstance(self._laws.kind_of(terms, shape), str):
            return False
        self.blocked.setdefault(terms.leaf, {})[shape] = None
        return True

    def _find_single(self, node: Node, short: list[tuple[int, int]]) -> Bound | None:
        """Returns the bound of *node* if it has a victim of the first class that is enough alone, otherwise ``None``.

        The bound is that of :meth:`_find_several`. The first attempt of its kind looks at all allocations of the
        cluster here, so nothing is called for each of them, and neighbours of one application and size are judged once.
        """
        leaves = self._leaves
        sought = self._sought_types(short) if self._unowed else None
        application: Application | None = None
        shape: Shape | None = None
        usable = covers = enough = False
        highest: int | None = None
        fixed: int | None = None
        offset = 0
        lowest = 0
        first: int | None = None
        for allocation in node.allocations.values():
            if allocation.shape is not shape or allocation.application is not application:
                application, shape = allocation.application, allocation.shape
                terms = leaves.get(application.queue)
                usable = terms is not None and (sought is None or not sought.isdisjoint(terms.declared))
                if terms is None or not usable:
                    continue
                if shape not in terms.kinds and self._is_blocked(terms, shape):
                    usable = False
                    continue
                highest, (fixed, offset) = terms.highest, terms.adjusted
                covers = False
                if not enough:
                    amounts = self._amounts_of(shape)
                    covers = all(amounts[at] >= amount for at, amount in short)
            if not usable:
                continue
            standing = allocation.standing
            if standing & _CLASS or allocation.place is _PREEMPTED:
                continue
            standing >>= 3
            if highest is not None and standing > highest:
                continue
            if covers:
                enough = True
            priority = (standing if fixed is None else fixed) + offset
            if first is not None and priority > lowest:
                continue
            age = -allocation.created_ns - IDLE_NS if allocation.spec.placeholder else -allocation.created_ns
            if first is None or priority < lowest or age < first:
                lowest, first = priority, age
        if first is None or not enough:
            return None
        return (*_ALONE, lowest), first

    def _find_several(self, node: Node, short: list[tuple[int, int]]) -> Bound | None:
        by_class = self._victims_on(node, self._sought_types(short))
        pool: list[_Victim] = []
        for level in CLASSES:
            if not by_class[level]:
                continue
            pool += by_class[level]
            least = _fewest_victims(short, pool)
            if least:
                pool.sort()
                highest = pool[least - 1][0]
                oldest = sorted(victim[1] for victim in pool if victim[0] <= highest)[least - 1]
                return (*MILDEST[level], least, highest), oldest
        return None

    def _sought_types(self, short: list[tuple[int, int]]) -> set[int] | None:
        """Returns the types that a node is *short* of if no guarantee covers any of them: then a victim must belong to
        a queue with a guarantee of one of them. Otherwise returns ``None``."""
        types = {self._demand[at][0] for at, _ in short}
        return types if self._unowed.issuperset(types) else None

    def _victims_on(self, node: Node, sought: set[int] | None) -> list[list[_Victim]]:
        """Returns the possible victims on *node* by class. *sought*: the types of which a victim's queue needs a
        guarantee of one."""
        found: list[list[_Victim]] = [[] for _ in CLASSES]
        leaves, known = self._leaves, self._amounts
        for allocation in node.allocations.values():
            terms = leaves.get(allocation.application.queue)
            standing = allocation.standing
            if terms is None or standing & BOUND or (terms.highest is not None and standing >> 3 > terms.highest):
                continue
            if allocation.place is _PREEMPTED:
                # It leaves for another ask. If it counted, every node with claims would look as promising as one
                # without.
                continue
            if sought is not None and sought.isdisjoint(terms.declared):
                continue
            shape = allocation.shape
            if shape not in terms.kinds and self._is_blocked(terms, shape):
                continue
            amounts = known.get(shape) or self._amounts_of(shape)
            found[standing & 3].append((terms.adjusted.of(standing >> 3), age_of(allocation), amounts))
        return found


def _fewest_victims(short: list[tuple[int, int]], pool: list[_Victim]) -> int:
    """Returns a lower bound of the number of victims of *pool* that cover what is *short*; 0: even all together do
    not."""
    fewest = 1
    for at, amount in short:
        needed, left = 0, amount
        for gain in sorted([victim[2][at] for victim in pool], reverse=True):
            needed += 1
            left -= gain
            if left <= 0:
                break
        else:
            return 0
        fewest = max(fewest, needed)
    if fewest > 1 or len(short) == 1 or any(all(victim[2][at] >= amount for at, amount in short) for victim in pool):
        return fewest
    return 2 if len(pool) > 1 else 0
