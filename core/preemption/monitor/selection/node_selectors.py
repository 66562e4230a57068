"""The two selectors that make room on reserved nodes for their asks (preemption.md E.5, rows 1 and 2)."""

from __future__ import annotations

from collections.abc import Generator

from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.monitor.selection.candidates import Candidate, Whom
from kornel.core.preemption.monitor.selection.figures import QueueFigures, shown_by
from kornel.core.preemption.monitor.selection.places import Planner
from kornel.core.preemption.monitor.selection.round import Round
from kornel.core.state.records.victim_index import age_of, reluctance_of


def serve_reserved(run: Round, planner: Planner) -> Generator[int, None, None]:
    """Find victims on the nodes of reserved asks, the cheapest nodes first: enough for the whole ask, or none (row
    2)."""
    feasible: list[tuple[float, str, str, Reservation]] = []
    for reservation in run.reservations():
        yield 1 + len(reservation.node.allocations)
        found = _room_within_targets(run, planner, reservation)
        if found:
            lacking = sum(amount for _, amount in reservation.ask.shape.pairs)
            freed = sum(amount for candidate in found for _, amount in candidate.pairs)
            feasible.append((freed / lacking, reservation.node.node_id, reservation.ask.key, reservation))
    for _, _, _, reservation in sorted(feasible, key=lambda entry: entry[:3]):
        yield 1 + len(reservation.node.allocations)
        _commit(run, planner, reservation, _room_within_targets(run, planner, reservation))


def _room_within_targets(run: Round, planner: Planner, reservation: Reservation) -> list[Candidate]:
    """Returns victims that free what the ask of *reservation* lacks on its node, from what leaves have to give up; none
    if that is impossible, or if the ask is owed nothing."""
    owed = planner.still_wanted(reservation.ask) is not None
    return _room_on(run, planner, reservation, Whom.WITHIN) if owed else []


def serve_important(run: Round, planner: Planner, now_ns: int) -> Generator[int, None, None]:
    """Let asks that wait in vain on a reserved node preempt less important queues there, up to their guarantee (row
    1)."""
    served: set[Node] = set()
    for reservation in run.reservations():
        ask, node = reservation.ask, reservation.node
        waited = now_ns - reservation.made_ns >= run.settings.queue_priority_wait_ns
        if not waited or node in served or not _is_owed_more(run, ask):
            continue
        yield 1 + len(node.allocations)
        found = _room_on(run, planner, reservation, Whom.ANYBODY)
        if found:
            served.add(node)
            _commit(run, planner, reservation, found)


def _is_owed_more(run: Round, ask: Allocation) -> bool:
    """Tells whether the queue of *ask* is below a guarantee for a type of the ask, with selections for the queue
    counted."""
    figures = run.picture.of.get(ask.queue)
    if figures is None:
        return False
    planned = run.planned_for(figures)
    return any(
        t in figures.guaranteed and figures.used[t] + planned.get(t, 0) < figures.guaranteed[t]
        for t, _ in ask.shape.pairs
    )


def _room_on(run: Round, planner: Planner, reservation: Reservation, whom: Whom) -> list[Candidate]:
    """Returns victims that free what the ask of *reservation* lacks on its node; none if that is impossible."""
    ask, node = reservation.ask, reservation.node
    leaf = run.picture.of.get(ask.queue)
    if leaf is None:
        return []
    candidates: list[tuple[tuple[int, int], Candidate]] = []
    for allocation in node.allocations.values():
        candidate = planner.candidate_for(allocation) if run.may_go(allocation) else None
        if candidate is None:
            continue
        ours, theirs = 0, 0
        if whom is Whom.ANYBODY:
            ours, theirs = _relative_priorities(ask, allocation.queue)
            if theirs >= ours:
                continue
        candidates.append(((reluctance_of(allocation), theirs), candidate))
    candidates.sort(key=lambda pair: (*pair[0], age_of(pair[1].allocation), pair[1].allocation.key))
    return planner.choice.choose_victims(planner.want_of(ask, leaf), node, [one for _, one in candidates], whom) or []


def _commit(run: Round, planner: Planner, reservation: Reservation, found: list[Candidate]) -> None:
    leaf: QueueFigures | None = run.picture.of.get(reservation.ask.queue)
    if leaf is not None and found:
        planner.commit(planner.want_of(reservation.ask, leaf), reservation.node, found)


def _relative_priorities(ask: Allocation, theirs: Queue) -> tuple[int, int]:
    """Returns the exposed priorities of the two children of the lowest common ancestor that lead to *ask* and to
    *theirs*.

    The priority of *ask* is added for its own path, because an ask with a reservation lends its queue none in the
    cycle.
    """
    their_path = theirs.lineage()
    below, ours = ask.queue, ask.priority
    for queue in ask.queue.lineage():
        if queue in their_path:
            at = their_path.index(queue)
            return (ours, their_path[at - 1].priority if at else ours)
        below = queue
        ours = max(below.priority, shown_by(below, ours))
    raise AssertionError("all queues meet at the root")
