"""Room on nodes that are kept free: the two selectors that serve reserved asks (preemption.md E.5, 1 and 2)."""

from __future__ import annotations

from collections.abc import Generator

from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.model.queues import Queue
from core.policies.preemption.index import reluctance
from core.policies.preemption.monitor.figures import QueueFigures
from core.policies.preemption.monitor.round import Round, positive
from core.policies.preemption.monitor.terms import may_take


def serve_reserved(run: Round) -> Generator[int, None, None]:
    """Where a reserved ask lacks room, free all of it or nothing; the cheapest nodes first (2)."""
    feasible: list[tuple[float, str, Reservation, list[Allocation]]] = []
    for reservation in run.reservations():
        ask, node = reservation.ask, reservation.node
        yield 1 + len(node.allocations)
        found = _room_on(run, node, ask, within_targets=True)
        if found:
            lacking = sum(amount for _, amount in ask.shape.pairs)
            freed = sum(amount for victim in found for _, amount in victim.shape.pairs)
            feasible.append((freed / lacking, node.node_id, reservation, found))
    for _, _, reservation, _ in sorted(feasible, key=lambda entry: (*entry[:2], entry[2].ask.key)):
        yield 1 + len(reservation.node.allocations)
        for victim in _room_on(run, reservation.node, reservation.ask, within_targets=True):
            run.commit(victim)


def serve_important(run: Round, now_ns: int) -> Generator[int, None, None]:
    """Asks whose node is kept free in vain take from less important queues there, up to their guarantee (1)."""
    served: set[Node] = set()
    for reservation in run.reservations():
        ask, node = reservation.ask, reservation.node
        waited = now_ns - reservation.made_ns >= run.settings.queue_priority_wait_ns
        if not waited or node in served or not _owed(run, ask):
            continue
        yield 1 + len(node.allocations)
        found = _room_on(run, node, ask, within_targets=False)
        if found:
            served.add(node)
            taken = run.taken_for.setdefault(ask.queue, {})
            for t, amount in ask.shape.pairs:
                taken[t] = taken.get(t, 0) + amount
            for victim in found:
                run.commit(victim)


def _owed(run: Round, ask: Allocation) -> bool:
    """Whether the queue of *ask* is under a guarantee for something it asks for, selections for it included."""
    figures = run.picture.of.get(ask.queue)
    taken = run.taken_for.get(ask.queue, {})
    return figures is not None and any(
        t in figures.guaranteed and figures.used[t] + taken.get(t, 0) < figures.guaranteed[t]
        for t, _ in ask.shape.pairs
    )


def _room_on(run: Round, node: Node, ask: Allocation, *, within_targets: bool) -> list[Allocation]:
    """Victims that free what *ask* lacks on *node*; nobody if that is impossible, or if it lacks nothing.

    *within_targets*: only what their leaves are to give up anyway; else only queues less important than the ask's.
    """
    lacking = {t: amount - node.free[t] for t, amount in ask.shape.pairs if amount > node.free[t]}
    for victim in node.allocations.values():
        if victim.preempted or victim.key in run.selection.waits:
            for t, amount in victim.shape.pairs:
                if t in lacking:
                    lacking[t] -= amount
    if not positive(lacking):
        return []
    candidates = [a for a in node.allocations.values() if run.may_go(a) and may_take(ask, a)]
    candidates = [a for a in candidates if not a.spec.originator and a.queue not in run.spared]
    if within_targets:
        candidates.sort(key=lambda a: (reluctance(a), -a.created_ns, a.key))
    else:
        ranked = [(_relative_priorities(ask.queue, a.queue), a) for a in candidates]
        ranked = [((ours, theirs), a) for (ours, theirs), a in ranked if theirs < ours]
        ranked.sort(key=lambda pair: (reluctance(pair[1]), pair[0][1], -pair[1].created_ns, pair[1].key))
        candidates = [a for _, a in ranked]
    chosen: list[tuple[QueueFigures, Allocation]] = []
    for victim in candidates:
        leaf = run.picture.of.get(victim.queue)
        pairs = victim.shape.pairs
        if leaf is None or leaf.disabled or not any(lacking.get(t, 0) > 0 for t, _ in pairs):
            continue
        left = run.left.get(leaf, {})
        if within_targets and any(left.get(t, 0) < amount for t, amount in pairs):
            continue
        if not run.rooms.admits(leaf, pairs) or not run.selection.fits(pairs):
            continue
        run.book(leaf, pairs, 1)
        chosen.append((leaf, victim))
        for t, amount in pairs:
            if t in lacking:
                lacking[t] -= amount
        if not positive(lacking):
            break
    for leaf, victim in chosen:
        run.book(leaf, victim.shape.pairs, -1)
    return [] if positive(lacking) else [victim for _, victim in chosen]


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
