"""How much a queue may still take, level by level, and which level says so (config.md 7.3)."""

from __future__ import annotations

from fractions import Fraction

from core.domain.status import Bound, QueueExplanation, QueueLevel
from core.model.queues import Queue
from core.partition.state import PartitionState


def explain(state: PartitionState, queue: Queue) -> QueueExplanation:
    """*queue* and everything above it. Of two levels that leave the same, the one further down bounds."""
    resources = state.types.resources
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
        min(bounds.values(), key=_part_left, default=None),
    )


def _part_left(bound: Bound) -> tuple[Fraction, str]:
    """A max of 0 leaves nothing. Exact, so that equal parts compare equal on every machine."""
    return (Fraction(bound.left, bound.max) if bound.max > 0 else Fraction(min(bound.left, 0)), bound.type)
