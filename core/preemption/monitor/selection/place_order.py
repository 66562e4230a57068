"""Rearranges the places that a round has planned on one node, so that they need fewer victims (preemption.md E.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kornel.core.model.allocations import sum_amounts
from kornel.core.preemption.gang_losses import list_parcels
from kornel.core.preemption.monitor.plan import Place


def rearrange_places(
    places: Sequence[Place], left: Sequence[int], returned: Mapping[str, Sequence[int]]
) -> list[Place] | None:
    """Returns *places* of one node in an order in which they need fewer victims; *left* is free there after all of
    them. *returned*: by the key of an ask that has a reservation there, what only this ask and those after it may use.

    ``None``: there is no such order. In this order, each ask has room once its own victims and those of earlier places
    have left, and would lack room if any of its own victims stayed.
    """
    asked = {t for place in places for t, _ in place.ask.shape.pairs}
    over = {t: left[t] for t in asked}
    dropped: set[str] = set()
    for place in reversed(places):
        for parcel in reversed(list_parcels(place.victims)):
            pairs = [(t, amount) for t, amount in sum_amounts(parcel).items() if t in asked]
            if all(over[t] >= amount for t, amount in pairs):
                dropped.update([victim.key for victim in parcel])
                for t, amount in pairs:
                    over[t] -= amount
    if not dropped:
        return None
    room = dict(over)
    waiting: list[Place] = []
    for place in places:
        kept = tuple(victim for victim in place.victims if victim.key not in dropped)
        waiting.append(place._replace(victims=kept))
        for t, amount in place.ask.shape.pairs:
            room[t] += amount
        for victim in kept:
            for t, amount in victim.shape.pairs:
                if t in room:
                    room[t] -= amount
    for amounts in returned.values():
        for t in room:
            room[t] -= amounts[t]
    ordered: list[Place] = []
    while waiting:
        chosen = next((place for place in waiting if _runs_by_its_own(place, _room_of(place, room, returned))), None)
        if chosen is None:
            return None
        room = _room_of(chosen, room, returned)
        waiting.remove(chosen)
        ordered.append(chosen)
        for victim in chosen.victims:
            for t, amount in victim.shape.pairs:
                if t in room:
                    room[t] += amount
        for t, amount in chosen.ask.shape.pairs:
            room[t] -= amount
    return ordered


def _room_of(place: Place, room: dict[int, int], returned: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """Returns the part of *room* that the ask of *place* may use, its own reservation included."""
    own = returned.get(place.ask.key)
    return room if own is None else {t: amount + own[t] for t, amount in room.items()}


def _runs_by_its_own(place: Place, room: dict[int, int]) -> bool:
    """Tells whether the ask of *place* fits in *room* once its own victims have left, and would not fit without any of
    them."""
    lack = {t: amount - room[t] for t, amount in place.ask.shape.pairs}
    for victim in place.victims:
        for t, amount in victim.shape.pairs:
            if t in lack:
                lack[t] -= amount
    if any(amount > 0 for amount in lack.values()):
        return False
    return all(
        any(t in lack and lack[t] + amount > 0 for t, amount in sum_amounts(parcel).items())
        for parcel in list_parcels(place.victims)
    )
