"""One round of selection: what each leaf is to give up, what stands against it, and what was selected so far."""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Mapping, Sequence
from math import ceil, floor
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import LEAVING, Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.preemption.gang_losses import SpareMembers
from kornel.core.preemption.monitor.figures import Amounts, MonitorView, Picture, QueueFigures, waits_for_room
from kornel.core.preemption.monitor.ideal import Share, amount_to_give_up, assign_shares
from kornel.core.preemption.monitor.passages import Deficits, Passage, count_coming, count_leaving
from kornel.core.preemption.monitor.plan import Place, Selection
from kornel.core.preemption.monitor.settings import MonitorSettings

_OUT_OF_REACH: Final = (*LEAVING, AskPlace.REPLACING)
"""The places of allocations that are about to leave, or of which the shim does not know yet."""

_NOTHING: Final[Amounts] = {}


class Targets:
    """The amounts that each leaf should give up, and the leaves that should hold more."""

    __slots__ = ("deficits", "obtain")

    def __init__(self) -> None:
        self.obtain: dict[QueueFigures, Amounts] = {}
        self.deficits: Deficits = {}


class Memory:
    """The traces of earlier rounds and of applications that bear on who goes.

    notified     keys at risk since an earlier round
    accepted     those of them whose applications said that they prepare for it
    offered      keys that their applications named in exchange for others
    checkpoints  when allocations last saved their work, by key
    places       what the last round planned
    """

    def __init__(
        self,
        notified: Container[str] = (),
        accepted: Collection[str] = (),
        offered: Collection[str] = (),
        checkpoints: Mapping[str, int] | None = None,
        places: Sequence[Place] = (),
    ) -> None:
        self.notified = notified
        self.accepted = accepted
        self.offered = offered
        self.checkpoints = checkpoints or {}
        self.places = list(places)


