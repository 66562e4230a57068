"""Nodes: capacity, load and what may still be placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.drains import OperatorDrain
from kornel.core.model.claims import Claims
from kornel.core.model.domains import NOTHING_COUNTED, Counted, Domain, count_amounts
from kornel.core.model.shapes import Pairs, Shape, Vector, widen_vector

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, Reservation


INSTANCE_TYPE: Final = "si/instance-type"
UNKNOWN_INSTANCE_TYPE: Final = "UNKNOWN"


class ForeignLoad(NamedTuple):
    """Load of another scheduler as the shim described it, here since ``since_ns``."""

    spec: AllocationSpec
    shape: Shape
    since_ns: int


NO_RESERVATIONS: Final[Mapping[str, Reservation]] = MappingProxyType({})
"""Shared by all nodes without."""


class Node:
    """A node of a partition. ``free`` = capacity - allocated - occupied, per type; negative when over-allocated.

    ``open`` is what of it nobody holds: ``free`` itself where nobody does.
    """

    __slots__ = (
        "allocated", "allocations", "attributes", "capacity", "claims", "counted", "domains", "drained_by_shim",
        "foreign", "foreign_loads", "free", "held", "instance_type", "node_id", "occupied", "open", "operator_drain",
        "schedulable", "score", "version",
    )  # fmt: skip

    def __init__(self, node_id: str, attributes: tuple[tuple[str, str], ...], capacity: Vector) -> None:
        self.node_id: Final = node_id
        self.attributes = attributes
        self.instance_type: Final = dict(attributes).get(INSTANCE_TYPE) or UNKNOWN_INSTANCE_TYPE
        self.capacity = capacity
        self.allocated: Vector = [0] * len(capacity)
        self.occupied: Vector = [0] * len(capacity)
        self.free: Vector = list(capacity)
        self.open: Vector = self.free
        self.claims: Claims | None = None
        """The claims on the node, and the victims that are leaving; ``None``: neither."""
        self.drained_by_shim = False
        self.operator_drain: OperatorDrain | None = None
        """The operator who keeps it out of scheduling; ``None``: no operator does."""
        self.schedulable = True
        """Tells whether neither shim nor operator keeps it out; kept because every search for room asks for it."""
        self.allocations: dict[str, Allocation] = {}
        """Own allocations by key, victims that have not left yet included."""
        self.held: dict[str, Allocation] = {}
        """Asks whose amount is charged here while the shim is asked whether they may run here."""
        self.foreign: dict[str, Pairs] = {}
        """Load of other schedulers, by its key."""
        self.foreign_loads: dict[str, ForeignLoad] = {}
        """The known foreign allocations, without what was reported for the node as a whole."""
        self.score = 0.0
        self.version = 0
        """Changes whenever its load or capacity does."""
        self.domains: tuple[Domain, ...] = ()
        """The domains that it stands in, outermost first; empty: the partition has no topology, or none for it."""
        self.counted: Counted = NOTHING_COUNTED
        """The amounts that its domains count of it."""

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """Returns the holders of room here, by the key of the ask, in the order in which the claims were made."""
        return NO_RESERVATIONS if self.claims is None else self.claims.reservations

    @property
    def beside(self) -> Vector:
        """The amounts by type that will be left of ``free`` and of what is leaving once every holder has its amount."""
        claims = self.claims
        return self.free if claims is None else claims.room_beside(self.free)

    def has_room(self, pairs: Pairs) -> bool:
        """Tells whether the open room holds *pairs* now; a type the node lacks counts as 0."""
        room = self.open
        for t, amount in pairs:
            if room[t] < amount:
                return False
        return True

    def fits_holder(self, reservation: Reservation) -> bool:
        """Tells whether the free room holds what *reservation* claims now, with earlier claims respected."""
        assert self.claims is not None, "whoever holds something here has a claim"
        return self.claims.room_for(reservation, self.free)

    def fits_ask(self, ask: Allocation) -> bool:
        """Tells whether there is room for *ask* now, beside what is held for others and comes before it."""
        own = ask.reservation
        return self.fits_holder(own) if own is not None and own.node is self else self.has_room(ask.shape.pairs)

    def room_without(self, own: Reservation | None) -> Vector:
        """Returns ``beside``, as if *own* held nothing here."""
        claims = self.claims
        if claims is None or own is None or own.node is not self:
            return self.beside
        return claims.room_beside(self.free, own)

    def is_overdrawn(self, pairs: Pairs) -> bool:
        """Tells whether claims here already exceed what there will be of a type in *pairs*."""
        claims = self.claims
        return claims is not None and any(claims.is_overdrawn(self.free, t) for t, _ in pairs)

    def could_hold(self, pairs: Pairs) -> bool:
        """Tells whether the empty node would hold *pairs*."""
        capacity = self.capacity
        return all(capacity[t] >= amount for t, amount in pairs)

    def charge_pairs(self, pairs: Pairs) -> None:
        """Book an own allocation of *pairs*, whether it fits or not."""
        allocated, free = self.allocated, self.free
        for t, amount in pairs:
            allocated[t] += amount
            free[t] -= amount
        self.version += 1
        if self.claims is not None:
            self._settle_claims()
        elif self.domains:
            self.tell_domains()

    def refund_pairs(self, pairs: Pairs) -> None:
        """Take an own allocation of *pairs* off the books."""
        allocated, free = self.allocated, self.free
        for t, amount in pairs:
            allocated[t] -= amount
            free[t] += amount
        self.version += 1
        if self.claims is not None:
            self._settle_claims()
        elif self.domains:
            self.tell_domains()

    def tell_domains(self) -> None:
        """Have the domains of the node count what it has now: to be called when its amounts or its state changed."""
        now = count_amounts(self)
        for domain in self.domains:
            domain.exchange_amounts(self.counted, now)
        self.counted = now

    def book_foreign(self, key: str, pairs: Pairs, load: ForeignLoad | None = None) -> None:
        """Book foreign load under *key*, replacing what stood there. *load*: what is known of it."""
        self.unbook_foreign(key)
        self.version += 1
        if load is not None:
            self.foreign_loads[key] = load
        self.foreign[key] = pairs
        for t, amount in pairs:
            self.occupied[t] += amount
            self.free[t] -= amount
        self._settle_claims()

    def unbook_foreign(self, key: str) -> None:
        """Take foreign load off the books; an unknown key does nothing."""
        self.version += 1
        self.foreign_loads.pop(key, None)
        for t, amount in self.foreign.pop(key, ()):
            self.occupied[t] -= amount
            self.free[t] += amount
        self._settle_claims()

    def resize(self, capacity: Vector) -> None:
        """Replace the capacity; ``free`` may become negative."""
        self.version += 1
        self.capacity = capacity
        self.free = [c - a - o for c, a, o in zip(capacity, self.allocated, self.occupied, strict=True)]
        self._settle_claims()

    def reserve(self, reservation: Reservation) -> bool:
        """Hold what the ask of *reservation* needs. Returns whether that changed the open room."""
        self._make_claims().add(reservation)
        return self._claims_changed()

    def unreserve(self, reservation: Reservation) -> bool:
        """Hold nothing for *reservation* any more. Returns whether that changed the open room."""
        self._make_claims().drop_claim(reservation)
        return self._claims_changed()

    def rank_claim(self, reservation: Reservation, *, last: bool) -> None:
        """Have *reservation* come after asks that preempt, or before them."""
        self._make_claims().rank_claim(reservation, last=last)
        self._claims_changed()

    def resize_claim(self, reservation: Reservation, pairs: Pairs) -> None:
        """Hold *pairs* for *reservation* from now on."""
        self._make_claims().resize(reservation, pairs)
        self._claims_changed()

    def expect_exits(self, victims: Iterable[Allocation]) -> bool:
        """Note that *victims*, which run here, are going to leave: what they free goes to the holders first.

        Returns whether that changed the open room.
        """
        claims = self._make_claims()
        for victim in victims:
            claims.expect_exit(victim)
        return self._claims_changed()

    def expect_no_exit(self, victim: Allocation) -> None:
        """Note that *victim* has left, or is not expected to any more."""
        if self.claims is not None:
            self.claims.expect_no_exit(victim.key)
            self._claims_changed()

    def widen_amounts(self, width: int) -> None:
        """Extend all amounts to *width* types."""
        for vector in (self.capacity, self.allocated, self.occupied, self.free):
            widen_vector(vector, width)
        if self.claims is not None:
            self.claims.widen_amounts(width)
        self._settle_claims()

    def _make_claims(self) -> Claims:
        if self.claims is None:
            self.claims = Claims(len(self.free))
        return self.claims

    def _claims_changed(self) -> bool:
        self.version += 1
        before = self.open
        self._settle_claims()
        return self.open != before

    def _settle_claims(self) -> None:
        """Work out ``open`` again."""
        claims = self.claims
        if claims:
            self.open = claims.open_room(self.free)
        else:
            self.claims = None
            self.open = self.free
        if self.domains:
            self.tell_domains()

    def __repr__(self) -> str:
        return f"Node({self.node_id})"
