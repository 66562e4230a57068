"""Claims on the room of one node: amounts that are held for asks, and victims that are about to make room.

A node is never closed because an ask waits for it. Each ask that waits for room on the node holds the amount it needs;
the rest stays open to other asks. Claims have ranks: first come asks that must run on the node and have victims there,
then asks that have preempted for room on it, then asks that must run there and have found no victims, then asks that
have waited long. Within a rank the older claim comes first, or among those that come last the more important one.

An ask is served from what its own victims on the node will free, and from free room for the rest. So freed room belongs
to the claims in their order, and room that is free because another ask's victims left early is open to every ask that
it is enough for. Rules: docs/spec/preemption.md B.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kornel.core.model.shapes import Pairs, Vector, book_amounts, holds_pairs, unbook_amounts, widen_vector

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, Reservation
    from kornel.core.model.nodes import Node


class Claims:
    """All claims on one node, with their sums by type index."""

    __slots__ = ("_owners", "_parts", "by_age", "held", "leaving", "needed", "reservations", "unowned", "victims")

    def __init__(self, width: int) -> None:
        self.reservations: dict[str, Reservation] = {}
        """The claims by the key of their ask, in the order in which they were made."""
        self.held: Vector = [0] * width
        """The amounts held for asks that must run here, or preempt for the room."""
        self.needed: Vector = [0] * width
        """The part of ``held`` that does not come from the asks' own victims, and has to come from free room."""
        self.by_age: Vector = [0] * width
        """The amounts held for asks that come last: they have waited long, or must run here and have no victims."""
        self.victims: dict[str, Pairs] = {}
        """The amounts that victims are expected to free, by the victim's key."""
        self.leaving: Vector = [0] * width
        """The sum of ``victims``."""
        self.unowned: Vector = [0] * width
        """The amounts of leaving victims that belong to no claim on this node; the first claim in order gets them."""
        self._owners: dict[str, str] = {}
        """The key of the ask with a claim on this node for which a victim leaves, by the victim's key."""
        self._parts: dict[str, dict[int, int]] = {}
        """The amounts that the victims of an ask free for it on this node, by the ask's key."""

    def __bool__(self) -> bool:
        return bool(self.reservations or self.victims)

    def add(self, reservation: Reservation, behind: Iterable[Reservation] = ()) -> None:
        """Hold the amounts that the ask of *reservation* needs. The amounts that its victims on this node free count
        for this claim. *behind*: the claims of its rank that come after it although they are older."""
        self.reservations[reservation.ask.key] = reservation
        for claim in behind:
            del self.reservations[claim.ask.key]
            self.reservations[claim.ask.key] = claim
        self._begin_claim(reservation)

    def drop_claim(self, reservation: Reservation) -> None:
        """Stop holding anything for *reservation*. What its victims free is open to any claim."""
        self._end_claim(reservation)
        del self.reservations[reservation.ask.key]

    def lift_saved(self, lifted: Collection[Reservation], free: Vector) -> None:
        """Stop holding anything for the saved claims *lifted*, and for those behind them for which nothing of what is
        *free* or leaves is kept beside these."""
        left = [
            max(0, room + leaves - taken) for room, leaves, taken in zip(free, self.leaving, self.held, strict=True)
        ]
        for claim in self.list_saved():
            keeps = tuple([(t, min(amount, left[t])) for t, amount in claim.pairs])
            unbook_amounts(left, keeps)
            if claim in lifted or not any(amount for _, amount in keeps):
                self.drop_claim(claim)

    def resize(self, reservation: Reservation, pairs: Pairs) -> None:
        """Hold *pairs* for *reservation* instead of what was held, or nothing; its place in the order stays."""
        self._end_claim(reservation)
        reservation.pairs = pairs
        if pairs:
            self._begin_claim(reservation)

    def rank_claim(self, reservation: Reservation, before: Iterable[Reservation] = (), *, last: bool) -> None:
        """Rank *reservation* after the asks that preempt if it comes *last*, otherwise before them; its age stays.
        *before*: the claims of its new rank that come before it although they may be younger."""
        self._end_claim(reservation)
        reservation.comes_last = last
        self.reservations = {claim.ask.key: claim for claim in before} | self.reservations
        self._begin_claim(reservation)

    def _begin_claim(self, reservation: Reservation) -> None:
        if reservation.comes_last:
            book_amounts(self.by_age, reservation.pairs)
            return
        ask, owners, unowned = reservation.ask, self._owners, self.unowned
        part: dict[int, int] = {}
        book_amounts(self.held, reservation.pairs)
        # All of its victims on this node are given at once, because the needs would be computed again for each of them.
        for key in ask.victims:
            pairs = self.victims.get(key)
            if pairs is None:
                continue
            if key in owners:
                self._give_to(key, None)
            owners[key] = ask.key
            for t, amount in pairs:
                unowned[t] -= amount
                part[t] = part.get(t, 0) + amount
        if part:
            self._parts[ask.key] = part
        book_amounts(self.needed, self._from_free(reservation))

    def _end_claim(self, reservation: Reservation) -> None:
        if reservation.comes_last:
            unbook_amounts(self.by_age, reservation.pairs)
            return
        for key in [key for key, owner in self._owners.items() if owner == reservation.ask.key]:
            self._give_to(key, None)
        unbook_amounts(self.needed, reservation.pairs)
        unbook_amounts(self.held, reservation.pairs)

    def expect_exit(self, victim: Allocation) -> None:
        """Note that *victim* is going to leave and to free its room, for its preemptor if that has a claim here."""
        pairs, leaving, unowned = victim.shape.pairs, self.leaving, self.unowned
        self.victims[victim.key] = pairs
        for t, amount in pairs:
            leaving[t] += amount
            unowned[t] += amount
        if not self.reservations:
            return
        claim = None if victim.preemptor is None else self.reservations.get(victim.preemptor.key)
        if claim is not None and claim.pairs and not claim.comes_last:
            self._give_to(victim.key, claim.ask.key)

    def expect_no_exit(self, key: str) -> None:
        """Note that the victim called *key* has left, or is no longer expected to leave; ignore an unknown key."""
        if key in self.victims:
            self._give_to(key, None)
            pairs = self.victims.pop(key)
            unbook_amounts(self.unowned, pairs)
            unbook_amounts(self.leaving, pairs)

    def open_room(self, free: Vector, lent: Collection[Reservation] = ()) -> Vector:
        """Returns, by type, how much of *free* any ask may take now without touching what is held; if negative,
        nothing. *lent*: claims of those who come last that the ask may pass.

        Returns *free* itself if the victims of all holders free everything that is held.
        """
        if not any(self.needed) and not any(self.by_age):
            return free
        by_age = self.by_age.copy() if lent else self.by_age
        for reservation in lent:
            unbook_amounts(by_age, reservation.pairs)
        return [
            min(room, room + coming - needed - kept)
            for room, coming, needed, kept in zip(free, self.unowned, self.needed, by_age, strict=True)
        ]

    def room_beside(self, free: Vector, without: Collection[Reservation] = ()) -> Vector:
        """Returns, by type, what remains of *free* and of leaving victims once every claim is served.

        An amount is negative only if the node is over-allocated or more is claimed than there is. *without*: claims to
        leave out.
        """
        held, kept = self.held, self.by_age
        if without:
            held, kept = held.copy(), kept.copy()
        for claim in without:
            unbook_amounts(kept if claim.comes_last else held, claim.pairs)
        return [
            _room_beside(room + leaves - taken, aged)
            for room, leaves, taken, aged in zip(free, self.leaving, held, kept, strict=True)
        ]

    def saves_room(self, free: Vector, pairs: Pairs) -> bool:
        """Tells whether some of what is *free* or leaving, of a type in *pairs*, is saved for those who come last."""
        saved, held, leaving = self.by_age, self.held, self.leaving
        return any(saved[t] > 0 and free[t] + leaving[t] > held[t] for t, _ in pairs)

    def is_overdrawn(self, free: Vector, t: int) -> bool:
        """Tells whether more of type *t* is claimed than there will be, claims by age aside; then no claim may be
        added."""
        return self.held[t] > 0 and free[t] + self.leaving[t] < self.held[t]

    def list_saved(self) -> list[Reservation]:
        """Returns the saved claims, the first to be served first."""
        return [reservation for reservation in self.in_order() if reservation.comes_last]

    def in_order(self) -> list[Reservation]:
        """Returns all claims, the first to be served first."""
        return sorted(self.reservations.values(), key=lambda reservation: reservation.rank)

    def to_wake(self, free: Vector) -> list[Reservation]:
        """Returns the claims that *free* can serve now after all earlier ones, and every claim of an ask that requires
        the node."""
        found: list[Reservation] = []
        before = [0] * len(free)
        for reservation in self.in_order():
            if reservation.ask.spec.required_node or self._can_serve(reservation, free, before):
                found.append(reservation)
            book_amounts(before, self._from_free(reservation))
        return found

    def room_of(self, reservation: Reservation, free: Vector) -> Vector:
        """Returns, by type, how much of *free* is left for *reservation* after all claims before it."""
        before = [0] * len(free)
        for earlier in self.in_order():
            if earlier is reservation:
                break
            book_amounts(before, self._from_free(earlier))
        return [
            min(room, room + coming - needed) for room, coming, needed in zip(free, self.unowned, before, strict=True)
        ]

    def find_missing(self, reservation: Reservation, free: Vector) -> dict[int, int]:
        """Returns the part of what *reservation* holds that *free* does not have for it, by type. Types of which
        nothing is missing are left out."""
        room = self.room_of(reservation, free)
        return {t: min(amount, amount - room[t]) for t, amount in reservation.pairs if amount > room[t]}

    def room_for(self, reservation: Reservation, free: Vector) -> bool:
        """Tells whether *free* can serve *reservation* after all claims before it."""
        return holds_pairs(self.room_of(reservation, free), reservation.pairs)

    def room_for_all(self, reservations: Collection[Reservation], free: Vector) -> bool:
        """Tells whether *free* is enough for all *reservations* at once, without the room that earlier claims still
        need."""
        before = [0] * len(free)
        total = [0] * len(free)
        left = len(reservations)
        for claim in self.in_order():
            if claim in reservations:
                book_amounts(total, claim.pairs)
                left -= 1
                if not left:
                    break
            else:
                book_amounts(before, self._from_free(claim))
        return all(
            not amount or amount <= min(room, room + coming - needed)
            for amount, room, coming, needed in zip(total, free, self.unowned, before, strict=True)
        )

    def copy(self) -> Claims:
        """Returns the same claims in a record of their own."""
        claims = Claims(len(self.held))
        claims.reservations, claims.victims = dict(self.reservations), dict(self.victims)
        claims.held, claims.needed, claims.by_age = self.held.copy(), self.needed.copy(), self.by_age.copy()
        claims.leaving, claims.unowned = self.leaving.copy(), self.unowned.copy()
        claims._owners = dict(self._owners)
        claims._parts = {key: dict(part) for key, part in self._parts.items()}
        return claims

    def widen_amounts(self, width: int) -> None:
        """Extend all amounts to *width* types."""
        for vector in (self.held, self.needed, self.by_age, self.leaving, self.unowned):
            widen_vector(vector, width)

    def _can_serve(self, reservation: Reservation, free: Vector, before: Vector) -> bool:
        """Tells whether *reservation* can be served from *free*, of which claims before it need *before*."""
        unowned = self.unowned
        return all(min(free[t], free[t] + unowned[t] - before[t]) >= amount for t, amount in reservation.pairs)

    def _from_free(self, reservation: Reservation) -> Pairs:
        """Returns the amounts that *reservation* holds of the free room: the rest comes from its victims."""
        part = self._parts.get(reservation.ask.key)
        if part is None:
            return reservation.pairs
        return tuple([(t, max(0, amount - part.get(t, 0))) for t, amount in reservation.pairs])

    def _give_to(self, key: str, owner: str | None) -> None:
        """Note that the victim called *key* leaves for the claim of the ask called *owner*; ``None``: for no claim
        here."""
        before = self._owners.pop(key, None)
        if before is not None:
            self._share_exit(before, self.victims[key], -1)
            book_amounts(self.unowned, self.victims[key])
        if owner is not None:
            self._owners[key] = owner
            self._share_exit(owner, self.victims[key], 1)
            unbook_amounts(self.unowned, self.victims[key])

    def _share_exit(self, owner: str, pairs: Pairs, sign: int) -> None:
        reservation = self.reservations[owner]
        unbook_amounts(self.needed, self._from_free(reservation))
        part = self._parts.setdefault(owner, {})
        for t, amount in pairs:
            part[t] = part.get(t, 0) + sign * amount
        if not any(part.values()):
            del self._parts[owner]
        book_amounts(self.needed, self._from_free(reservation))


def by_node(claims: Iterable[Reservation]) -> dict[Node, list[Reservation]]:
    """Returns *claims* by the nodes on which they are."""
    found: dict[Node, list[Reservation]] = {}
    for claim in claims:
        found.setdefault(claim.node, []).append(claim)
    return found


def _room_beside(room: int, kept: int) -> int:
    """Returns the part of *room* that is not *kept*; negative room stays as it is."""
    return room if room < 0 else max(0, room - kept)
