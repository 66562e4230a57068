"""Who goes: from each leaf that holds too much, as much as this turn asks for, within the laws and the round's limit.

The selectors run one after the other, and what one selects counts for the next: for reserved asks of more important
queues (optional), for reserved asks at all (optional), leaf by leaf, originators last. Rules: preemption.md E.5, E.8.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from heapq import merge
from math import floor
from typing import Final

from core.model.allocations import Allocation, Reservation
from core.model.applications import Application
from core.model.nodes import Node
from core.model.queues import Queue
from core.model.shapes import Pairs
from core.policies.preemption.index import CLASSES, reluctance
from core.policies.preemption.monitor.figures import (
    Amounts,
    MonitorView,
    Picture,
    QueueFigures,
    picture,
    waits_for_room,
)
from core.policies.preemption.monitor.ideal import Share, assign, obtain
from core.policies.preemption.monitor.plan import Selection
from core.policies.preemption.monitor.settings import BALANCE_WAIT_NS, MonitorSettings
from core.policies.preemption.monitor.terms import Deficits, Demand, Rooms, may_take

LOOKS_A_PIECE: Final = 1_000
TRIES_A_PIECE: Final = 200
LOOKS_PER_TRY: Final = 5
"""Looks at an allocation that can be taken in the time of one try to select one."""

_Ranked = tuple[bool, int, int, str, Allocation]
"""(not offered by its application, priority, -created, key, allocation): the first to go first."""


def select(
    view: MonitorView,
    settings: MonitorSettings,
    now_ns: int,
    *,
    offered: Collection[str] = (),
    spared: Collection[Queue] = (),
) -> Generator[int, None, Selection]:
    """Everybody who should go as things stand; yields after every piece of work.

    *offered*: keys that their applications named in exchange for others. *spared*: leaves left alone, because
    something else takes from them just now.
    """
    figures = yield from picture(view)
    run = _Round(view, settings, figures, now_ns, offered, spared)
    if settings.reserved_first:
        targets = yield from run.targets(natural=False, reserved_as_used=True)
        run.begin(targets, settings.max_wait_ns)
        if settings.queue_priority:
            yield from run.serve_important(now_ns)
        yield from run.serve_reserved()
        targets = yield from run.targets(without_reserved=True)
        run.begin(targets, settings.max_wait_ns)
    else:
        targets = yield from run.targets()
        run.begin(targets, settings.max_wait_ns)
        if settings.queue_priority:
            yield from run.serve_important(now_ns)
    yield from run.serve_leaves()
    if settings.balance:
        targets = yield from run.targets(balance=True, without_reserved=settings.reserved_first)
        run.begin(targets, max(BALANCE_WAIT_NS, settings.max_wait_ns))
        yield from run.serve_leaves()
    return run.selection


class Targets:
    """What each leaf should give up, and which leaves should hold more."""

    __slots__ = ("deficits", "obtain")

    def __init__(self) -> None:
        self.obtain: dict[QueueFigures, Amounts] = {}
        self.deficits: Deficits = {}


class _Round:
    def __init__(
        self,
        view: MonitorView,
        settings: MonitorSettings,
        figures: Picture,
        now_ns: int,
        offered: Collection[str],
        spared: Collection[Queue],
    ) -> None:
        self._view = view
        self._settings = settings
        self._picture = figures
        self._offered = offered
        self._spared = spared
        limits = {t: floor(settings.per_round * most) for t, most in figures.cluster.items()}
        self.selection = Selection(limits)
        self._left: dict[QueueFigures, Amounts] = {}
        """What each leaf is still to give up."""
        self._selected_from: dict[QueueFigures, Amounts] = {}
        self._taken_for: dict[Queue, Amounts] = {}
        self._rooms = Rooms({})
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
        settings = self._settings
        factor = settings.natural_factor if natural else type(settings.natural_factor)(1)
        for t, capacity in self._picture.cluster.items():
            shares: dict[QueueFigures, Share] = {}
            for figures in self._picture.queues:
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
            yield from assign(shares[self._picture.root], capacity, settings.per_round, balance=balance)
            for figures, share in shares.items():
                if figures.leaf:
                    amount = 0 if figures.queue in self._spared else obtain(share, settings.dead_zone, factor)
                    if amount:
                        found.obtain.setdefault(figures, {})[t] = amount
                    if share.ideal > figures.used[t]:
                        found.deficits.setdefault(figures, {})[t] = share.ideal - figures.used[t]
            yield len(shares)
        return found

    def begin(self, targets: Targets, wait_ns: int) -> None:
        """Select for *targets* from here on; what earlier selectors selected counts."""
        self._wait_ns = wait_ns
        self._left = {}
        for leaf, amounts in targets.obtain.items():
            before = self._selected_from.get(leaf, {})
            left = {t: amount - before.get(t, 0) for t, amount in amounts.items()}
            if _positive(left):
                self._left[leaf] = left
        self.selection.targets.update({leaf.queue: dict(amounts) for leaf, amounts in targets.obtain.items()})
        self._rooms = Rooms(targets.deficits)
        for leaf, amounts in self._selected_from.items():
            self._rooms.take(leaf, tuple(amounts.items()))
        self._demand = Demand(self._picture, targets.deficits)
        self._highest.clear()

    def serve_leaves(self) -> Generator[int, None, None]:
        """Leaf by leaf, its newest applications first; the reluctant are set aside, originators longest (3 and 4)."""
        for leaf in self._picture.leaves():
            left = self._left.get(leaf)
            if left is None:
                continue
            aside: dict[int, list[Allocation]] = {kind: [] for kind in CLASSES[1:]}
            applications = sorted(
                leaf.queue.applications.values(), key=lambda app: (-app.submitted_ns, app.application_id)
            )
            for application in applications:
                if not self._wanting(left):
                    break
                self._drop_reservations(application, left)
                yield from self._from_application(leaf, application, left, aside)
            opted_out, originators, both = aside[2], aside[1], aside[3]
            yield from self._from_reluctant(leaf, opted_out, left)
            yield from self._from_originators(leaf, originators + both, left)

    def serve_reserved(self) -> Generator[int, None, None]:
        """Where a reserved ask lacks room, free all of it or nothing; the cheapest nodes first (2)."""
        feasible: list[tuple[float, str, Reservation, list[Allocation]]] = []
        for reservation in self._reservations():
            ask, node = reservation.ask, reservation.node
            yield 1 + len(node.allocations)
            found = self._room_on(node, ask, within_targets=True)
            if found:
                lacking = sum(amount for _, amount in ask.shape.pairs)
                freed = sum(amount for victim in found for _, amount in victim.shape.pairs)
                feasible.append((freed / lacking, node.node_id, reservation, found))
        for _, _, reservation, _ in sorted(feasible, key=lambda entry: (*entry[:2], entry[2].ask.key)):
            yield 1 + len(reservation.node.allocations)
            for victim in self._room_on(reservation.node, reservation.ask, within_targets=True):
                self._commit(victim)

    def serve_important(self, now_ns: int) -> Generator[int, None, None]:
        """Asks whose node is kept free in vain take from less important queues there, up to their guarantee (1)."""
        served: set[Node] = set()
        for reservation in self._reservations():
            ask, node = reservation.ask, reservation.node
            waited = now_ns - reservation.made_ns >= self._settings.queue_priority_wait_ns
            if not waited or node in served or not self._owed(ask):
                continue
            yield 1 + len(node.allocations)
            found = self._room_on(node, ask, within_targets=False)
            if found:
                served.add(node)
                taken = self._taken_for.setdefault(ask.queue, {})
                for t, amount in ask.shape.pairs:
                    taken[t] = taken.get(t, 0) + amount
                for victim in found:
                    self._commit(victim)

    def _reservations(self) -> list[Reservation]:
        """Those of asks that wait for room on the node, the longest waiting first."""
        waiting = [r for r in self._view.reservations.values() if r.by_age and waits_for_room(r.ask)]
        return sorted(waiting, key=lambda r: (r.made_ns, r.ask.order, r.ask.key))

    def _owed(self, ask: Allocation) -> bool:
        """Whether the queue of *ask* is under a guarantee for something it asks for, selections for it included."""
        figures = self._picture.of.get(ask.queue)
        taken = self._taken_for.get(ask.queue, {})
        return figures is not None and any(
            figures.used[t] + taken.get(t, 0) < figures.guaranteed.get(t, 0) for t, _ in ask.shape.pairs
        )

    def _room_on(self, node: Node, ask: Allocation, *, within_targets: bool) -> list[Allocation]:
        """Victims that free what *ask* lacks on *node*; nobody if that is impossible, or if it lacks nothing.

        *within_targets*: only what their leaves are to give up anyway; else only queues less important than the ask's.
        """
        lacking = {t: amount - node.free[t] for t, amount in ask.shape.pairs if amount > node.free[t]}
        for victim in node.allocations.values():
            if victim.preempted or victim.key in self.selection.waits:
                for t, amount in victim.shape.pairs:
                    if t in lacking:
                        lacking[t] -= amount
        if not _positive(lacking):
            return []
        candidates = [a for a in node.allocations.values() if self._may_go(a) and may_take(ask, a)]
        candidates = [a for a in candidates if not a.spec.originator and a.queue not in self._spared]
        if within_targets:
            candidates.sort(key=lambda a: (reluctance(a), -a.created_ns, a.key))
        else:
            ranked = [(_relative_priorities(ask.queue, a.queue), a) for a in candidates]
            ranked = [((ours, theirs), a) for (ours, theirs), a in ranked if theirs < ours]
            ranked.sort(key=lambda pair: (reluctance(pair[1]), pair[0][1], -pair[1].created_ns, pair[1].key))
            candidates = [a for _, a in ranked]
        chosen: list[tuple[QueueFigures, Allocation]] = []
        for victim in candidates:
            leaf = self._picture.of.get(victim.queue)
            pairs = victim.shape.pairs
            if leaf is None or leaf.disabled or not any(lacking.get(t, 0) > 0 for t, _ in pairs):
                continue
            left = self._left.get(leaf, {})
            if within_targets and any(left.get(t, 0) < amount for t, amount in pairs):
                continue
            if not self._rooms.admits(leaf, pairs) or not self.selection.fits(pairs):
                continue
            self._book(leaf, pairs, 1)
            chosen.append((leaf, victim))
            for t, amount in pairs:
                if t in lacking:
                    lacking[t] -= amount
            if not _positive(lacking):
                break
        for leaf, victim in chosen:
            self._book(leaf, victim.shape.pairs, -1)
        return [] if _positive(lacking) else [victim for _, victim in chosen]

    def _from_application(
        self, leaf: QueueFigures, application: Application, left: Amounts, aside: dict[int, list[Allocation]]
    ) -> Generator[int, None, None]:
        pieces: list[list[_Ranked]] = []
        everything = list(application.allocations.values())
        for start in range(0, len(everything), LOOKS_A_PIECE):
            piece = everything[start : start + LOOKS_A_PIECE]
            ranked = [
                (a.key not in self._offered, a.spec.priority, -a.created_ns, a.key, a) for a in piece if self._may_go(a)
            ]
            ranked.sort()
            pieces.append(ranked)
            yield len(piece)
        looks = 0
        for entry in _in_order(pieces):
            looks += 1
            if looks >= TRIES_A_PIECE:
                yield looks * LOOKS_PER_TRY
                looks = 0
            if not self._wanting(left):
                break
            victim = entry[4]
            kind = reluctance(victim)
            if kind:
                aside[kind].append(victim)
            else:
                self._try(leaf, victim, left)
        yield looks * LOOKS_PER_TRY
        while len(pieces) > 1:  # To free a hundred thousand entries at once takes long, too.
            yield len(pieces.pop()) // LOOKS_PER_TRY

    def _from_reluctant(
        self, leaf: QueueFigures, waiting: list[Allocation], left: Amounts
    ) -> Generator[int, None, None]:
        for start in range(0, len(waiting), TRIES_A_PIECE):
            for victim in waiting[start : start + TRIES_A_PIECE]:
                if not self._wanting(left):
                    return
                self._try(leaf, victim, left)
            yield TRIES_A_PIECE * LOOKS_PER_TRY

    def _from_originators(
        self, leaf: QueueFigures, waiting: list[Allocation], left: Amounts
    ) -> Generator[int, None, None]:
        """As long as more than the reserve for originators would be left of them."""
        spare: Amounts = {}
        for victim in waiting:
            for t, amount in victim.shape.pairs:
                spare[t] = spare.get(t, 0) + amount
        yield len(waiting)
        for t in spare:
            spare[t] -= floor(self._settings.originator_reserve * leaf.guaranteed.get(t, 0))
        for tries, victim in enumerate(waiting, 1):
            if not self._wanting(left):
                break
            if all(spare[t] > 0 for t, _ in victim.shape.pairs) and self._try(leaf, victim, left):
                for t, amount in victim.shape.pairs:
                    spare[t] -= amount
            if tries % TRIES_A_PIECE == 0:
                yield TRIES_A_PIECE * LOOKS_PER_TRY

    def _may_go(self, allocation: Allocation) -> bool:
        return not (
            allocation.preempted
            or allocation.released
            or allocation.spec.required_node
            or allocation.replaces is not None
            or allocation.key in self.selection.waits
        )

    def _wanting(self, left: Amounts) -> bool:
        """Whether something is still to be freed. ``conservative``: nothing any more as soon as one type is done."""
        if self._settings.conservative:
            return all(amount > 0 for amount in left.values())
        return _positive(left)

    def _try(self, leaf: QueueFigures, victim: Allocation, left: Amounts) -> bool:
        """Select *victim* if it helps and nothing stands against it."""
        pairs = victim.shape.pairs
        highest = self._highest.get(leaf)
        if highest is None:
            highest = self._highest[leaf] = self._demand.highest(leaf)
        priority = victim.spec.priority
        if not any(left.get(t, 0) > 0 and t in highest and priority <= highest[t] for t, _ in pairs):
            return False
        if not self.selection.fits(pairs) or not self._rooms.admits(leaf, pairs):
            return False
        self._commit(victim)
        return True

    def _commit(self, victim: Allocation) -> None:
        leaf = self._picture.of[victim.queue]
        self._book(leaf, victim.shape.pairs, 1)
        selected = self._selected_from.setdefault(leaf, {})
        for t, amount in victim.shape.pairs:
            selected[t] = selected.get(t, 0) + amount
        self.selection.add(victim, self._wait_ns)

    def _book(self, leaf: QueueFigures, pairs: Pairs, times: int) -> None:
        amounts = tuple((t, amount * times) for t, amount in pairs)
        self._rooms.take(leaf, amounts)
        self.selection.count(amounts)
        left = self._left.get(leaf)
        if left is not None:
            for t, amount in amounts:
                if t in left:
                    left[t] -= amount

    def _drop_reservations(self, application: Application, left: Amounts) -> None:
        """Nodes kept free for a leaf that holds too much are given back (E.5)."""
        if self._reserved is None:
            self._reserved = {}
            for reservation in self._reservations():
                self._reserved.setdefault(reservation.ask.application, []).append(reservation)
        for reservation in self._reserved.pop(application, ()):
            if any(left.get(t, 0) > 0 for t, _ in reservation.ask.shape.pairs):
                self.selection.reservations.append(reservation)


def _positive(amounts: Amounts) -> bool:
    return any(amount > 0 for amount in amounts.values())


def _in_order(pieces: list[list[_Ranked]]) -> Iterator[_Ranked]:
    return iter(pieces[0]) if len(pieces) == 1 else merge(*pieces)


def _relative_priorities(ours: Queue, theirs: Queue) -> tuple[int, int]:
    """Exposed priorities of the two children of the lowest common ancestor that lead to *ours* and to *theirs*."""
    their_path = theirs.lineage()
    below = ours
    for queue in ours.lineage():
        if queue in their_path:
            at = their_path.index(queue)
            return (below.priority, their_path[at - 1].priority if at else below.priority)
        below = queue
    raise AssertionError("all queues meet at the root")
