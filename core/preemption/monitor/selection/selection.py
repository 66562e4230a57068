"""Selects the victims of a round: from each leaf that holds too much, what it has to give up now, and only if an ask
gets a place for it.

The selectors run one after the other, and what one selects counts for the next. They select for reserved asks of more
important queues (optional), for all reserved asks (optional), for all other leaves that are short of their share, then
for leaves whose shortage the totals hide, then for balance (optional). Rules: preemption.md E.5, E.8.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator
from heapq import merge
from itertools import chain
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption.monitor.plan import Judge, Selection
from kornel.core.preemption.monitor.selection.candidates import Candidate
from kornel.core.preemption.monitor.selection.figures import Amounts, MonitorView, QueueFigures, draw_picture
from kornel.core.preemption.monitor.selection.gang_places import GangPlanner
from kornel.core.preemption.monitor.selection.node_selectors import serve_important, serve_reserved
from kornel.core.preemption.monitor.selection.places import Planner
from kornel.core.preemption.monitor.selection.round import Memory, Round, Targets, is_positive
from kornel.core.preemption.monitor.selection.settings import BALANCE_WAIT_NS, MonitorSettings
from kornel.core.preemption.monitor.selection.unit_turns import plan_units
from kornel.core.preemption.run_times import ends_of
from kornel.core.state.records.victim_index import CLASSES, reluctance_of

LOOKS_A_PIECE: Final = 1_000
TRIES_A_PIECE: Final = 200
LOOKS_PER_TRY: Final = 5
"""The number of allocations that can be looked at in the time of one attempt to select one."""
ENOUGH: Final = 2
"""The tasks examined first amount to this many times what a leaf has to give up. That is usually enough, and sorting
the rest costs more.
"""

_OFFERED: Final = 0
_PLAIN: Final = 1
_ROW: Final = {0: _PLAIN, 1: 4, 2: 7, 3: 10}
"""The first row of each class of victims: ordinary tasks, opted-out ones, originators, originators that opted out. In
each class, tasks whose applications have prepared for it come first, then others at risk, then those without a
notice."""
_ROWS: Final = 3
"""The number of rows of a class."""
_LAST_PLAIN: Final = _PLAIN + _ROWS - 1

_Ranked = tuple[int, int, int, str, Allocation]
"""A task as (row, priority, -saved, key, allocation); the smallest is taken first."""
_Rows = dict[int, list[Candidate]]


def select_victims(
    view: MonitorView,
    settings: MonitorSettings,
    now_ns: int,
    *,
    memory: Memory | None = None,
    spared: Container[Queue] = (),
    judge: Judge | None = None,
) -> Generator[int, None, Selection]:
    """Selects the victims of a round; yields the cost of every piece of work.

    *spared*: leaves from which nothing is taken, because their max is being enforced now. *judge* looks at places when
    they are chosen.
    """
    figures = yield from draw_picture(view)
    run = Round(view, settings, figures, memory or Memory(), spared, judge)
    planner = Planner(run)
    gangs = GangPlanner(run, planner)
    classes = yield from gangs.list_classes()
    run.begin_selection(Targets(), settings.max_wait_ns)
    yield from plan_units(run, planner)
    if settings.reserved_first:
        targets = yield from run.find_targets(natural=False, reserved_as_used=True)
        run.begin_selection(targets, settings.max_wait_ns)
        if settings.queue_priority:
            yield from serve_important(run, planner, now_ns)
        yield from serve_reserved(run, planner)
        targets = yield from run.find_targets(without_reserved=True)
        run.begin_selection(targets, settings.max_wait_ns)
    else:
        targets = yield from run.find_targets()
        run.begin_selection(targets, settings.max_wait_ns)
        if settings.queue_priority:
            yield from serve_important(run, planner, now_ns)
    run.occurring.update(classes)
    for level in CLASSES[classes[0] :] if classes else CLASSES[-1:]:
        if classes and level not in run.occurring:
            continue
        yield from _serve_targets(run, planner, targets, level)
        # Whole gangs of a class come behind the single tasks of this class, and before all less mild ones.
        gangs.level = level
        for gangs.several in (False, True) if classes else ():
            yield from _serve_targets(run, planner, targets, level, gangs)
    if run.passage.yields_late:
        run.late = True
        for gangs.several in (False, True) if classes else (False,):
            yield from _serve_targets(run, planner, targets, CLASSES[-1], gangs if classes else None)
        run.late = False
    if settings.balance:
        targets = yield from run.find_targets(balance=True, without_reserved=settings.reserved_first)
        run.most, run.declared, run.balancing = None, False, True
        run.begin_selection(targets, max(BALANCE_WAIT_NS, settings.max_wait_ns))
        yield from _serve(run, planner)
    yield from planner.spare_needless()
    return run.selection


def _serve_targets(
    run: Round, planner: Planner, shares: Targets, level: int, gangs: GangPlanner | None = None
) -> Generator[int, None, None]:
    """Finds places for asks with what leaves have to give up because of their *shares*, then with what is owed besides
    (preemption.md E.3 no. 4), with tasks of the classes up to *level*."""
    yield len(run.picture.leaves_by_path())
    run.most, run.declared = None, False
    run.begin_selection(shares, run.settings.max_wait_ns)
    yield from _serve(run, planner, level, gangs)
    for declared in (False, True):
        targets = yield from run.find_owed(declared=declared)
        run.begin_selection(targets, run.settings.max_wait_ns)
        yield from _serve(run, planner, level, gangs)


def _serve(
    run: Round, planner: Planner, level: int = CLASSES[-1], gangs: GangPlanner | None = None
) -> Generator[int, None, None]:
    """Finds places for asks with what leaves have to give up: first the places planned before, then with the newest
    tasks, then with all tasks of the classes up to *level*, and at last with whole *gangs*, if there are any."""
    if not run.left or not run.short:
        return
    yield from planner.replan_last()
    for everybody in (False, True):
        if not run.left or not any(is_positive(short) for short in run.short.values()):
            return
        rows: _Rows = {}
        for leaf in run.picture.leaves_by_path():
            left = run.left.get(leaf)
            if left is not None:
                last = _ROW[level] + _ROWS - 1 if everybody else _LAST_PLAIN
                yield from _collect_tasks(run, planner, leaf, dict(left), rows, last, everybody=everybody)
        ranked = list(chain.from_iterable(rows[row] for row in sorted(rows)))
        if run.late:
            now_ns = run.view.now_ns
            ranked.sort(key=lambda candidate: max(now_ns, *ends_of(candidate.allocation)))
        yield from planner.fill_places(ranked)
        if everybody and gangs is not None:
            yield from gangs.fill_places(ranked)


def _collect_tasks(
    run: Round, planner: Planner, leaf: QueueFigures, left: Amounts, rows: _Rows, last: int, *, everybody: bool
) -> Generator[int, None, None]:
    """Adds the tasks of *leaf* up to the row *last* to *rows*, its newest applications first: as many as are enough, or
    with *everybody* all of them."""
    enough = {t: amount * ENOUGH for t, amount in left.items() if amount > 0}
    originators: list[Allocation] = []
    applications = sorted(leaf.queue.applications.values(), key=lambda app: (-app.submitted_ns, app.application_id))
    for application in applications:
        if not everybody and not is_positive(enough):
            return
        for reservation in run.drop_reservations(application, left):
            planner.give_back(reservation)
        pieces: list[list[_Ranked]] = []
        everything = list(application.allocations.values())
        for start in range(0, len(everything), LOOKS_A_PIECE):
            piece = everything[start : start + LOOKS_A_PIECE]
            ranked = [_rank_task(run, allocation) for allocation in piece if run.may_go(allocation)]
            ranked.sort()
            pieces.append(ranked)
            yield len(piece)
        looks = 0
        for row, _, _, _, allocation in _in_order(pieces):
            looks += 1
            if looks >= TRIES_A_PIECE:
                yield looks * 2
                looks = 0
            if row > last or not (everybody or is_positive(enough)):
                run.occurring.add((row - _PLAIN) // _ROWS)
                break
            candidate = planner.candidate_for(allocation)
            if candidate is None or candidate.taken:
                continue
            rows.setdefault(row, []).append(candidate)
            if allocation.spec.originator:
                originators.append(allocation)
            for t, amount in candidate.pairs:
                if t in enough:
                    enough[t] -= amount
        yield looks
        while len(pieces) > 1:  # Freeing a hundred thousand entries at once would take long, too.
            yield len(pieces.pop()) // LOOKS_PER_TRY
    if everybody:
        planner.spare_originators(leaf, originators)


def _rank_task(run: Round, allocation: Allocation) -> _Ranked:
    """Returns *allocation* with its sort key. Among equal ones, the task whose work was saved last is taken first,
    because least work is lost then."""
    key = allocation.key
    memory = run.memory
    saved_ns = allocation.created_ns
    if memory.checkpoints:
        saved_ns = max(saved_ns, memory.checkpoints.get(key, saved_ns))
    if key in memory.offered:
        row = _OFFERED
    else:
        row = _ROW[reluctance_of(allocation)] + (key not in memory.notified) + (key not in memory.accepted)
    return (row, allocation.spec.priority, -saved_ns, key, allocation)


def _in_order(pieces: list[list[_Ranked]]) -> Iterator[_Ranked]:
    return iter(pieces[0]) if len(pieces) == 1 else merge(*pieces)
