"""Holds what a partition remembers about gangs: the applications to look at, and the gangs that wait for room."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.model.allocations import Allocation, Reservation, Room
from kornel.core.model.applications import Application
from kornel.core.model.claim_clocks import ClaimClock
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.policies.gang_nodes import Candidates, Members, count_places, places_on

Demand = tuple[Members, ...]
"""The members of a gang, with equal members together. Gangs with equal demands are tried only once."""


class GangRoom:
    """The gangs with the same demand that found no places, with the number of places that there were for their members.

    A place that has since been taken still counts until its node gains room again or a gang has tried in vain. So there
    are never more places than the count says, and no gang tries while the count is too low.
    """

    __slots__ = ("_places", "demand", "totals", "waiters")

    def __init__(self, demand: Demand, candidates: Candidates) -> None:
        self.demand: Final = demand
        self.waiters: Room = {}
        self._places: list[dict[Node, int]] = [dict(count_places(candidates, members)) for members in demand]
        self.totals: list[int] = [sum(places.values()) for places in self._places]
        """For each set of equal members, the number of places counted for them."""

    def count_again(self, node: Node) -> bool:
        """Counts the places on *node*, which has gained room. Returns whether the gang should try again because there
        are more places than before and enough for all members.

        Members of different sizes may find room together even if none of them alone finds more places.
        """
        more = len(self.demand) > 1 and any(places_on(node, members) for members in self.demand)
        for at, members in enumerate(self.demand):
            known = self._places[at]
            before, now = known.get(node, 0), places_on(node, members)
            if now != before:
                known[node] = now
                self.totals[at] += now - before
                more = more or now > before
        return more and all(total >= members.number for total, members in zip(self.totals, self.demand, strict=True))

    def forget_node(self, node: Node) -> None:
        """Drops the places counted on *node*, which is gone."""
        for at, known in enumerate(self._places):
            self.totals[at] -= known.pop(node, 0)


class Vetting:
    """The members of a gang that are held on nodes while the shim is asked about all of them."""

    __slots__ = ("nodes", "passed", "unanswered")

    def __init__(self, nodes: dict[Allocation, Node]) -> None:
        self.nodes: Final = nodes
        self.unanswered: Final[dict[Allocation, None]] = dict.fromkeys(nodes)
        self.passed: Final[dict[Allocation, frozenset[str]]] = {}
        """The nodes that the shim has allowed, by member."""


BY_AGE: Final = "age"
"""The kind of places that are saved for a gang because it has waited long."""


class GangHold:
    """The places held for all members of a gang while victims leave for some of them (preemption.md B.11), or until
    enough has ended there because the gang has waited long (B.7).

    No member runs before all can run, and no member keeps its place if the others cannot have one.
    """

    __slots__ = (
        "clock",
        "evicted",
        "freed",
        "kind",
        "lost",
        "made_ns",
        "members",
        "mended",
        "number",
        "refusal",
        "relied_on",
        "wait_from_ns",
    )

    def __init__(self, kind: str, made_ns: int) -> None:
        self.kind: Final = kind
        self.number = 0
        """The number of the plan, by which people find what belongs to it; it stays the same when places are mended.
        0: it has none yet, or an earlier version of the core made the plan."""
        self.made_ns: Final = made_ns
        self.members: dict[Allocation, None] = {}
        """The members, each of which has a reservation; a member that loses it is dealt with before the slice ends."""
        self.evicted = 0
        """The number of victims that were asked to leave for the gang."""
        self.freed: Final[dict[int, int]] = {}
        """The amounts that these victims held, by type."""
        self.relied_on: Final[dict[Allocation, None]] = {}
        """The victims of other preemptors whose room the gang counts on."""
        self.lost: tuple[tuple[Allocation, str], ...] = ()
        """The members that lost their places and have no others yet, with the names of the nodes."""
        self.mended = 0
        """The number of times that members were given other places."""
        self.wait_from_ns = 0
        """The time when it was first seen that no victim is left; 0: when it was last looked at, some were."""
        self.clock: ClaimClock | None = None
        """The clock of places that are saved by age."""
        self.refusal: Any = None
        """The answer of the last attempt to make room for places that are saved by age. It is ``None`` before any, and
        while victims leave for them."""

    @property
    def by_age(self) -> bool:
        """Tells whether the places are saved because the gang has waited, and nobody leaves for them."""
        return self.kind == BY_AGE

    @property
    def id(self) -> UnitId:
        """The gang for which the places are held."""
        return unit_of(next(iter(self.members)))

    def claims(self) -> list[Reservation]:
        """Returns the claims of the members that have one."""
        return [ask.reservation for ask in self.members if ask.reservation is not None]

    @property
    def due(self) -> bool:
        """Tells whether an attempt to preempt is due for a member that holds its place."""
        return any(ask.attempt_due for ask in self.members)

    def no_attempt_is_due(self) -> None:
        """Notes that no attempt of any member is due any more."""
        for ask in self.members:
            ask.attempt_due = False

    def victims_left(self) -> bool:
        """Tells whether a victim that was asked to leave for a member is still there."""
        return any(member.victims for member in self.members)


class GangRecord:
    """Keeps the applications whose gangs something has to be done about, in order of arrival."""

    __slots__ = (
        "as_units", "attempts", "below", "broken", "called_off", "gathering", "holds", "leaving", "lost", "placed",
        "planned", "proposed", "rooms", "timed_out", "to_match", "totals", "vetting", "waiting_for_turn",
        "without_room",
    )  # fmt: skip

    def __init__(self) -> None:
        self.as_units = True
        """Tells whether the placeholders of a gang are placed together; otherwise each is placed by itself."""
        self.placed = 0
        """The number of gangs that were placed as a whole."""
        self.planned = 0
        """The number of plans that were made for gangs, which is the number of the last one."""
        self.called_off = 0
        """The number of plans for gangs that were called off."""
        self.lost = 0
        """The number of members of gangs that were preempted."""
        self.gathering: Final[Room] = {}
        """The gangs that still lack asks for some members, or about which the shim is being asked."""
        self.rooms: Final[dict[Demand, GangRoom]] = {}
        """The gangs that found too little room for all of their members, by demand."""
        self.totals: Final[dict[Pairs, Shape]] = {}
        """The total amounts of gangs that wait for a quota or limit, each as one shape."""
        self.holds: Final[dict[UnitId, GangHold]] = {}
        """The gangs for which room is held for all members until victims have left."""
        self.broken: Final[dict[UnitId, None]] = {}
        """The gangs of ``holds`` in which a member lost its place."""
        self.attempts: Final[dict[UnitId, Any]] = {}
        """The attempts under way to preempt for all members of a gang:
        :class:`kornel.core.preemption.guarantee.attempts.gang_attempts.GangAttempt`."""
        self.proposed: Final[dict[UnitId, Any]] = {}
        """The plans for gangs that the periodic policy carries out in its turns, as far as it has not done so yet:
        :class:`kornel.core.preemption.guarantee.attempts.gang_plans.GangProposal`."""
        self.below: Final[dict[UnitId, int]] = {}
        """The task groups that run with fewer members than their minimum because some were lost, each with the time
        when the first of them was."""
        self.leaving: Final[dict[Application, None]] = {}
        """The gangs of which all members that ran are preempted and have not left yet."""
        self.vetting: Final[dict[UnitId, Vetting]] = {}
        """The gangs about which the shim is being asked."""
        self.to_match: Final[dict[Application, None]] = {}
        """The applications with a real ask that may now find a placeholder to replace."""
        self.without_room: Final[dict[Application, None]] = {}
        """The applications with a real ask that matched a placeholder, was not allowed on its node, and found no other
        node."""
        self.waiting_for_turn: Final[dict[Application, None]] = {}
        """The applications with a real ask that depends on other placements and waits until the line of such asks is
        shorter."""
        self.timed_out: Final[dict[Application, None]] = {}
        """The applications whose placeholders have timed out and are still to be given up."""

    def hold_of(self, ask: Allocation) -> GangHold | None:
        """Returns the held places of the gang that *ask* is a member of; ``None``: no places are held, or *ask* is no
        member."""
        hold = self.holds.get(unit_of(ask))
        return hold if hold is not None and ask in hold.members else None

    def find_saver(self) -> GangHold | None:
        """Returns the places that are saved for a gang by age; ``None``: there are none."""
        return next((hold for hold in self.holds.values() if hold.by_age), None)

    def is_searching(self, unit_id: UnitId, marks: tuple[int, ...]) -> bool:
        """Tells whether a search for victims for the gang *unit_id* is under way that began at *marks* of the
        partition."""
        attempt = self.attempts.get(unit_id)
        return attempt is not None and attempt.search is not None and attempt.search.marks == marks

    def doubt_domains(self) -> None:
        """Makes the places that are held for gangs which require a domain be examined again, because nodes may have
        changed their domains."""
        for unit_id, hold in self.holds.items():
            if any(member.spec.topology is not None for member in hold.members):
                self.broken[unit_id] = None
