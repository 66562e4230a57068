"""Holds the state of one round of selection: the amounts that each leaf has to give up, the laws and limits that
restrict this, and the victims selected so far."""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Mapping, Sequence
from math import ceil, floor
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import LEAVING, Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.preemption.gang_losses import SpareMembers
from kornel.core.preemption.monitor.plan import Judge, Place, ProposedGang, Selection
from kornel.core.preemption.monitor.selection.figures import Amounts, MonitorView, Picture, QueueFigures, waits_for_room
from kornel.core.preemption.monitor.selection.ideal import Share, amount_to_give_up, assign_shares
from kornel.core.preemption.monitor.selection.passages import Deficits, Passage, count_coming, count_leaving
from kornel.core.preemption.monitor.selection.settings import MonitorSettings

_OUT_OF_REACH: Final = (*LEAVING, AskPlace.REPLACING)
"""The places of allocations that are leaving already, or that the shim does not know of yet."""

_NOTHING: Final[Amounts] = {}


class Targets:
    """The amounts that each leaf should give up, and the leaves that should hold more."""

    __slots__ = ("deficits", "obtain")

    def __init__(self) -> None:
        self.obtain: dict[QueueFigures, Amounts] = {}
        self.deficits: Deficits = {}


class Memory:
    """The facts from earlier rounds and from answers of applications that bear on the choice of victims.

    notified     keys at risk since an earlier round
    accepted     the keys at risk whose applications have answered that they prepare for it
    offered      keys that their applications named in exchange for others
    checkpoints  when allocations last saved their work, by key
    places       the places that the last round planned
    units        the plans for gangs that are to be carried out
    """

    def __init__(
        self,
        notified: Container[str] = (),
        accepted: Collection[str] = (),
        offered: Collection[str] = (),
        checkpoints: Mapping[str, int] | None = None,
        places: Sequence[Place] = (),
        units: Sequence[ProposedGang] = (),
    ) -> None:
        self.notified = notified
        self.accepted = accepted
        self.offered = offered
        self.checkpoints = checkpoints or {}
        self.places = list(places)
        self.units = units


class Round:
    """The state that the selectors of one round share: the targets, what the laws and the limit of the round allow, and
    what is selected."""

    def __init__(
        self,
        view: MonitorView,
        settings: MonitorSettings,
        figures: Picture,
        memory: Memory,
        spared: Container[Queue],
        judge: Judge | None = None,
    ) -> None:
        self.view = view
        self.judge = judge
        self.settings = settings
        self.picture = figures
        self.memory = memory
        self.spared = spared
        limits = {t: floor(settings.per_round * most) for t, most in figures.cluster.items()}
        self.selection = Selection(limits)
        self._spare_members = SpareMembers()
        self.left: dict[QueueFigures, Amounts] = {}
        """The amounts that each leaf has yet to give up; leaves that have given up enough are missing."""
        self.spare: dict[QueueFigures, Amounts] = {}
        """The amounts of originators that each leaf may still lose, once its tasks were looked at."""
        self.most: Amounts | None = None
        """The amounts that all leaves may give up together, if that is less than the sum."""
        self.declared = False
        """Tells whether only declared guarantees count at the moment."""
        self.balancing = False
        """Tells whether asks that law 4 refuses are served at the moment, too."""
        self.late = False
        """Tells whether those are served at the moment, too, who have waited for so long that minimum run times keep
        nobody back."""
        self.occurring: set[int] = set()
        """The classes of tasks and gangs that are known to occur in leaves which give something up."""
        self.short: Deficits = {}
        """The amounts that each leaf is short of, with its planned places counted as held."""
        self.passage = Passage(figures)
        self._selected_from: dict[QueueFigures, Amounts] = {}
        """The amounts selected from each leaf so far."""
        self._planned_for: dict[QueueFigures, Amounts] = {}
        """The amounts of the asks of each leaf that have a place."""
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
        """Computes the ideal shares of every type, and returns what leaves have to give up and are short of
        (preemption.md E.3)."""
        found = Targets()
        settings = self.settings
        factor = settings.natural_factor if natural else type(settings.natural_factor)(1)
        for t, capacity in self.picture.cluster.items():
            shares: dict[QueueFigures, Share] = {}
            for figures in self.picture.queues:
                reserved = figures.reserved.get(t, 0)
                also = figures.unentitled.get(t, 0) if balance else 0
                share = shares[figures] = Share(
                    figures.queue.name,
                    guaranteed=figures.guaranteed.get(t, 0),
                    ceiling=figures.ceilings.get(t),
                    used=figures.used[t] + (reserved if reserved_as_used else 0),
                    pending=figures.demand.get(t, 0) + also - (reserved if without_reserved else 0),
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
        """Returns what leaves below their guarantees still lack if the targets of :meth:`find_targets` were not enough.

        Shares are computed from totals. Leaves may stay short nevertheless, because free room is in pieces that are too
        small for any ask, because tasks are on draining nodes, or because a share of the cluster is smaller than one
        task. Then leaves above their guarantees give up as much, at the same pace. With *declared*, derived guarantees
        neither entitle nor protect.
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
        """Selects for *targets* from now on; what earlier selectors have selected counts towards them."""
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
        """Tells whether *allocation* may be a victim of any ask at all."""
        return not (
            allocation.place in _OUT_OF_REACH
            or allocation.spec.required_node
            or allocation.key in self.selection.waits
            or not self._spare_members.may_leave(allocation)
        )

    def is_wanting(self, left: Amounts) -> bool:
        """Tells whether something has still to be freed. If the setting ``conservative`` is on, nothing has to be once
        one type is freed."""
        if self.settings.conservative:
            return all(amount > 0 for amount in left.values())
        return is_positive(left)

    def gives_up(self, leaf: QueueFigures, t: int) -> bool:
        """Tells whether *leaf* has yet to give up something of type *t*."""
        left = self.left.get(leaf)
        return left is not None and left.get(t, 0) > 0 and (self.most is None or self.most.get(t, 0) > 0)

    def commit(self, place: Place, asking: QueueFigures, givers: Sequence[QueueFigures]) -> None:
        """Selects *place* for an ask of leaf *asking*; *givers*: the leaves of its victims, in order."""
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
        """Returns the amounts of the asks of *leaf* that have a place."""
        return self._planned_for.get(leaf, _NOTHING)

    def reservations(self) -> list[Reservation]:
        """Returns the reservations by age whose asks the monitor may serve, the oldest first."""
        waiting = [r for r in self.view.reservations.values() if r.by_age and waits_for_room(r.ask)]
        return sorted(waiting, key=lambda r: (r.made_ns, r.ask.order, r.ask.key))

    def drop_reservations(self, application: Application, left: Amounts) -> list[Reservation]:
        """Drops the reservations by age of *application*, whose leaf holds too much of a type in *left* (preemption.md
        E.5). Returns them."""
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
    """Tells whether any of *amounts* is above 0."""
    return any(amount > 0 for amount in amounts.values())
