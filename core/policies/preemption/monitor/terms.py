"""What the laws leave of the periodic policy: how much may leave each queue, and which tasks its demand outranks.

Law 2 is kept as rooms, one number per queue and guaranteed type; where demand that is served comes in below a queue,
it makes up for what leaves. Laws 6 and 7 come down to one number per leaf and type: the highest priority that the
demand from elsewhere may take there. Worked out from the figures of the round. Rules: preemption.md A, B.3, E.8.
"""

from __future__ import annotations

from typing import Final

from core.domain.priorities import PRIORITY_MAX
from core.domain.settings import PreemptionPolicyKind
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.model.shapes import Pairs
from core.policies.preemption.monitor.figures import Amounts, Picture, QueueFigures
from core.policies.preemption.priorities import adjustment

EVERY: Final = PRIORITY_MAX
"""Every priority may be taken."""

Deficits = dict[QueueFigures, Amounts]
"""By leaf that should hold more than it does: how much more, by type."""


class Rooms:
    """How much may still leave each queue before it is below its guarantee (law 2)."""

    def __init__(self, deficits: Deficits) -> None:
        self._coming: dict[QueueFigures, Amounts] = {}
        for leaf, amounts in deficits.items():
            for figures in leaf.lineage()[1:]:
                coming = self._coming.setdefault(figures, {})
                for t, amount in amounts.items():
                    coming[t] = coming.get(t, 0) + amount
        self._left: dict[tuple[QueueFigures, int], int] = {}

    def admits(self, leaf: QueueFigures, pairs: Pairs) -> bool:
        """Whether *pairs* may leave *leaf*."""
        return all(
            self._room(figures, t) >= amount
            for figures in leaf.lineage()
            for t, amount in pairs
            if t in figures.guaranteed
        )

    def take(self, leaf: QueueFigures, pairs: Pairs) -> None:
        """*pairs* leave *leaf*; negative amounts come back."""
        for figures in leaf.lineage():
            for t, amount in pairs:
                if t in figures.guaranteed:
                    self._left[figures, t] = self._room(figures, t) - amount

    def _room(self, figures: QueueFigures, t: int) -> int:
        left = self._left.get((figures, t))
        if left is None:
            guaranteed, net = figures.guaranteed[t], figures.used[t]
            coming = self._coming.get(figures, {}).get(t, 0)
            left = net + coming - min(guaranteed, net) if coming else net - guaranteed
            self._left[figures, t] = left
        return left


class Demand:
    """Which priorities of a leaf the demand from elsewhere may take (laws 6 and 7)."""

    def __init__(self, picture: Picture, deficits: Deficits) -> None:
        self._best: dict[QueueFigures, dict[int, tuple[tuple[int, QueueFigures | None], int | None]]] = {}
        """By parent and type: the highest shown with the child that shows it, and the next highest."""
        for figures in reversed(picture.queues):
            if not figures.leaf:
                highest = {t: first[0] for t, (first, _) in self._best.get(figures, {}).items()}
            elif figures in deficits:
                highest = {t: figures.priorities[t] for t in deficits[figures] if t in figures.priorities}
            else:
                continue
            parent = figures.parent
            if parent is None or figures.fenced or not highest:
                continue
            step = adjustment(figures.queue, parent.queue)
            best = self._best.setdefault(parent, {})
            for t, priority in highest.items():
                shown = step.of(priority)
                known = best.get(t)
                if known is None:
                    best[t] = ((shown, figures), None)
                elif shown > known[0][0]:
                    best[t] = ((shown, figures), known[0][0])
                else:
                    best[t] = (known[0], shown if known[1] is None else max(shown, known[1]))

    def highest(self, leaf: QueueFigures) -> Amounts:
        """By type, the highest priority of a task of *leaf* that may be taken; an absent type: none may."""
        found: Amounts = {}
        child = leaf
        while child.parent is not None:
            parent = child.parent
            ours = adjustment(leaf.queue, parent.queue)
            for t, (first, second) in self._best.get(parent, {}).items():
                shown = first[0] if first[1] is not child else second
                if shown is None:
                    continue
                if ours.fixed is None:
                    limit = shown - ours.offset
                elif ours.of(0) <= shown:
                    limit = EVERY
                else:
                    continue
                found[t] = max(limit, found.get(t, limit))
            child = parent
        return found


def may_take(ask: Allocation, victim: Allocation) -> bool:
    """Whether *ask* itself outranks *victim* and no fence stands between them (laws 6 and 7)."""
    path = victim.queue.lineage()
    common: Queue | None = None
    for queue in ask.queue.lineage():
        if queue in path:
            common = queue
            break
        if queue.properties.preemption_policy is PreemptionPolicyKind.FENCE:
            return False
    assert common is not None, "all queues meet at the root"
    if common is ask.queue:
        return False
    theirs = adjustment(victim.queue, common).of(victim.priority)
    return theirs <= adjustment(ask.queue, common).of(ask.priority)
