"""Who goes: from each leaf that holds too much, as much as this turn asks for, within the laws and the round's limit.

The selectors run one after the other, and what one selects counts for the next: for reserved asks of more important
queues (optional), for reserved asks at all (optional), leaf by leaf, originators last. Rules: preemption.md E.5, E.8.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Iterator
from heapq import merge
from math import floor
from typing import Final

from core.model.allocations import Allocation
from core.model.applications import Application
from core.model.queues import Queue
from core.policies.preemption.index import CLASSES, reluctance
from core.policies.preemption.monitor.figures import (
    Amounts,
    MonitorView,
    QueueFigures,
    picture,
)
from core.policies.preemption.monitor.nodes import serve_important, serve_reserved
from core.policies.preemption.monitor.plan import Selection
from core.policies.preemption.monitor.round import Round
from core.policies.preemption.monitor.settings import BALANCE_WAIT_NS, MonitorSettings

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
    spared: Container[Queue] = (),
) -> Generator[int, None, Selection]:
    """Everybody who should go as things stand; yields after every piece of work.

    *offered*: keys that their applications named in exchange for others. *spared*: leaves left alone, because
    something else takes from them just now.
    """
    figures = yield from picture(view)
    run = Round(view, settings, figures, now_ns, offered, spared)
    if settings.reserved_first:
        targets = yield from run.targets(natural=False, reserved_as_used=True)
        run.begin(targets, settings.max_wait_ns)
        if settings.queue_priority:
            yield from serve_important(run, now_ns)
        yield from serve_reserved(run)
        targets = yield from run.targets(without_reserved=True)
        run.begin(targets, settings.max_wait_ns)
    else:
        targets = yield from run.targets()
        run.begin(targets, settings.max_wait_ns)
        if settings.queue_priority:
            yield from serve_important(run, now_ns)
    yield from _serve_leaves(run)
    if settings.balance:
        targets = yield from run.targets(balance=True, without_reserved=settings.reserved_first)
        run.begin(targets, max(BALANCE_WAIT_NS, settings.max_wait_ns))
        yield from _serve_leaves(run)
    return run.selection


def _serve_leaves(run: Round) -> Generator[int, None, None]:
    """Leaf by leaf, its newest applications first; the reluctant are set aside, originators longest (3 and 4)."""
    for leaf in run.picture.leaves():
        left = run.left.get(leaf)
        if left is None:
            continue
        aside: dict[int, list[Allocation]] = {kind: [] for kind in CLASSES[1:]}
        applications = sorted(leaf.queue.applications.values(), key=lambda app: (-app.submitted_ns, app.application_id))
        for application in applications:
            if not run.wanting(left):
                break
            run.drop_reservations(application, left)
            yield from _from_application(run, leaf, application, left, aside)
        opted_out, originators, both = aside[2], aside[1], aside[3]
        yield from _from_reluctant(run, leaf, opted_out, left)
        yield from _from_originators(run, leaf, originators + both, left)


def _from_application(
    run: Round, leaf: QueueFigures, application: Application, left: Amounts, aside: dict[int, list[Allocation]]
) -> Generator[int, None, None]:
    pieces: list[list[_Ranked]] = []
    everything = list(application.allocations.values())
    for start in range(0, len(everything), LOOKS_A_PIECE):
        piece = everything[start : start + LOOKS_A_PIECE]
        ranked = [(a.key not in run.offered, a.spec.priority, -a.created_ns, a.key, a) for a in piece if run.may_go(a)]
        ranked.sort()
        pieces.append(ranked)
        yield len(piece)
    looks = 0
    for entry in _in_order(pieces):
        looks += 1
        if looks >= TRIES_A_PIECE:
            yield looks * LOOKS_PER_TRY
            looks = 0
        if not run.wanting(left):
            break
        victim = entry[4]
        kind = reluctance(victim)
        if kind:
            aside[kind].append(victim)
        else:
            run.attempt(leaf, victim, left)
    yield looks * LOOKS_PER_TRY
    while len(pieces) > 1:  # To free a hundred thousand entries at once takes long, too.
        yield len(pieces.pop()) // LOOKS_PER_TRY


def _from_reluctant(
    run: Round, leaf: QueueFigures, waiting: list[Allocation], left: Amounts
) -> Generator[int, None, None]:
    for start in range(0, len(waiting), TRIES_A_PIECE):
        for victim in waiting[start : start + TRIES_A_PIECE]:
            if not run.wanting(left):
                return
            run.attempt(leaf, victim, left)
        yield TRIES_A_PIECE * LOOKS_PER_TRY


def _from_originators(
    run: Round, leaf: QueueFigures, waiting: list[Allocation], left: Amounts
) -> Generator[int, None, None]:
    """As long as more than the reserve for originators would be left of them."""
    spare: Amounts = {}
    for victim in waiting:
        for t, amount in victim.shape.pairs:
            spare[t] = spare.get(t, 0) + amount
    yield len(waiting)
    for t in spare:
        spare[t] -= floor(run.settings.originator_reserve * leaf.guaranteed.get(t, 0))
    for tries, victim in enumerate(waiting, 1):
        if not run.wanting(left):
            break
        if all(spare[t] > 0 for t, _ in victim.shape.pairs) and run.attempt(leaf, victim, left):
            for t, amount in victim.shape.pairs:
                spare[t] -= amount
        if tries % TRIES_A_PIECE == 0:
            yield TRIES_A_PIECE * LOOKS_PER_TRY


def _in_order(pieces: list[list[_Ranked]]) -> Iterator[_Ranked]:
    return iter(pieces[0]) if len(pieces) == 1 else merge(*pieces)
