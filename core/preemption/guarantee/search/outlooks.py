"""Looks at each changed node once for all questions with one fence: at what it might give up to anybody.

What a glimpse promises is never less than what the node has for one of these questions, because it counts all leaves
that were open to any of them. So a question need not judge a node before its walk over the nodes has come to what the
glimpse promises.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from itertools import compress, filterfalse, islice
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from kornel.core.model.nodes import Node
from kornel.core.model.orders.numbered_nodes import NumberedNodes
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Vector
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.search.node_bounds import HIGHEST, Cost, NodeOffer, Position
from kornel.core.preemption.priorities import Adjustment
from kornel.core.state.records.victim_index import CLASSES, MILDEST

_GLIMPSE_BYTES: Final = 400


class WatchedNodes(NumberedNodes):
    """The nodes of the last look by slot, with what they offer."""

    __slots__ = ("offers",)

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[int, NodeOffer] = {}
        """The offers of nodes by slot, for those that were judged since they changed."""

    def compare_nodes(self, nodes: Mapping[str, Node]) -> list[int]:
        """Looks at all *nodes*. Returns the slots of those that have gone, which are free from now on."""
        gone = super().compare_nodes(nodes)
        for slot in (*gone, *self.changed_since(self.look - 1)):
            self.offers.pop(slot, None)
        return gone

    def offer_of(self, slot: int) -> NodeOffer:
        """Returns what the node in *slot* has to offer."""
        offer = self.offers.get(slot)
        if offer is None:
            node = self.nodes[slot]
            assert node is not None, "only nodes are judged"
            offer = self.offers[slot] = NodeOffer(node)
        return offer

    def slots_with(self, leaves: Collection[Queue]) -> Iterable[int]:
        """Returns the slots of the nodes where *leaves* run something; all slots, if that is quicker."""
        in_order = sorted(leaves, key=attrgetter("path"))  # A set has another order in each process.
        applications = [application for leaf in in_order for application in leaf.applications.values()]
        if sum(len(application.allocations) for application in applications) > len(self.slots):
            return self.slots.values()
        nodes = (allocation.node for application in applications for allocation in application.allocations.values())
        return [slot for node in nodes if node is not None and (slot := self.slots.get(node)) is not None]


class Glimpse(NamedTuple):
    """The most that a node promises. Glimpses are in the order of the bounds of their nodes, for one number of
    victims."""

    originator: bool
    opted_out: bool
    lowest: int
    """The lowest priority of a possible victim as adjusted at the fence."""
    position: Position
    """The position in order if the victim that would go first is the oldest."""
    room: Vector
    """The room beside all claims, once present victims have left."""
    peak: Vector
    """The room with the largest amount of one victim by type."""
    reach: Vector
    """The room with the amounts of all victims by type."""

    def cost_of(self, victims: int) -> Cost:
        """Returns the least cost of so many *victims*."""
        return self.originator, self.opted_out, victims, self.lowest

    def count_victims(self, demand: Pairs) -> int:
        """Returns how many victims are needed at least for *demand*, which lacks room and is within reach."""
        room, peak = self.room, self.peak
        return max(-(-(amount - room[t]) // (peak[t] - room[t])) for t, amount in demand if amount > room[t])


ROOM, PEAK, REACH = 4, 5, 6
"""The places of the vectors in a glimpse."""


class Outlook:
    """The glimpses of all nodes for the questions with one fence."""

    def __init__(self, watched: WatchedNodes) -> None:
        self._watched = watched
        self._seen = 0
        """The number of the last look whose changes are noted."""
        self._stale: dict[int, None] = {}
        """The slots of the nodes that have changed and still have to be looked at."""
        self._counted: dict[Adjustment, set[Queue]] = {}
        """The leaves that were open to any question, by the adjustment of their priorities."""
        self.glimpses: Final[dict[int, Glimpse]] = {}
        self.in_order: Final[list[int]] = []
        """The slots of all nodes that were looked at, in the order of their glimpses."""

    @property
    def work_left(self) -> int:
        """The number of nodes to look at."""
        return len(self._stale)

    @property
    def bytes_held(self) -> int:
        """About the memory that the glimpses take."""
        return _GLIMPSE_BYTES * len(self._watched.slots)

    def look_again(self, laws: Terms, most: int) -> int:
        """Looks at no more than *most* of the nodes that have changed, or where leaves run something that were never
        open before. Returns how many that were."""
        opened: list[Queue] = []
        for rules, leaves in laws.alike:
            counted = self._counted.setdefault(rules.adjusted, set())
            opened += filterfalse(counted.__contains__, leaves)
            counted.update(leaves)
        if self._seen and not self.glimpses:  # The engine was restored.
            for slot in set(self._watched.slots.values()).difference(self._stale):
                self._look_at(slot)
        if self._seen and opened:
            self._stale.update(dict.fromkeys(self._watched.slots_with(opened)))
        self._stale.update(dict.fromkeys(self._watched.changed_since(self._seen)))
        self._seen = self._watched.look
        found = list(islice(self._stale, most))
        for slot in found:
            self._forget_glimpse(slot)
            self._look_at(slot)
            del self._stale[slot]
        return len(found)

    def _look_at(self, slot: int) -> None:
        offer = self._watched.offer_of(slot)
        peak, reach = offer.room.copy(), offer.room.copy()
        level, lowest, age = CLASSES[-1], HIGHEST, 0
        for adjusted, leaves in self._counted.items():
            for share in offer.shares:
                if share.leaf not in leaves:
                    continue
                level, age = min(level, share.mildest), min(age, share.age)
                lowest = min(lowest, adjusted.of(share.lowest))
                for t, amount in share.total.items():
                    reach[t] += amount
                    peak[t] = max(peak[t], offer.room[t] + share.largest[t])
        self.glimpses[slot] = Glimpse(*MILDEST[level], lowest, offer.position_at(age), offer.room, peak, reach)
        insort(self.in_order, slot, key=self.glimpses.__getitem__)

    def _forget_glimpse(self, slot: int) -> None:
        if slot in self.glimpses:
            in_order, key = self.in_order, self.glimpses.__getitem__
            del in_order[bisect_left(in_order, key(slot), key=key)]
            del self.glimpses[slot]

    def filter_slots(self, slots: Iterable[int], part: int, pairs: Pairs) -> list[int]:
        """Returns those of *slots* where the vector *part* of the glimpse holds *pairs*."""
        found = list(slots)
        for t, amount in pairs:
            vectors = map(itemgetter(part), map(self.glimpses.__getitem__, found))
            found = list(compress(found, map(amount.__le__, map(itemgetter(t), vectors))))
        return found

    def drop_slot(self, slot: int) -> None:
        """Forgets the node that had *slot* and has gone."""
        self._stale.pop(slot, None)
        self._forget_glimpse(slot)

    def forget_empty(self, leaves: set[Queue]) -> None:
        """Stops counting all but *leaves*. The others run nothing, so no glimpse promises less now than when a question
        sorted its node."""
        for counted in self._counted.values():
            counted.intersection_update(leaves)
