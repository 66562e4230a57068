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


class GangHold:
    """The places held for all members of a gang while victims leave for some of them (preemption.md B.11).

    None of them runs before all can, and none keeps its place when the others cannot have one.
    """

    __slots__ = ("evicted", "freed", "kind", "made_ns", "members", "mended", "relied_on", "wait_from_ns")

    def __init__(self, kind: str, made_ns: int) -> None:
        self.kind: Final = kind
        self.made_ns: Final = made_ns
        self.members: dict[Allocation, None] = {}
        """The members, each of which has a reservation; one that lost it is looked after before the slice ends."""
        self.evicted = 0
        """The victims that were asked to leave for it."""
        self.freed: Final[dict[int, int]] = {}
        """The amounts that these held, by type."""
        self.relied_on: Final[dict[Allocation, None]] = {}
        """The victims of others whose room it counts on."""
        self.mended = 0
        """The number of times that members got other places than before."""
        self.wait_from_ns = made_ns
        """The time when the last victim was asked to leave, or the last one left."""

    def is_whole(self) -> bool:
        """Tells whether room is held for every member."""
        return all(member.reservation is not None for member in self.members)

    def victims_left(self) -> bool:
        """Tells whether somebody who was asked to leave for a member is still there."""
        return any(member.victims for member in self.members)


class GangRecord:
    """Keeps the applications with gangs that something is to be done about, in order of arrival."""

    __slots__ = (
        "as_units", "broken", "gathering", "holds", "rooms", "timed_out", "to_match", "totals", "vetting",
        "waiting_for_turn", "without_room",
    )  # fmt: skip

    def __init__(self) -> None:
        self.as_units = True
        """Tells whether the placeholders of a gang are placed together; otherwise each is for itself."""
        self.gathering: Final[Room] = {}
        """Gangs not all members of which have been asked for, or about which the shim is being asked."""
        self.rooms: Final[dict[Demand, GangRoom]] = {}
        """Gangs for all members of which there is not enough room."""
        self.totals: Final[dict[Pairs, Shape]] = {}
        """The sums of what gangs want that wait below a quota or limit, each as one size."""
        self.holds: Final[dict[Application, GangHold]] = {}
        """Gangs for all members of which room is held until victims have left."""
        self.broken: Final[dict[Application, None]] = {}
        """The gangs among these in which a member lost its place."""
        self.vetting: Final[dict[Application, Vetting]] = {}
        """Gangs about which the shim is being asked."""
        self.to_match: Final[dict[Application, None]] = {}
        """Applications of which a real ask may now find a placeholder to replace."""
        self.without_room: Final[dict[Application, None]] = {}
        """Applications of which one found a placeholder, but had to go elsewhere and found no node."""
        self.waiting_for_turn: Final[dict[Application, None]] = {}
        """Applications of which one that depends on other placements waits until the line of such asks is shorter."""
        self.timed_out: Final[dict[Application, None]] = {}
        """Applications whose placeholders have waited long enough; nothing was done about it yet."""

    def hold_of(self, ask: Allocation) -> GangHold | None:
        """Returns the places of the gang of which *ask* is a member; ``None``: it has none, or *ask* is no member."""
        hold = self.holds.get(ask.application)
        return hold if hold is not None and ask in hold.members else None

    def doubt_domains(self) -> None:
        """Has the places held for gangs that require a domain be looked at anew, since nodes may stand elsewhere."""
        for application, hold in self.holds.items():
            if any(member.spec.topology is not None for member in hold.members):
                self.broken[application] = None
