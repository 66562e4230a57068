"""Computes the ideal share of every queue in one resource type, and how much a leaf above its share gives up in this
round.

Free room is used first, unused guarantees are lent out in proportion to guarantees, and queues without a guarantee come
last. All numbers are integers or exact fractions, which are rounded once in each step. Rules: preemption.md E.3, E.4.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import ceil, floor
from typing import Final

OFFERS_A_PIECE: Final = 100
LOOKS_PER_OFFER: Final = 5
"""The number of allocations that can be looked at in the time of one offer."""

_Turn = tuple[bool, int, Fraction]
"""The sort key of offers: queues below their guarantee first, then by priority, then the one least served in relation
to its guarantee."""


class Share:
    """The share of one queue in one resource type. *ceiling* ``None``: unlimited. ``ideal`` and ``take`` are computed
    later."""

    __slots__ = (
        "ceiling", "children", "disabled", "fenced", "guaranteed", "ideal", "name", "pending", "preemptable",
        "priority", "take", "untouchable", "used",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        guaranteed: int = 0,
        ceiling: int | None = None,
        used: int = 0,
        pending: int = 0,
        priority: int = 0,
        disabled: bool = False,
        fenced: bool = False,
    ) -> None:
        self.name: Final = name
        self.guaranteed: Final = guaranteed
        self.ceiling: Final = ceiling
        self.used: Final = used
        self.pending: Final = pending
        self.priority: Final = priority
        self.disabled: Final = disabled
        self.fenced: Final = fenced
        self.children: Final[list[Share]] = []
        """The shares of its children, by name."""
        self.untouchable = 0
        """The amount that it holds above its guarantee and keeps, because it is protected."""
        self.preemptable = 0
        self.ideal = 0
        self.take = 0
        """The amount that it has to give up in all, within the limit of this round."""


def assign_shares(
    root: Share, cluster: int, per_round: Fraction, *, balance: bool = False
) -> Generator[int, None, None]:
    """Computes ``ideal`` and ``take`` of all queues below *root*. With *balance*, queues that have reached their
    guarantees get more as well."""
    _find_extras(root)
    yield 1
    root.ideal = cluster
    allowed = per_round * cluster
    parents = [root]
    for parent in parents:
        yield from _share_out(parent, balance=balance)
        need = sum(max(0, child.used - child.ideal) for child in parent.children)
        scale = min(Fraction(1), allowed / need) if need else Fraction(0)
        for child in parent.children:
            wanted = _wanted_by(parent, child)
            excess = child.used - max(min(child.used + wanted, child.guaranteed), child.ideal)
            child.take = max(0, floor(excess * scale))
            if child.children:
                parents.append(child)


def amount_to_give_up(leaf: Share, dead_zone: Fraction, natural_factor: Fraction) -> int:
    """Returns the amount that *leaf* gives up within one notice period."""
    if leaf.disabled or leaf.used <= leaf.guaranteed * (1 + dead_zone):
        return 0
    return ceil(leaf.take * natural_factor)


def _find_extras(share: Share) -> None:
    extra = max(0, share.used - share.guaranteed)
    if share.children:
        for child in share.children:
            _find_extras(child)
        below = sum(child.preemptable for child in share.children)
        share.untouchable, share.preemptable = max(0, extra - below), min(below, extra)
    elif share.disabled:
        share.untouchable, share.preemptable = extra, 0
    else:
        share.untouchable, share.preemptable = 0, extra


def _wanted_by(parent: Share, child: Share) -> int:
    """Returns the demand of *child*. If it is fenced, it may only grow into free room (law 7)."""
    if not child.fenced or not child.pending:
        return child.pending
    return min(child.pending, max(0, parent.ideal - sum(sibling.used for sibling in parent.children)))


def _share_out(parent: Share, *, balance: bool) -> Generator[int, None, None]:
    """Splits the ideal share of *parent* among its children."""
    left = parent.ideal
    guaranteed = [child for child in parent.children if child.guaranteed > 0]
    others = [child for child in parent.children if child.guaranteed <= 0]
    for group in (guaranteed, others):
        if group is others and left <= 0:
            break
        for child in group:
            child.ideal = child.guaranteed + child.untouchable if child.used > child.guaranteed else child.used
            left -= child.ideal
        yield len(group) * 2
        left = yield from _offer_room(parent, group, left, balance=balance)


def _offer_room(parent: Share, group: Iterable[Share], left: int, *, balance: bool) -> Generator[int, None, int]:
    """Offers what is *left* to the queues in *group* that want more, until none accepts anything. Returns what
    remains."""
    wanted = {child: child.used + _wanted_by(parent, child) for child in group}
    active = [child for child, most in wanted.items() if child.ideal < most]
    weight = sum(child.guaranteed for child in active)
    count = len(active)
    queue = [(_turn_of(child), child.name, child) for child in active]
    heapify(queue)
    offers = 0
    while queue and left > 0:
        batch = [heappop(queue)]
        while queue and queue[0][0] == batch[0][0]:
            batch.append(heappop(queue))
        base, total, members = left, weight, count
        for _, name, child in batch:
            accepted = 0
            if left > 0:
                part = base * child.guaranteed if child.guaranteed > 0 else base
                offer = min(-(-part // (total if child.guaranteed > 0 else members)), left)
                accepted = min(offer, wanted[child] - child.ideal)
                if child.ceiling is not None:
                    accepted = min(accepted, child.ceiling - child.ideal)
                if not child.children and not balance:
                    accepted = min(accepted, max(child.used, child.guaranteed) - child.ideal)
                accepted = max(0, accepted)
            if accepted:
                child.ideal += accepted
                left -= accepted
                heappush(queue, (_turn_of(child), name, child))
            else:
                weight -= child.guaranteed
                count -= 1
        offers += len(batch)
        if offers >= OFFERS_A_PIECE:
            yield offers * LOOKS_PER_OFFER
            offers = 0
    yield offers * LOOKS_PER_OFFER
    return left


def _turn_of(child: Share) -> _Turn:
    if child.guaranteed <= 0:
        return (True, -child.priority, Fraction(0))
    fraction = Fraction(child.ideal, child.guaranteed)
    return (fraction >= 1, -child.priority, fraction)