class Round:
    """The state that the selectors of one round share: targets, what the laws and the limit leave, and what is
    selected."""

    def __init__(
        self,
        view: MonitorView,
        settings: MonitorSettings,
        figures: Picture,
        memory: Memory,
        spared: Container[Queue],
    ) -> None:
        self.view = view
        self.settings = settings
        self.picture = figures
        self.memory = memory
        self.spared = spared
        limits = {t: floor(settings.per_round * most) for t, most in figures.cluster.items()}
        self.selection = Selection(limits)
        self._spare_members = SpareMembers()
        self.left: dict[QueueFigures, Amounts] = {}
        """The amounts that each leaf is still to give up; leaves that are done are left out."""
        self.most: Amounts | None = None
        """The amounts that they may give up together, where that is less than the sum."""
        self.declared = False
        """Derived guarantees do not count just now."""
        self.short: Deficits = {}
        """The amounts that each leaf should hold more than it does with what is planned for it."""
        self.passage = Passage(figures)
        self._selected_from: dict[QueueFigures, Amounts] = {}
        """By leaf, what was selected from it so far."""
        self._planned_for: dict[QueueFigures, Amounts] = {}
        """By leaf, the asks that have a place."""
        self._wait_ns = 0
        self._reserved: dict[Application, list[Reservation]] | None = None

    def find_targets(
        self,
        *,
        natural: bool = True,
        balance: bool = False,
        reserved_as_used: bool = False,
        without_reserved: bool = False,
    ) -> Generator[int, None, Targets]:
        """Work out the ideal shares for every type, and what follows from them (E.3)."""
        found = Targets()
        settings = self.settings
        factor = settings.natural_factor if natural else type(settings.natural_factor)(1)
        for t, capacity in self.picture.cluster.items():
            shares: dict[QueueFigures, Share] = {}
            for figures in self.picture.queues:
                reserved = figures.reserved.get(t, 0)
                share = shares[figures] = Share(
                    figures.queue.name,
                    guaranteed=figures.guaranteed.get(t, 0),
                    ceiling=figures.ceilings.get(t),
                    used=figures.used[t] + (reserved if reserved_as_used else 0),
                    pending=figures.demand.get(t, 0) - (reserved if without_reserved else 0),
                    priority=figures.priority,
                    disabled=figures.disabled,
                    fenced=figures.fenced,
                )
                if figures.parent is not None:
                    shares[figures.parent].children.append(share)
            yield len(shares) * 3
            yield from assign_shares(shares[self.picture.root], capacity, settings.per_round, balance=balance)
            for figures, share in shares.items():
                if figures.leaf:
                    amount = 0 if figures.queue in self.spared else amount_to_give_up(share, settings.dead_zone, factor)
                    if amount:
                        found.obtain.setdefault(figures, {})[t] = amount
                    if share.ideal > figures.used[t]:
                        found.deficits.setdefault(figures, {})[t] = share.ideal - figures.used[t]
            yield len(shares)
        return found

    def find_owed(self, *, declared: bool = False) -> Generator[int, None, Targets]:
        """Returns what leaves under their guarantees still lack where :meth:`find_targets` came to too little.

        Shares are worked out from totals. Free room in pieces that no ask fits, tasks on draining nodes, or a part of
        the cluster smaller than one task leave leaves short all the same: whoever is over its guarantee gives as much,
        at the same pace. *declared*: derived guarantees neither entitle nor protect.
        """
        found = Targets()
        settings = self.settings
        self.most = {}
        self.declared = declared
        for t, capacity in self.picture.cluster.items():
            need = 0
            for leaf in self.picture.leaves_by_path():
                guaranteed = (leaf.queue.guaranteed if declared else leaf.guaranteed).get(t, 0)
                lacking = min(guaranteed, leaf.used[t] + leaf.demand.get(t, 0)) - leaf.used[t]
                if lacking > 0:
                    need += lacking
                    found.deficits.setdefault(leaf, {})[t] = lacking
            yield len(self.picture.leaves_by_path()) // 4
            planned = self.selection.selected.get(t, 0)
            within = min(need, floor(settings.per_round * capacity))
            pace = ceil(max(1, within) * settings.natural_factor)
            if not need or pace <= planned:
                continue
            self.most[t] = pace - planned
            for leaf in self.picture.leaves_by_path():
                guaranteed = (leaf.queue.guaranteed if declared else leaf.guaranteed).get(t, 0)
                over = leaf.used[t] - guaranteed
                if leaf.disabled or leaf.queue in self.spared or leaf.used[t] <= guaranteed * (1 + settings.dead_zone):
                    continue
                found.obtain.setdefault(leaf, {})[t] = min(
                    over, self.most[t] + self._selected_from.get(leaf, {}).get(t, 0)
                )
        return found

    def begin_selection(self, targets: Targets, wait_ns: int) -> None:
        """Select for *targets* from here on; what earlier selectors selected counts."""
        self._wait_ns = wait_ns
        self.left = {}
        for leaf, amounts in targets.obtain.items():
            before = self._selected_from.get(leaf, {})
            left = {t: amount - before.get(t, 0) for t, amount in amounts.items()}
            if self.is_wanting(left):
                self.left[leaf] = left
        self.short = {
            leaf: {t: amount - self._planned_for.get(leaf, {}).get(t, 0) for t, amount in amounts.items()}
            for leaf, amounts in targets.deficits.items()
        }
        selection = self.selection
        for leaf, amounts in targets.obtain.items():
            selection.targets.setdefault(leaf.queue, {}).update(amounts)
        for leaf, amounts in targets.deficits.items():
            selection.lacking.setdefault(leaf.queue.path, {}).update(amounts)

    def may_go(self, allocation: Allocation) -> bool:
        """Tells whether *allocation* may be a victim at all, whoever wants its room."""
        return not (
            allocation.place in _OUT_OF_REACH
            or allocation.spec.required_node
            or allocation.key in self.selection.waits
            or not self._spare_members.may_leave(allocation)
        )

    def is_wanting(self, left: Amounts) -> bool:
        """Tells whether something is still to be freed. ``conservative``: nothing any more as soon as one type is
        done."""
        if self.settings.conservative:
            return all(amount > 0 for amount in left.values())
        return is_positive(left)

    def gives_up(self, leaf: QueueFigures, t: int) -> bool:
        """Tells whether *leaf* is still to give up something of type *t*."""
        left = self.left.get(leaf)
        return left is not None and left.get(t, 0) > 0 and (self.most is None or self.most.get(t, 0) > 0)

    def commit(self, place: Place, asking: QueueFigures, givers: Sequence[QueueFigures]) -> None:
        """Select *place* for an ask of *asking*; *givers*: the leaf of each victim."""
        pairs = place.ask.shape.pairs
        count_coming(asking, pairs)
        planned = self._planned_for.get(asking)
        if planned is None:
            planned = self._planned_for[asking] = {}
        short = self.short.get(asking, _NOTHING)
        for t, amount in pairs:
            planned[t] = planned.get(t, 0) + amount
            if t in short:
                short[t] -= amount
        most = self.most
        for leaf, victim in zip(givers, place.victims, strict=True):
            gone = victim.shape.pairs
            count_leaving(leaf, gone)
            selected = self._selected_from.get(leaf)
            if selected is None:
                selected = self._selected_from[leaf] = {}
            left = self.left.get(leaf)
            done = False
            for t, amount in gone:
                selected[t] = selected.get(t, 0) + amount
                if left is not None and t in left:
                    left[t] -= amount
                    if left[t] <= 0:
                        done = True
                if most is not None and t in most:
                    most[t] -= amount
            if done and left is not None and not self.is_wanting(left):
                del self.left[leaf]
        self.selection.add(place, self._wait_ns)

    def planned_for(self, leaf: QueueFigures) -> Amounts:
        """Returns the asks of *leaf* that have a place."""
        return self._planned_for.get(leaf, _NOTHING)

    def reservations(self) -> list[Reservation]:
        """Returns those of asks that wait for room on the node, the longest waiting first."""
        waiting = [r for r in self.view.reservations.values() if r.by_age and waits_for_room(r.ask)]
        return sorted(waiting, key=lambda r: (r.made_ns, r.ask.order, r.ask.key))

    def drop_reservations(self, application: Application, left: Amounts) -> list[Reservation]:
        """Gives back nodes kept free for a leaf that holds too much (E.5). Returns which."""
        if self._reserved is None:
            self._reserved = {}
            for reservation in self.view.reservations.values():
                if reservation.by_age:
                    self._reserved.setdefault(reservation.ask.application, []).append(reservation)
        dropped = [
            reservation
            for reservation in self._reserved.pop(application, ())
            if any(left.get(t, 0) > 0 for t, _ in reservation.ask.shape.pairs)
        ]
        self.selection.reservations.extend(dropped)
        return dropped


def is_positive(amounts: Amounts) -> bool:
    """Tells whether there is something of any type."""
    return any(amount > 0 for amount in amounts.values())
