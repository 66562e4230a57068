"""Drops victims of a plan for a gang that its members do not need (preemption.md, law 8), and refuses a plan in which
one would leave only for a type that no guarantee covers."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.gang_losses import find_whole_gangs, is_bound
from kornel.core.preemption.guarantee.gangs.devices import DevicesBeside, assign_devices, want_devices
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.state.records.victim_index import age_of, reluctance_of

UNJUSTIFIED: Final = Refusal(Outcome.NO_NODE, "allocations would leave only for a type that no guarantee covers")


class Freed:
    """The amounts that have to be freed for a plan, by place, and the amounts that its victims free."""

    def __init__(
        self, whole: Allocation, fence: Queue, entitled: Entitlement, places: Sequence[PreemptionPlan]
    ) -> None:
        needs = Needs(whole, fence, entitled)
        self._types = needs.types
        self._scopes = needs.scopes
        self._base = needs.base.copy()
        """The amounts still missing in queues and guarantees; below 0: the surplus that is freed."""
        self.all_owed: Final = all(needs.owed)
        """Tells whether a guarantee covers each type that the gang asks for."""
        self._owed = {t for t, owed in zip(needs.types, needs.owed, strict=True) if owed}
        self._path = set(whole.queue.lineage())
        self._nodes: dict[Node, dict[int, int]] = {}
        for place in places:
            lack = self._nodes.get(place.node)
            if lack is None:
                room = place.node.beside
                lack = self._nodes[place.node] = {t: -room[t] for t, _ in whole.shape.pairs}
            for t, amount in place.ask.shape.pairs:
                lack[t] += amount
        for place in places:
            self._count_freed(place.victims, -1)

    def can_do_without(self, victims: Sequence[Allocation]) -> bool:
        """Tells whether everything that has to be freed would be freed without *victims*."""
        self._count_freed(victims, 1)
        met = max(self._base, default=0) <= 0 and all(max(lack.values()) <= 0 for lack in self._nodes.values())
        self._count_freed(victims, -1)
        return met

    def needs(self, victims: Sequence[Allocation]) -> bool:
        """Tells whether something that *victims* may leave for would not be freed without them."""
        declared = {
            t for v in victims for queue in v.queue.lineage() if queue not in self._path for t in queue.guaranteed
        }
        types = self._owed | declared
        self._count_freed(victims, 1)
        missed = any(amount > 0 and t in types for t, amount in zip(self._types, self._base, strict=True)) or any(
            amount > 0 and t in types for lack in self._nodes.values() for t, amount in lack.items()
        )
        self._count_freed(victims, -1)
        return missed

    def take_out(self, victims: Sequence[Allocation]) -> None:
        """Stop counting *victims*."""
        self._count_freed(victims, 1)

    def _count_freed(self, victims: Sequence[Allocation], sign: int) -> None:
        for victim in victims:
            amounts = victim.shape.amounts
            lack = self._nodes.get(victim.node) if victim.node is not None else None
            if lack is not None:
                for t in lack:
                    lack[t] += sign * amounts.get(t, 0)
            lineage = victim.queue.lineage()
            for i, (t, scope) in enumerate(zip(self._types, self._scopes, strict=True)):
                if t in amounts and (scope is None or scope in lineage):
                    self._base[i] += sign * amounts[t]


def drop_spare_victims(
    found: Sequence[PreemptionPlan], ledger: Freed, given_up: Container[Allocation]
) -> Iterator[Sequence[PreemptionPlan] | Refusal | None]:
    """Yields the places *found* for all members without the victims that are not needed to free all that has to be
    freed (law 8), or a refusal if one of the others would leave only for a type that no guarantee covers; before that
    ``None`` after some work, as often as necessary."""
    order = {
        victim: (reluctance_of(victim), adjusted, age_of(victim), victim.key)
        for place in found
        for victim, adjusted in zip(place.victims, place.adjusted, strict=True)
    }
    spare: set[Allocation] = set()
    asks = [(place.ask, place.node) for place in found]
    wanted = want_devices([place.ask for place in found])
    devices = DevicesBeside(asks, order, given_up)
    for parts in reversed(_join_gangs(sorted(order, key=order.__getitem__))):
        if ledger.can_do_without(parts):
            if devices.may_stay(parts):
                ledger.take_out(parts)
                spare.update(parts)
            if devices.is_tired():
                yield None
    if not ledger.all_owed:
        kept = [victim for victim in order if victim not in spare]
        for parts in _join_gangs(kept):
            rest = [victim for victim in kept if victim not in parts]
            if not ledger.needs(parts) and not (wanted and assign_devices(asks, rest, given_up) is None):
                yield UNJUSTIFIED
                return
            if wanted:
                yield None
    places = [place.drop_victims(spare) for place in found]
    if devices.chosen:
        places = [replace(place, devices=devices.chosen.get(place.ask, place.devices)) for place in places]
    yield places


def _join_gangs(victims: Sequence[Allocation]) -> list[tuple[Allocation, ...]]:
    """Returns *victims* as groups: each victim alone, but the members of a gang that leaves as a whole together."""
    whole = find_whole_gangs(victims)
    parts = ((victim,) if not is_bound(victim) else whole.get(victim.application, (victim,)) for victim in victims)
    return list(dict.fromkeys(parts))
