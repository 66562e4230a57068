"""Nodes: capacity, load and what may still be placed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.devices import DeviceRequest
from kornel.core.domain.drains import OperatorDrain
from kornel.core.model.claims import Claims
from kornel.core.model.devices import NodeDevices
from kornel.core.model.domains import NOTHING_COUNTED, Counted, Domain, count_amounts
from kornel.core.model.shapes import Pairs, Shape, Vector, holds_pairs, widen_vector

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, Reservation


INSTANCE_TYPE: Final = "si/instance-type"
UNKNOWN_INSTANCE_TYPE: Final = "UNKNOWN"


class ForeignLoad(NamedTuple):
    """Load of another scheduler as the shim described it, on the node since ``since_ns``."""

    spec: AllocationSpec
    shape: Shape
    since_ns: int


NO_RESERVATIONS: Final[Mapping[str, Reservation]] = MappingProxyType({})
"""The empty mapping that all nodes without reservations share."""


class Node:
    """A node of a partition. ``free`` = capacity - allocated - occupied, per type; negative when over-allocated.

    ``open`` is the part of ``free`` that is not held; ``free`` itself if nothing is held.
    """

    __slots__ = (
        "allocated", "allocations", "attributes", "capacity", "changes", "claims", "counted", "departures", "devices",
        "domains", "drained_by_shim", "foreign", "foreign_loads", "free", "held", "instance_type", "node_id",
        "occupied", "open", "operator_drain", "schedulable", "score", "version",
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
        """The claims on the node, and the victims that are leaving; ``None``: there are neither."""
        self.drained_by_shim = False
        self.operator_drain: OperatorDrain | None = None
        """The drain by which an operator keeps the node out of scheduling; ``None``: there is none."""
        self.schedulable = True
        """Tells whether neither the shim nor an operator drains the node. It is stored because every search for room
        needs it."""
        self.allocations: dict[str, Allocation] = {}
        """The node's own allocations by key, including victims that have not left yet."""
        self.held: dict[str, Allocation] = {}
        """The asks whose amounts are charged while the shim is asked whether they may run on the node."""
        self.foreign: dict[str, Pairs] = {}
        """The load of other schedulers, by key."""
        self.foreign_loads: dict[str, ForeignLoad] = {}
        """The foreign allocations, without load that was reported for the node as a whole."""
        self.score = 0.0
        self.version = 0
        """A number that changes whenever the load or the capacity does."""
        self.changes = 0
        """The number of times that the shim has said something else of it: its capacity, its state, its devices."""
        self.departures = 0
        """The number of allocations and foreign loads that have left the node."""
        self.domains: tuple[Domain, ...] = ()
        """The domains in which the node is, the outermost first; empty: it is in none."""
        self.counted: Counted = NOTHING_COUNTED
        """The amounts of the node that its domains count."""
        self.devices: NodeDevices | None = None
        """The devices of the node; ``None``: it has reported none."""

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """The reservations on the node by the key of their ask, in the order in which the claims were made."""
        return NO_RESERVATIONS if self.claims is None else self.claims.reservations

    @property
    def beside(self) -> Vector:
        """The amounts by type that remain of ``free`` and of leaving victims once every claim is served."""
        claims = self.claims
        return self.free if claims is None else claims.room_beside(self.free)

    def has_room(self, pairs: Pairs) -> bool:
        """Tells whether the open room holds *pairs* now; a type that the node does not have counts as 0."""
        room = self.open
        for t, amount in pairs:
            if room[t] < amount:
                return False
        return True

    def has_devices(
        self, request: DeviceRequest | None, ask: Allocation | None = None, lent: Collection[Reservation] = ()
    ) -> bool:
        """Tells whether an ask for *request* finds its devices here now. *ask* is that ask, if devices may be kept for
        it. *lent*: claims of those who come last that the ask may pass."""
        if request is None or self.devices is None:
            return request is None
        devices = self.devices.copy_unkept(claim.ask for claim in lent) if lent else self.devices
        return devices.has_room(request, ask)

    def has_room_for(self, shape: Shape) -> bool:
        """Tells whether the open room holds *shape* now, and its devices are free."""
        return self.has_room(shape.pairs) and (shape.devices is None or self.has_devices(shape.devices))

    def fits_holder(self, reservation: Reservation) -> bool:
        """Tells whether the free room can serve *reservation* now, after all earlier claims."""
        assert self.claims is not None, "a reservation has a claim"
        if not self.claims.room_for(reservation, self.free):
            return False
        return reservation.ask.shape.devices is None or self.has_devices(reservation.ask.shape.devices, reservation.ask)

    def find_missing(self, reservation: Reservation) -> dict[int, int]:
        """Returns the part of what *reservation* holds that is not free for it here yet, by type. Types of which
        nothing is missing are left out."""
        assert self.claims is not None, "a reservation has a claim"
        return self.claims.find_missing(reservation, self.free)

    def more_than_has(self, reservation: Reservation) -> Pairs:
        """Returns the least amounts that another node must have so that *reservation* lacks less there of each type of
        which something is missing here, and nothing of the others; empty: nothing is missing."""
        missing = self.find_missing(reservation)
        if not missing:
            return ()
        return tuple([(t, amount - missing[t] + 1 if t in missing else amount) for t, amount in reservation.pairs])

    def fits_holders(self, reservations: Collection[Reservation]) -> bool:
        """Tells whether the free room holds what all *reservations* claim at once, with earlier claims respected."""
        assert self.claims is not None, "whoever holds something here has a claim"
        return self.claims.room_for_all(reservations, self.free)

    def fits_ask(self, ask: Allocation) -> bool:
        """Tells whether there is room for *ask* now, besides what is held for claims that come first."""
        own = ask.reservation
        return self.fits_holder(own) if own is not None and own.node is self else self.has_room_for(ask.shape)

    def has_amounts_for(self, ask: Allocation) -> bool:
        """Tells whether there is room for the amounts of *ask*, regardless of its devices."""
        own = ask.reservation
        if own is None or own.node is not self:
            return self.has_room(ask.shape.pairs)
        assert self.claims is not None, "a reservation has a claim"
        return self.claims.room_for(own, self.free)

    def room_without(self, own: Reservation | None, lent: Collection[Reservation] = ()) -> Vector:
        """Returns ``beside`` as if *own*, and the claims *lent* on this node, held nothing."""
        claims = self.claims
        if claims is None:
            return self.free
        return claims.room_beside(self.free, lent if own is None or own.node is not self else (own, *lent))

    def is_overdrawn(self, pairs: Pairs) -> bool:
        """Tells whether claims already exceed what there will be of a type in *pairs*."""
        claims = self.claims
        return claims is not None and any(claims.is_overdrawn(self.free, t) for t, _ in pairs)

    def could_hold(self, pairs: Pairs) -> bool:
        """Tells whether the empty node would hold *pairs*."""
        return holds_pairs(self.capacity, pairs)

    def could_hold_shape(self, shape: Shape) -> bool:
        """Tells whether the empty node would hold *shape*, with its devices."""
        if not self.could_hold(shape.pairs):
            return False
        return shape.devices is None or (self.devices is not None and self.devices.could_hold(shape.devices))

    def touch(self) -> None:
        """Notes that the node has changed."""
        self.version += 1

    def charge_pairs(self, pairs: Pairs) -> None:
        """Book an allocation of *pairs*, whether or not it fits."""
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
        """Take an allocation of *pairs* off the books."""
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
        """Make the domains of the node count its present amounts. It has to be called after each change of amounts or
        state."""
        now = count_amounts(self)
        for domain in self.domains:
            domain.exchange_amounts(self.counted, now)
        self.counted = now

    def book_foreign(self, key: str, pairs: Pairs, load: ForeignLoad | None = None) -> None:
        """Book foreign load under *key* in place of what was there. *load*: the shim's description, if there is one."""
        self.unbook_foreign(key)
        self.touch()
        if load is not None:
            self.foreign_loads[key] = load
        self.foreign[key] = pairs
        for t, amount in pairs:
            self.occupied[t] += amount
            self.free[t] -= amount
        self._settle_claims()

    def unbook_foreign(self, key: str) -> None:
        """Take foreign load off the books; ignore an unknown key."""
        self.touch()
        self.departures += key in self.foreign
        self.foreign_loads.pop(key, None)
        for t, amount in self.foreign.pop(key, ()):
            self.occupied[t] -= amount
            self.free[t] += amount
        self._settle_claims()

    def resize(self, capacity: Vector) -> None:
        """Replace the capacity; ``free`` may become negative."""
        self.touch()
        self.capacity = capacity
        self.free = [c - a - o for c, a, o in zip(capacity, self.allocated, self.occupied, strict=True)]
        self._settle_claims()

    def reserve(self, reservation: Reservation, behind: Iterable[Reservation] = ()) -> bool:
        """Hold what the ask of *reservation* needs, before the claims *behind*. Returns whether that changed the open
        room."""
        self._make_claims().add(reservation, behind)
        return self._claims_changed()

    def lift_saved(self, claims: Collection[Reservation]) -> None:
        """Stop holding anything for the saved *claims*, until :meth:`take_claims_back` restores those of now."""
        self.claims = self._make_claims().copy()
        self.claims.lift_saved(claims, self.free)
        self._claims_changed()

    def unreserve(self, reservation: Reservation) -> bool:
        """Stop holding anything for *reservation*. Returns whether that changed the open room."""
        self._make_claims().drop_claim(reservation)
        return self._claims_changed()

    def rank_claim(self, reservation: Reservation, before: Iterable[Reservation] = (), *, last: bool) -> None:
        """Rank *reservation* after the asks that preempt if it comes *last*, otherwise before them, and behind the
        claims *before* it."""
        self._make_claims().rank_claim(reservation, before, last=last)
        self._claims_changed()

    def resize_claim(self, reservation: Reservation, pairs: Pairs) -> None:
        """Hold *pairs* for *reservation* from now on."""
        self._make_claims().resize(reservation, pairs)
        self._claims_changed()

    def expect_exits(self, victims: Iterable[Allocation]) -> bool:
        """Note that *victims* on the node are going to leave; what they free goes to the claims first.

        Returns whether that changed the open room.
        """
        claims = self._make_claims()
        for victim in victims:
            claims.expect_exit(victim)
        return self._claims_changed()

    def expect_no_exit(self, victim: Allocation) -> None:
        """Note that *victim* has left, or is no longer expected to leave."""
        if self.claims is not None:
            self.claims.expect_no_exit(victim.key)
            self._claims_changed()

    def take_claims_back(self, claims: Claims | None, version: int) -> None:
        """Restores the *claims* and the *version* that the node had before hypothetical ones were tried."""
        self.claims, self.version = claims, version
        self._settle_claims()

    def widen_amounts(self, width: int) -> None:
        """Extend all amounts to *width* types."""
        for vector in (self.capacity, self.allocated, self.occupied, self.free):
            widen_vector(vector, width)
        if self.claims is not None:
            self.claims.widen_amounts(width)
        self._settle_claims()
        self.version += 1

    def _make_claims(self) -> Claims:
        if self.claims is None:
            self.claims = Claims(len(self.free))
        return self.claims

    def _claims_changed(self) -> bool:
        self.touch()
        before = self.open
        self._settle_claims()
        return self.open != before

    def _settle_claims(self) -> None:
        """Compute ``open`` again."""
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
