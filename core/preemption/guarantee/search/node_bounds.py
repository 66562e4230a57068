"""Computes what a place for an ask on a node would cost at least (preemption.md B.6).

The bound depends on the victims that the laws allow one by one, but not on how many of them may leave together, which
is only determined for the nodes that an attempt looks at. It is found in two stages: where one victim is enough, nobody
has to look for several.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.priorities import PRIORITY_MAX
from kornel.core.model.allocations import BOUND
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.state.records.victim_index import CLASSES, MILDEST, age_of

_PREEMPTED: Final = AskPlace.PREEMPTED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every allocation on a node
is tested."""

Cost = tuple[bool, bool, int, int]
"""The part of a bound that many nodes have in common: (any originator, any opted out, victims, highest adjusted
priority)."""

Bound = tuple[Cost, int]
"""A lower bound of the keys of all solutions on a node, without depth and node ID: (cost, age of the oldest victim)."""

GLANCES: Final = 5
"""The number of nodes that can be looked at for all questions in the time of one fine bound."""

SINGLE: Final = 2
"""The effort to find out whether a single ordinary victim is enough on a node, where a glance is 1."""

_CLASS: Final = 7
"""The bits of ``Allocation.standing`` that hold the class, below the priority."""

HIGHEST: Final = 2**80
"""A number above every adjusted priority."""

MOST_PAIRED: Final = 24
"""The number of possible victims on a node up to which all pairs are tried."""

ALONE: Final = (*MILDEST[0], 1)
"""The beginning of the cost of one ordinary victim."""

Position = tuple[int, str]
"""The position of a node among those of equal cost: (age of the oldest victim, node ID)."""

_Allocated = tuple[Queue, int, int, Shape, dict[int, int]]
"""An allocation as (leaf, standing, age, shape, amounts by type)."""

_Victim = tuple[int, int, dict[int, int]]
"""A possible victim as (adjusted priority, age, amounts by type)."""

_BY_PRIORITY_AND_AGE: Final = itemgetter(0, 1)


class LeafShare:
    """The allocations of one leaf on one node that might leave, whatever the laws say for an ask, in sums."""

    __slots__ = ("age", "largest", "leaf", "lowest", "mildest", "total")

    def __init__(self, leaf: Queue) -> None:
        self.leaf: Final = leaf
        self.mildest = CLASSES[-1]
        """The least class of an allocation."""
        self.lowest = PRIORITY_MAX
        """The lowest priority."""
        self.age = 0
        """The least age, that of the allocation that would go first."""
        self.largest: dict[int, int] = {}
        """The largest amount of one allocation by type."""
        self.total: dict[int, int] = {}

    def add(self, standing: int, age: int, shape: Shape) -> None:
        """Counts an allocation of *shape*."""
        if standing & 3 < self.mildest:
            self.mildest = standing & 3
        if standing >> 3 < self.lowest:
            self.lowest = standing >> 3
        if age < self.age:
            self.age = age
        largest, total = self.largest, self.total
        for t, amount in shape.pairs:
            if t in total:
                total[t] += amount
                if amount > largest[t]:
                    largest[t] = amount
            else:
                total[t] = largest[t] = amount


class NodeOffer:
    """The room and the possible victims of a node at the last look, which are the same for all questions."""

    __slots__ = ("node", "positions", "room", "shares", "victims")

    def __init__(self, node: Node) -> None:
        self.node: Final = node
        self.room: Final = node.beside
        """The room beside all claims, once present victims have left."""
        self.victims: Final[list[_Allocated]] = []
        """The allocations without tasks that must run there or are leaving."""
        self.shares: Final[list[LeafShare]] = []
        """The same in sums by leaf."""
        self.positions: Final[dict[int, Position]] = {}
        """The positions in order that bounds have given the node, so that equal ones are kept once."""
        shares: dict[Queue, LeafShare] = {}
        share: LeafShare | None = None
        for allocation in node.allocations.values():
            standing = allocation.standing
            if standing & BOUND or allocation.place is _PREEMPTED:
                continue
            leaf = allocation.application.queue
            age = age_of(allocation)
            shape = allocation.shape
            self.victims.append((leaf, standing, age, shape, shape.amounts))
            if share is None or share.leaf is not leaf:
                share = shares.get(leaf)
                if share is None:
                    share = shares[leaf] = LeafShare(leaf)
                    self.shares.append(share)
            share.add(standing, age, shape)

    def position_at(self, age: int) -> Position:
        """Returns the position in order of the node if the oldest victim has *age*."""
        place = self.positions.get(age)
        if place is None:
            place = self.positions[age] = (age, self.node.node_id)
        return place


