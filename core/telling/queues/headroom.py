"""Explains the headroom of a queue or a user, level by level, and which level sets it (config.md 7.3, 10.3)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.model.queues import Queue
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.queues.above_max import AboveMax, above_max_of
from kornel.core.telling.queues.queue_views import WastedWork, show_properties, wasted_of


class QueueLevel(NamedTuple):
    """One queue on the way from a queue to the root. ``headroom``: its own max minus what is used, for the types in
    max."""

    path: str
    guaranteed: Resources
    max: Resources
    used: Resources
    pending: Resources
    preempting: Resources
    headroom: Resources


class Bound(NamedTuple):
    """The level that leaves least of one type: ``left`` of its ``max``, negative if it is exceeded."""

    type: str
    path: str
    left: int
    max: int


class QueueExplanation(NamedTuple):
    """The headroom of a queue, and why it is no more (config.md 7.3).

    levels      the queue first, the root last
    headroom    the least over all levels; an absent type is not bounded, except that the root offers none of it
    bounds      the bound that sets it, for each type in ``headroom``
    tightest    the bound with the smallest part of its max left; ``None``: nothing bounds
    above       the levels that hold more than their max, the lowest first
    properties  those in force, inherited ones included
    wasted      the work lost in the queue and below, by kind of preemption
    """

    path: str
    leaf: bool
    draining: bool
    levels: tuple[QueueLevel, ...]
    headroom: Resources
    bounds: tuple[Bound, ...]
    tightest: Bound | None
    above: tuple[AboveMax, ...]
    properties: Mapping[str, str]
    wasted: tuple[WastedWork, ...]


def explain_queue(state: PartitionState, queue: Queue) -> QueueExplanation:
    """Explains the headroom of *queue* by everything above it. Of two levels that leave the same, the lower one is the
    bound."""
    resources = state.types.to_resources
    levels: list[QueueLevel] = []
    bounds: dict[int, Bound] = {}
    for level in queue.lineage():
        left = {t: most - level.used[t] for t, most in level.max.items()}
        levels.append(
            QueueLevel(
                level.path,
                resources(level.guaranteed),
                resources(level.max),
                resources(level.used),
                resources(level.pending),
                resources(level.preempting),
                resources(left),
            )
        )
        for t, amount in left.items():
            if t not in bounds or amount < bounds[t].left:
                bounds[t] = Bound(state.types.names[t], level.path, amount, level.max[t])
    return QueueExplanation(
        queue.path,
        queue.leaf,
        queue.draining,
        tuple(levels),
        resources({t: bound.left for t, bound in bounds.items()}),
        tuple(sorted(bounds.values())),
        min(bounds.values(), key=part_left, default=None),
        tuple(above for level in queue.lineage() if (above := above_max_of(state, level)) is not None),
        show_properties(state, queue),
        wasted_of(state, queue),
    )


def part_left(bound: Bound) -> tuple[Fraction, str]:
    """Returns the sort key of *bound*: the part of its max that is left, and its type. A max of 0 leaves nothing. The
    part is exact, so that equal parts compare equal on every machine."""
    return (Fraction(bound.left, bound.max) if bound.max > 0 else Fraction(min(bound.left, 0)), bound.type)
