"""One round of selection: what each leaf is to give up, what stands against it, and what was selected so far."""

from __future__ import annotations

from collections.abc import Collection, Container, Generator
from math import floor

from core.model.allocations import Allocation, Reservation
from core.model.applications import Application
from core.model.queues import Queue
from core.model.shapes import Pairs
from core.policies.preemption.monitor.figures import Amounts, MonitorView, Picture, QueueFigures, waits_for_room
from core.policies.preemption.monitor.ideal import Share, assign, obtain
from core.policies.preemption.monitor.plan import Selection
from core.policies.preemption.monitor.settings import MonitorSettings
from core.policies.preemption.monitor.terms import Deficits, Demand, Rooms


class Targets:
    """What each leaf should give up, and which leaves should hold more."""

    __slots__ = ("deficits", "obtain")

    def __init__(self) -> None:
        self.obtain: dict[QueueFigures, Amounts] = {}
        self.deficits: Deficits = {}


class Round:
    """What the selectors of one round share: targets, what the laws and the limit leave, and what is selected."""

    def __init__(
        self,
        view: MonitorView,
        settings: MonitorSettings,
        figures: Picture,
        now_ns: int,
        offered: Collection[str],
        spared: Container[Queue],
    ) -> None:
        self.view = view
        self.settings = settings
        self.picture = figures
        self.offered = offered
        self.spared = spared
        limits = {t: floor(settings.per_round * most) for t, most in figures.cluster.items()}
        self.selection = Selection(limits)
        self.left: dict[QueueFigures, Amounts] = {}
        """What each leaf is still to give up."""
        self._selected_from: dict[QueueFigures, Amounts] = {}
        """By leaf, what was selected from it so far."""
        self.taken_for: dict[Queue, Amounts] = {}
        """By leaf, what was selected for its asks in particular."""
        self.rooms = Rooms({})
        self._demand = Demand(figures, {})
        self._highest: dict[QueueFigures, Amounts] = {}
        self._wait_ns = 0
        self._reserved: dict[Application, list[Reservation]] | None = None

    def targets(
        self,
        *,
        natural: bool = True,
        balance: bool = False,
        reserved_as_used: bool = False,
        without_reserved: bool = False,
    ) -> Generator[int, None, Targets]:
        """Ideal shares for every type, and what follows from them (E.3)."""
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
            yield from assign(shares[self.picture.root], capacity, settings.per_round, balance=balance)
            for figures, share in shares.items():
                if figures.leaf:
                    amount = 0 if figures.queue in self.spared else obtain(share, settings.dead_zone, factor)
                    if amount:
                        found.obtain.setdefault(figures, {})[t] = amount
                    if share.ideal > figures.used[t]:
                        found.deficits.setdefault(figures, {})[t] = share.ideal - figures.used[t]
            yield len(shares)
        return found

    def begin(self, targets: Targets, wait_ns: int) -> None:
        """Select for *targets* from here on; what earlier selectors selected counts."""
        self._wait_ns = wait_ns
        self.left = {}
        for leaf, amounts in targets.obtain.items():
            before = self._selected_from.get(leaf, {})
            left = {t: amount - before.get(t, 0) for t, amount in amounts.items()}
            if positive(left):
                self.left[leaf] = left
        self.selection.targets.update({leaf.queue: dict(amounts) for leaf, amounts in targets.obtain.items()})
        self.selection.lacking.update({leaf.queue.path: dict(amounts) for leaf, amounts in targets.deficits.items()})
        lacking: dict[int, tuple[int, str, Queue]] = {}
        for leaf, amounts in targets.deficits.items():
            for t, amount in amounts.items():
                entry = (-amount, leaf.queue.path, leaf.queue)
                if t not in lacking or entry[:2] < lacking[t][:2]:
                    lacking[t] = entry
        self.selection.neediest.update({t: entry[2] for t, entry in lacking.items()})
        self.rooms = Rooms(targets.deficits)
        for leaf, amounts in self._selected_from.items():
            self.rooms.take(leaf, tuple(amounts.items()))
        self._demand = Demand(self.picture, targets.deficits)
        self._highest.clear()

    def may_go(self, allocation: Allocation) -> bool:
        """Whether *allocation* may be a victim at all, whoever wants its room."""
        return not (
            allocation.preempted
            or allocation.released
            or allocation.spec.required_node
            or allocation.replaces is not None
            or allocation.key in self.selection.waits
        )

    def wanting(self, left: Amounts) -> bool:
        """Whether something is still to be freed. ``conservative``: nothing any more as soon as one type is done."""
        if self.settings.conservative:
            return all(amount > 0 for amount in left.values())
        return positive(left)

    def attempt(self, leaf: QueueFigures, victim: Allocation, left: Amounts) -> bool:
        """Select *victim* if it helps and nothing stands against it."""
        pairs = victim.shape.pairs
        highest = self._highest.get(leaf)
        if highest is None:
            highest = self._highest[leaf] = self._demand.highest(leaf)
        priority = victim.spec.priority
        if not any(left.get(t, 0) > 0 and t in highest and priority <= highest[t] for t, _ in pairs):
            return False
        if not self.selection.fits(pairs) or not self.rooms.admits(leaf, pairs):
            return False
        self.commit(victim)
        return True

    def commit(self, victim: Allocation) -> None:
        """*victim* is selected."""
        leaf = self.picture.of[victim.queue]
        self.book(leaf, victim.shape.pairs, 1)
        selected = self._selected_from.setdefault(leaf, {})
        for t, amount in victim.shape.pairs:
            selected[t] = selected.get(t, 0) + amount
        self.selection.add(victim, self._wait_ns)

    def book(self, leaf: QueueFigures, pairs: Pairs, times: int) -> None:
        """*pairs* leave *leaf*, or with *times* -1 do not after all."""
        amounts = tuple((t, amount * times) for t, amount in pairs)
        self.rooms.take(leaf, amounts)
        self.selection.count(amounts)
        left = self.left.get(leaf)
        if left is not None:
            for t, amount in amounts:
                if t in left:
                    left[t] -= amount

    def reservations(self) -> list[Reservation]:
        """Those of asks that wait for room on the node, the longest waiting first."""
        waiting = [r for r in self.view.reservations.values() if r.by_age and waits_for_room(r.ask)]
        return sorted(waiting, key=lambda r: (r.made_ns, r.ask.order, r.ask.key))

    def drop_reservations(self, application: Application, left: Amounts) -> None:
        """Nodes kept free for a leaf that holds too much are given back (E.5)."""
        if self._reserved is None:
            self._reserved = {}
            for reservation in self.reservations():
                self._reserved.setdefault(reservation.ask.application, []).append(reservation)
        for reservation in self._reserved.pop(application, ()):
            if any(left.get(t, 0) > 0 for t, _ in reservation.ask.shape.pairs):
                self.selection.reservations.append(reservation)


def positive(amounts: Amounts) -> bool:
    """Whether there is something of any type."""
    return any(amount > 0 for amount in amounts.values())
