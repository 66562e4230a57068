"""How much a lowered max calls for, and what part of it each leaf below bears (preemption.md D.6, D.8).

What a queue holds above its guarantee is *releasable*. A parent's part is spread over its children in proportion to
that, type by type, down to the leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.model.queues import Queue

Amounts = dict[int, int]
"""By type index, each above 0."""


def net(queue: Queue, t: int) -> int:
    """Used of type *t* once the victims in flight are gone."""
    return queue.used[t] - queue.preempting[t]


def target(queue: Queue, ceilings: Mapping[int, int]) -> Amounts:
    """What has to go so that *queue* ends within *ceilings*, as far as no guarantee from it up to the root is hurt."""
    wanted: Amounts = {}
    for t, most in ceilings.items():
        amount = net(queue, t) - most
        for ancestor in queue.lineage():
            if t in ancestor.guaranteed:
                amount = min(amount, net(ancestor, t) - ancestor.guaranteed[t])
        if amount > 0:
            wanted[t] = amount
    return wanted


def leaf_shares(queue: Queue, wanted: Amounts) -> dict[Queue, Amounts]:
    """The part of *wanted* that each leaf at or below *queue* bears, leaves by path.

    Leaves that can release nothing of these types are left out; an empty part means that rounding left none.
    """
    if queue.leaf:
        return {queue: wanted}
    releasable: dict[Queue, Amounts] = {}
    _reckon(queue, tuple(wanted), releasable)
    found: dict[Queue, Amounts] = {}
    _spread(queue, wanted, releasable, found)
    return dict(sorted(found.items(), key=lambda entry: entry[0].path))


def _reckon(queue: Queue, types: tuple[int, ...], releasable: dict[Queue, Amounts]) -> Amounts:
    """Fill in what *queue* and everything below it can release. Each level bounds the one above."""
    own = {t: max(0, net(queue, t) - queue.guaranteed.get(t, 0)) for t in types}
    if not queue.leaf:
        below = dict.fromkeys(types, 0)
        for child in queue.children.values():
            for t, amount in _reckon(child, types, releasable).items():
                below[t] += amount
        own = {t: min(amount, below[t]) for t, amount in own.items()}
    found = releasable[queue] = {t: amount for t, amount in own.items() if amount}
    return found


def _spread(queue: Queue, part: Amounts, releasable: dict[Queue, Amounts], found: dict[Queue, Amounts]) -> None:
    children = [child for child in queue.children.values() if releasable[child]]
    parts: dict[Queue, Amounts] = {child: {} for child in children}
    for t, amount in part.items():
        holders = [(child, releasable[child][t]) for child in children if t in releasable[child]]
        for child, share in _proportional(amount, holders):
            if share:
                parts[child][t] = share
    for child, share_of_child in parts.items():
        if child.leaf:
            found[child] = share_of_child
        else:
            _spread(child, share_of_child, releasable, found)


def _proportional(amount: int, holders: list[tuple[Queue, int]]) -> list[tuple[Queue, int]]:
    """*amount* split like what each holds, in whole units: those missing go to the largest fractions, then by path."""
    total = sum(held for _, held in holders)
    amount = min(amount, total)
    split = [(child, *divmod(amount * held, total)) for child, held in holders]
    missing = amount - sum(whole for _, whole, _ in split)
    if not missing:
        return [(child, whole) for child, whole, _ in split]
    split.sort(key=lambda entry: (-entry[2], entry[0].path))
    return [(child, whole + (1 if at < missing else 0)) for at, (child, whole, _) in enumerate(split)]
