"""Tries which tasks would have to leave for lowered maxima, by the engine's own enforcement on a copy of a partition.

On the copy, timers become due as in the engine, several queues in one tick together (preemption.md D.5), and victims
are marked. So a later queue finds what an earlier one has already taken, and nothing here has rules of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption.quota import above_max, drive, timers
from kornel.core.preemption.quota.run import run_of
from kornel.core.preemption.quota.shares import find_excess
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.enforcement import Remainder
from kornel.core.state.waiting.gathering import bind_members
from kornel.core.telling.configuration.impact import QuotaEnforcement
from kornel.core.telling.queues.above_max import above_max_of
from kornel.core.telling.what_if.supposition import Leaver

MOST_TICKS: Final = 1_000
"""The most ticks of a trial: the governor may spread the victims of one queue over many intervals."""
_SAID_BY_OTHERS: Final = (Outcome.FULL, Outcome.BEST_EFFORT, Outcome.PARTIAL, Outcome.NONE, Outcome.NOTHING_TO_DO)
"""The outcomes for which the record of the queue tells what protects the rest."""

Remainders = Mapping[str, tuple[Mapping[int, int], int]]
"""By path, the amounts that the last run of a queue left above its max, and the time from which they are tried
again."""


def remainders_of(state: PartitionState) -> Remainders:
    """Returns what the last run of each queue of *state* left above its max."""
    above = state.enforcement.above.items()
    return {queue.path: (found.rest.unmet, found.rest.look_ns) for queue, found in above if found.rest is not None}


def restore_remainders(state: PartitionState, rests: Remainders, now_ns: int) -> None:
    """Notes in the copy *state* which queues are above their max, and what was left of *rests*."""
    above_max.note_changes(state, state.queues.values(), now_ns)
    for path, (unmet, look_ns) in rests.items():
        queue = state.queues.get(path)
        # It may have come within its max since the last tick.
        if queue is not None and queue in state.enforcement.above:
            numbers = above_max.numbers_of(queue)
            state.enforcement.above[queue].rest = Remainder(numbers, above_max.FIRST_PAUSE_NS, look_ns, unmet, ())


def queues_to_try(state: PartitionState) -> list[Queue]:
    """Returns the queues that are to be enforced: those whose timer runs, and those with a remainder that can now be
    tried again."""
    enforcement = state.enforcement
    again = [
        queue
        for queue, overuse in enforcement.above.items()
        if overuse.rest is not None and above_max.numbers_of(queue) != overuse.rest.numbers
    ]
    return list(dict.fromkeys([*enforcement.armed, *again]))


def try_enforcement(state: PartitionState, now_ns: int) -> list[tuple[Queue, QuotaEnforcement]]:
    """Enforces all lowered maxima of the copy *state*, beginning at *now_ns*, and returns what becomes of each queue,
    in the order of their turns, as if its turn came at once. No victim has left meanwhile."""
    tasks: dict[str, Allocation] = {}
    for queue in state.queues.values():
        for application in queue.applications.values():
            bind_members(state, application)
            # Several tasks with one key are of one application.
            tasks.update((task.spec.key, task) for task in application.allocations.values())
    del state.effects[:]
    targets: dict[Queue, Mapping[int, int]] = {}
    for at_ns in _next_ticks(state, now_ns):
        timers.line_up_due(state, at_ns)
        while state.enforcement.busy:
            drive.advance_enforcement(state, at_ns, 1)
            run = run_of(state)
            if run is not None and run.plan is not None:
                targets.setdefault(run.queue, run.target)
    decided: dict[str, list[PreemptionDecided]] = {}
    for effect in state.effects:
        if isinstance(effect, PreemptionDecided):
            decided.setdefault(effect.queue, []).append(effect)
    in_order = {path: at for at, path in enumerate(decided)}
    turns = sorted(targets, key=lambda queue: in_order.get(queue.path, len(in_order)))
    return [(queue, _sum_up(state, queue, targets[queue], decided.get(queue.path, []), tasks)) for queue in turns]


def _next_ticks(state: PartitionState, now_ns: int) -> Iterator[int]:
    """Yields the ticks at which some queue is due, or a remainder may be tried again, until there are no more."""
    enforcement = state.enforcement
    tick = 0
    for _ in range(MOST_TICKS):
        looks = [found.rest.look_ns for found in enforcement.above.values() if found.rest is not None]
        ticks = [max(1, -((now_ns - at_ns) // timers.TICK_NS)) for at_ns in (*enforcement.armed.values(), *looks)]
        later = [at for at in ticks if at > tick]
        if not later:
            return
        tick = min(later)
        yield now_ns + tick * timers.TICK_NS


def _sum_up(
    state: PartitionState,
    queue: Queue,
    target: Mapping[int, int],
    decided: list[PreemptionDecided],
    tasks: Mapping[str, Allocation],
) -> QuotaEnforcement:
    named = state.types.to_resources
    asked = [decision for decision in decided if decision.outcome is not Outcome.SHADOW]
    victims = tuple(
        Leaver(*victim, task.application.user, task.priority, task.spec.originator)
        for decision in asked
        for victim in decision.victims
        for task in (tasks[victim.key],)
    )
    freed: Counter[str] = Counter()
    for victim in victims:
        freed.update(victim.resources)
    unmet = find_excess(queue, queue.max, above_max.staying_amounts(state, queue))
    reasons: tuple[str, ...] = ()
    if unmet:
        said = above_max_of(state, queue)
        if said is not None:
            reasons = said.protected or (said.course,)
        if decided and decided[-1].outcome not in _SAID_BY_OTHERS:
            reasons = (f"{decided[-1].outcome}: {decided[-1].detail}",)
    amounts, left = named(dict(target)), named(unmet)
    return QuotaEnforcement(state.name, queue.path, amounts, 0, victims, Resources(freed), left, reasons)