class NodeJudge:
    """Judges nodes for asks of one demand in one attempt, under its laws."""

    def __init__(
        self,
        demand: Pairs,
        unowed: frozenset[int],
        laws: Terms,
        blocked: dict[Queue, dict[Shape, None]],
        most_effort: int,
    ) -> None:
        """*unowed*: the types for which a victim needs a guarantee of its own. *blocked*: takes note of the shapes in
        each leaf that a law protects, so that fine bounds leave them out."""
        self._demand = demand
        self._unowed = unowed
        self._leaves: Final = laws.open
        self._laws = laws
        self.effort = 0
        """The effort that was spent so far."""
        self._most_effort = most_effort
        self._blocked = blocked

    @property
    def effort_left(self) -> int:
        """The effort that this attempt may still spend."""
        return max(0, self._most_effort - self.effort)

    def is_bounded(self, shares: Iterable[LeafShare]) -> bool:
        """Tells whether a guarantee bounds what any leaf of *shares* may give up."""
        return any(share.leaf in self._leaves and self._leaves[share.leaf].bounded for share in shares)

    def find_short(self, offer: NodeOffer) -> list[tuple[int, int]]:
        """Returns what the node of *offer* is short of, as (type, amount)."""
        room = offer.room
        return [(t, amount - room[t]) for t, amount in self._demand if amount > room[t]]

    def find_single(self, offer: NodeOffer) -> Bound | None:
        """Returns the fine bound of the node of *offer*, which lacks room, if one ordinary victim is enough there;
        otherwise ``None``."""
        self.effort += SINGLE
        short = self.find_short(offer)
        sought = self._sought_types(short) if self._unowed else None
        leaves = self._leaves
        best: tuple[int, int] | None = None
        large = offer.victims
        for t, amount in short:
            large = [victim for victim in large if victim[4].get(t, 0) >= amount]
        for leaf, standing, age, shape, _ in large:
            if standing & _CLASS:
                continue
            terms = leaves.get(leaf)
            priority = standing >> 3
            if terms is None or (terms.highest is not None and priority > terms.highest):
                continue
            if sought is not None and sought.isdisjoint(terms.declared):
                continue
            if shape not in terms.effects and self._is_blocked(leaf, shape):
                continue
            found = (terms.adjusted.of(priority), age)
            if best is None or found < best:
                best = found
        return None if best is None else ((*ALONE, best[0]), best[1])

    def find_several(self, offer: NodeOffer) -> Bound | None:
        """Returns the fine bound of the node of *offer*, on which one ordinary victim is not enough; ``None``: those
        who may leave do not make enough room."""
        short = self.find_short(offer)
        by_class = self._victims_of(offer, self._sought_types(short))
        self.effort += GLANCES if any(by_class) else 1
        pool: list[_Victim] = []
        for level in CLASSES:
            if not by_class[level]:
                continue
            pool += by_class[level]
            least = _fewest_victims(short, pool)
            if not least:
                continue
            pool.sort(key=_BY_PRIORITY_AND_AGE)
            if least == 2 and len(pool) <= MOST_PAIRED:
                pair = _best_pair(short, pool)
                if pair is not None:
                    return (*MILDEST[level], 2, pair[0]), pair[1]
                if len(pool) == 2:
                    continue
                least = 3
            highest = pool[least - 1][0]
            oldest = sorted(victim[1] for victim in pool if victim[0] <= highest)[least - 1]
            return (*MILDEST[level], least, highest), oldest
        return None

    def _is_blocked(self, leaf: Queue, shape: Shape) -> bool:
        """Tells whether a law protects all allocations of *shape* in *leaf*, and notes it."""
        if not isinstance(self._laws.effects_of(leaf, shape), str):
            return False
        self._blocked.setdefault(leaf, {})[shape] = None
        return True

    def _sought_types(self, short: list[tuple[int, int]]) -> set[int] | None:
        """Returns the types that a node is *short* of if no guarantee covers any of them: then a victim must belong to
        a queue with a guarantee of one of them. Otherwise returns ``None``."""
        types = {t for t, _ in short}
        return types if self._unowed.issuperset(types) else None

    def _victims_of(self, offer: NodeOffer, sought: set[int] | None) -> list[list[_Victim]]:
        """Returns the possible victims of *offer* by class. *sought*: the types of which a victim's queue needs a
        guarantee of one."""
        found: list[list[_Victim]] = [[] for _ in CLASSES]
        leaves = self._leaves
        for leaf, standing, age, shape, amounts in offer.victims:
            terms = leaves.get(leaf)
            if terms is None or (terms.highest is not None and standing >> 3 > terms.highest):
                continue
            if sought is not None and sought.isdisjoint(terms.declared):
                continue
            if shape not in terms.effects and self._is_blocked(leaf, shape):
                continue
            found[standing & 3].append((terms.adjusted.of(standing >> 3), age, amounts))
        return found


def _best_pair(short: list[tuple[int, int]], pool: list[_Victim]) -> tuple[int, int] | None:
    """Returns the highest priority and the age of the oldest of the best two of *pool*, which is sorted, that cover
    what is *short*; ``None``: no two do."""
    best: tuple[int, int] | None = None
    for number, (priority, age, amounts) in enumerate(pool):
        if best is not None and (priority, age) >= best:
            break
        others = pool[:number]
        for t, amount in short:
            least = amount - amounts.get(t, 0)
            if least > 0:
                others = [victim for victim in others if victim[2].get(t, 0) >= least]
        if others:
            found = priority, max(age, min([victim[1] for victim in others]))
            best = found if best is None else min(best, found)
    return best


def _fewest_victims(short: list[tuple[int, int]], pool: list[_Victim]) -> int:
    """Returns a lower bound of the number of victims of *pool* that cover what is *short*; 0: even all together do
    not."""
    fewest = 1
    for t, amount in short:
        needed, left = 0, amount
        for gain in sorted([victim[2].get(t, 0) for victim in pool], reverse=True):
            needed += 1
            left -= gain
            if left <= 0:
                break
        else:
            return 0
        fewest = max(fewest, needed)
    if fewest > 1 or len(short) == 1:
        return fewest
    if any(all(amounts.get(t, 0) >= amount for t, amount in short) for _, _, amounts in pool):
        return fewest
    return 2 if len(pool) > 1 else 0
