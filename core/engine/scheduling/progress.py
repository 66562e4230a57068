"""Checks the law of progress: a slice that ends with more to do has brought an end nearer (scheduling.md 4.1).

As long as nothing is decided and the books stay the same, each such slice either lowers the work left to the kinds of
preemption, or takes one of a bounded number of turns. This pair, first the turns that are left and then the work, falls
with every slice, and it rises only if something changes. Where it can fall no further, the engine stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kornel.core.preemption import slices

if TYPE_CHECKING:
    from kornel.core.state.partition_state import PartitionState

TURNS: Final = 64
"""The turns that are always there: for beginnings and ends of work, and for timers that come due meanwhile."""
TURNS_PER_ASK: Final = 2
"""The turns for each ask that waits: its question is answered in one, and it is set aside in the other."""
VISITS: Final = 40
"""The number of decisions for each node, queue and request: what work may take that cannot say how much of it is
left."""


def check_progress(state: PartitionState, now_ns: int, budget: int, *, more: bool, decided: bool) -> str:
    """Returns what stands still after a slice of *budget* decisions, in words; empty: the law of progress holds, or its
    violation has been counted already.

    *more* tells whether the slice ended with more to do, *decided* whether it had an effect.
    """
    if decided or budget <= 0 or not (more or _is_due(state, now_ns)):
        if state.progress:
            state.progress = ()
        return ""
    marks = state.marks
    work_left = slices.work_left(state)
    turns, before, *known = state.progress or (0, 0)
    fell = work_left < before
    turns = 0 if tuple(known) != marks else turns if fell else turns + 1
    state.progress = (turns, work_left, *marks)
    if fell or turns != _most_turns(state, budget) + 1:
        return ""
    state.law_checks += 1
    state.law_violations += 1
    asks = len(state.requests) - state.allocation_count
    attempts = len(state.attempts_due)
    waiting = f"{asks} asks wait, {attempts} attempts are scheduled, {work_left} steps of searches are left"
    return f"{turns} slices in a row decided nothing: {waiting}"


def _is_due(state: PartitionState, now_ns: int) -> bool:
    """Tells whether the next slice has to follow at once, because a timer that is due already is still there."""
    for heap in (state.timers, state.attempts_due):
        if heap and heap[0][0] <= now_ns:
            return True
    return state.reserving.due_ns is not None and state.reserving.due_ns <= now_ns and not state.callbacks.full


def _most_turns(state: PartitionState, budget: int) -> int:
    requests = len(state.requests)
    visited = requests + len(state.nodes) + len(state.queues)
    return TURNS + TURNS_PER_ASK * (requests - state.allocation_count) + VISITS * visited // budget
