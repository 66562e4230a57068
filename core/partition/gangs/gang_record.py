"""The memory of gang scheduling in a partition: the applications to look at, and the gangs that wait for room."""

from __future__ import annotations

from typing import Final

from kornel.core.model.allocations import Allocation, Room
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.policies.gang_nodes import Candidates, Members, count_places, places_on

Demand = tuple[Members, ...]
"""The members of a gang, equal ones together: gangs with equal demands are one question."""


class GangRoom:
    """The gangs of one demand that found no places, and how many places there were for their members.

    A place that was taken since still counts, until its node gains room again or a gang has tried in vain. So there are
    never more places than are counted, and nobody tries while too few are.
    """

    __slots__ = ("_places", "demand", "totals", "waiters")

    def __init__(self, demand: Demand, candidates: Candidates) -> None:
        self.demand: Final = demand
        self.waiters: Room = {}
        self._places: list[dict[Node, int]] = [dict(count_places(candidates, members)) for members in demand]
        self.totals: list[int] = [sum(places.values()) for places in self._places]
        """By members that are alike, the places that were counted for them."""

    def count_again(self, node: Node) -> bool:
        """Counts the places on *node*, which gained room. Returns whether a gang should try again: there are more, and
        enough for all members."""
        more = False
        for at, members in enumerate(self.demand):
            known = self._places[at]
            before, now = known.get(node, 0), places_on(node, members)
            if now != before:
                known[node] = now
                self.totals[at] += now - before
                more = more or now > before
        return more and all(total >= members.number for total, members in zip(self.totals, self.demand, strict=True))

    def forget_node(self, node: Node) -> None:
        """Counts nothing on *node*, which is gone."""
        for at, known in enumerate(self._places):
            self.totals[at] -= known.pop(node, 0)


class Vetting:
    """The members of a gang that are held on nodes while the shim is asked about all of them."""

    __slots__ = ("nodes", "passed", "unanswered")

    def __init__(self, nodes: dict[Allocation, Node]) -> None:
        self.nodes: Final = nodes
        self.unanswered: Final[dict[Allocation, None]] = dict.fromkeys(nodes)
        self.passed: Final[dict[Allocation, frozenset[str]]] = {}
        """By member, the nodes that the shim let pass."""


class GangRecord:
    """Keeps the applications with gangs that something is to be done about, in order of arrival."""

    __slots__ = ("as_units", "gathering", "rooms", "timed_out", "to_match", "totals", "vetting", "without_room")

    def __init__(self) -> None:
        self.as_units = True
        """Tells whether the placeholders of a gang are placed together; otherwise each is for itself."""
        self.gathering: Final[Room] = {}
        """Gangs not all members of which have been asked for, or about which the shim is being asked."""
        self.rooms: Final[dict[Demand, GangRoom]] = {}
        """Gangs for all members of which there is not enough room."""
        self.totals: Final[dict[Pairs, Shape]] = {}
        """The sums of what gangs want that wait below a quota or limit, each as one size."""
        self.vetting: Final[dict[Application, Vetting]] = {}
        """Gangs about which the shim is being asked."""
        self.to_match: Final[dict[Application, None]] = {}
        """Applications of which a real ask may now find a placeholder to replace."""
        self.without_room: Final[dict[Application, None]] = {}
        """Applications of which one found a placeholder, but had to go elsewhere and found no node."""
        self.timed_out: Final[dict[Application, None]] = {}
        """Applications whose placeholders have waited long enough; nothing was done about it yet."""
