"""The plan that a round of the periodic policy makes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from kornel.core.domain.preemption_kinds import MONITOR
from kornel.core.laws.verdict import Violation
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import GangPlan

KIND: Final = MONITOR.name


class Place(NamedTuple):
    """The node on which a waiting ask can run once *victims* have left. Without victims, the room freed by the round's
    other victims is enough."""

    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]


class ProposedGang(Protocol):
    """A plan for a gang that the monitor carries out, some victims in each turn (preemption.md B.11)."""

    @property
    def plan(self) -> GangPlan:
        """The part of the plan that is still to be carried out."""

    def choose_turn(self, view: PartitionView, admits: Callable[[Sequence[Allocation]], bool]) -> GangPlan | None:
        """Returns the part of the plan that comes next, with as many victims as *admits* allows; ``None``: the plan
        does not stand any more."""

    def stands(self, view: PartitionView, turn: GangPlan) -> bool:
        """Tells whether the laws allow *turn*, a part of the plan, by itself."""

    def carry_out(self, state: Any, turn: GangPlan, kind: str, now_ns: int) -> None:
        """Makes the victims of *turn*, a part of the plan, leave as a decision of *kind*."""

    def withdraw(self, state: Any, now_ns: int) -> None:
        """Drops the plan, so that another one is sought."""


class Choice(Protocol):
    """The amounts that a round goes by when it chooses victims, which laws do not work out again (preemption.md E.3,
    E.5)."""

    def gives_amount(self, task: Allocation, t: int) -> bool:
        """Tells whether *task* may be taken because its leaf has yet to give up something of type *t*."""

    def allows_loss(self, tasks: Sequence[Allocation]) -> bool:
        """Tells whether the pace, derived guarantees and the reserve of originators let *tasks* leave together."""


class Judge(Protocol):
    """Judges places while a round chooses them."""

    def judge_place(
        self, before: Sequence[Place], place: Place, order: Sequence[Allocation], choice: Choice
    ) -> Iterable[Violation]:
        """Returns the laws that *place* breaks after the places *before*. *order*: the tasks looked at, the mildest
        first."""


class Selection:
    """The victims of a round, in the order of selection, within *limits*: the most one round may select, by type."""

    __slots__ = (
        "allocations", "broken", "fallen", "lacking", "limits", "places", "reservations", "selected", "targets",
        "units", "waits",
    )  # fmt: skip

    def __init__(self, limits: dict[int, int]) -> None:
        self.limits: Final = limits
        self.selected: Final[dict[int, int]] = {}
        self.places: Final[list[Place]] = []
        self.allocations: Final[list[Allocation]] = []
        self.broken: Final[dict[Allocation, Violation]] = {}
        """By ask, a law that its place breaks."""
        self.waits: Final[dict[str, int]] = {}
        """The nanoseconds from notice to kill, by key."""
        self.targets: Final[dict[Queue, dict[int, int]]] = {}
        """The amounts that each leaf should give up in this turn, by type."""
        self.lacking: Final[dict[str, dict[int, int]]] = {}
        """The amounts that leaves should hold more, by path and type."""
        self.units: Final[list[tuple[ProposedGang, GangPlan]]] = []
        """The gangs that have a turn, each with the part of its plan that comes next; its places are in ``places``,
        before all others."""
        self.fallen: Final[list[ProposedGang]] = []
        """The plans for gangs that do not stand any more."""
        self.reservations: Final[list[Reservation]] = []
        """The reservations to be given back, because the round plans room for their asks elsewhere."""

    def has_room(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* may be selected in addition within the limits."""
        selected, limits = self.selected, self.limits
        for t, amount in pairs:
            if selected.get(t, 0) + amount > limits.get(t, 0):
                return False
        return True

    def fits(self, freed: Mapping[int, int], wanted: Collection[int]) -> bool:
        """Tells whether *freed* may be selected in addition, for an ask that lacks the types *wanted*.

        One place is always allowed for each type; otherwise nothing larger than the limit of a round could ever be
        preempted.
        """
        selected, limits = self.selected, self.limits
        if all(selected.get(t, 0) + amount <= limits.get(t, 0) for t, amount in freed.items()):
            return True
        return any(t in freed and not selected.get(t, 0) for t in wanted)

    def add(self, place: Place, wait_ns: int) -> None:
        """Add *place*, with its victims, after those selected so far."""
        self.places.append(place)
        for victim in place.victims:
            self.allocations.append(victim)
            self.waits[victim.key] = wait_ns
            for t, amount in victim.shape.pairs:
                self.selected[t] = self.selected.get(t, 0) + amount

    def drop_places(self, dropped: Sequence[Place]) -> None:
        """Leave *dropped* out, with their victims."""
        gone = {victim.key for place in dropped for victim in place.victims}
        for victim in [victim for victim in self.allocations if victim.key in gone]:
            del self.waits[victim.key]
            for t, amount in victim.shape.pairs:
                self.selected[t] -= amount
        self.allocations[:] = [victim for victim in self.allocations if victim.key not in gone]
        asks = {place.ask.key for place in dropped}
        self.places[:] = [place for place in self.places if place.ask.key not in asks]

    def replace_places(self, before: Sequence[Place], after: Sequence[Place]) -> None:
        """Replace the places *before*, all of one node, by *after*, which need fewer victims."""
        needed = {victim.key for place in after for victim in place.victims}
        for victim in [victim for place in before for victim in place.victims if victim.key not in needed]:
            del self.waits[victim.key]
            self.allocations.remove(victim)
            for t, amount in victim.shape.pairs:
                self.selected[t] -= amount
        order = iter(after)
        self.places[:] = [next(order) if place in before else place for place in self.places]


class DueVictim(NamedTuple):
    """A victim whose time is up. It was notified at ``notified_ns`` in round ``first_round``, and selected ``times``
    times, including that round."""

    allocation: Allocation
    notified_ns: int
    first_round: int
    times: int


class DuePlace(NamedTuple):
    """A place whose victims are all due."""

    ask: Allocation
    node: Node
    victims: tuple[DueVictim, ...]


@dataclass(frozen=True, slots=True)
class MonitorPlan:
    """The decision to mark the victims of *places* for their asks, in order, as part of *round*.

    *balance*: asks of queues that have their guarantees may be served as well.
    """

    round: int
    now_ns: int
    max_wait_ns: int
    places: tuple[DuePlace, ...]
    balance: bool = False
