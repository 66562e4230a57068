"""The target of a lowered max, and the part of it that each leaf below bears (preemption.md D.6, D.8).

The target is everything that the queue holds above its max, protected or not, because the outcome is judged by it. The
part of the target that guarantees on the path do not protect is spread over the leaves. What a queue holds above its
guarantee is *releasable*. A parent's part is spread over its children in proportion to what they can release, type by
type, down to the leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.model.queues import Queue

Amounts = dict[int, int]
"""Amounts by type index, each above 0."""

NONE_STAYING: Final[Mapping[int, int]] = MappingProxyType({})
"""Says that every victim in flight is expected to leave."""


def net_usage(queue: Queue, t: int) -> int:
    """Returns what is used of type *t* once the victims in flight are gone."""
    return queue.used[t] - queue.preempting[t]


def find_excess(queue: Queue, ceilings: Mapping[int, int], staying: Mapping[int, int] = NONE_STAYING) -> Amounts:
    """Returns the amounts of *queue* above *ceilings* once its victims in flight have left, except the part that is
    *staying*."""
    over = {t: net_usage(queue, t) + staying.get(t, 0) - most for t, most in ceilings.items()}
    return {t: amount for t, amount in over.items() if amount > 0}


def find_attainable(queue: Queue, wanted: Amounts, *, guarded: bool = True) -> Amounts:
    """Returns the part of *wanted* that no guarantee from *queue* up to the root protects; all of it unless it is
    *guarded* by them."""
    if not guarded:
        return dict(wanted)
    found: Amounts = {}
    for t, amount in wanted.items():
        open_ = min([amount, *above_guarantees(queue, t)])
        if open_ > 0:
            found[t] = open_
    return found


def above_guarantees(queue: Queue, t: int) -> list[int]:
    """Returns what *queue* and each queue above it with a guarantee of type *t* hold beyond the guarantee; negative:
    below it."""
    return [net_usage(level, t) - level.guaranteed[t] for level in queue.lineage() if t in level.guaranteed]


def leaf_shares(queue: Queue, wanted: Amounts, *, guarded: bool = True) -> dict[Queue, Amounts]:
    """Returns the part of *wanted* that each leaf at or below *queue* has to give up, leaves by path. *guarded* tells
    whether guarantees protect what they hold.

    Leaves that can release nothing of these types are left out; an empty part means that rounding left nothing for the
    leaf.
    """
    if queue.leaf:
        return {queue: wanted} if wanted else {}
    releasable: dict[Queue, Amounts] = {}
    _find_releasable(queue, tuple(wanted), releasable, guarded)
    found: dict[Queue, Amounts] = {}
    _spread_target(queue, wanted, releasable, found)
    return dict(sorted(found.items(), key=lambda entry: entry[0].path))


def _find_releasable(queue: Queue, types: tuple[int, ...], releasable: dict[Queue, Amounts], guarded: bool) -> Amounts:
    """Fill in *releasable* for *queue* and all queues below it, and return the amounts of *queue*. No queue can release
    more than its children."""
    own = {t: max(0, net_usage(queue, t) - (queue.guaranteed.get(t, 0) if guarded else 0)) for t in types}
    if not queue.leaf:
        below = dict.fromkeys(types, 0)
        for child in queue.children.values():
            for t, amount in _find_releasable(child, types, releasable, guarded).items():
                below[t] += amount
        own = {t: min(amount, below[t]) for t, amount in own.items()}
    found = releasable[queue] = {t: amount for t, amount in own.items() if amount}
    return found


def _spread_target(queue: Queue, part: Amounts, releasable: dict[Queue, Amounts], found: dict[Queue, Amounts]) -> None:
    children = [child for child in queue.children.values() if releasable[child]]
    parts: dict[Queue, Amounts] = {child: {} for child in children}
    for t, amount in part.items():
        holders = [(child, releasable[child][t]) for child in children if t in releasable[child]]
        for child, share in _split_in_proportion(amount, holders):
            if share:
                parts[child][t] = share
    for child, share_of_child in parts.items():
        if child.leaf:
            found[child] = share_of_child
        else:
            _spread_target(child, share_of_child, releasable, found)


def _split_in_proportion(amount: int, holders: list[tuple[Queue, int]]) -> list[tuple[Queue, int]]:
    """Returns *amount* split in proportion to what each of *holders* holds, in whole units; remaining units go to the
    largest fractions, then by path."""
    total = sum(held for _, held in holders)
    amount = min(amount, total)
    split = [(child, *divmod(amount * held, total)) for child, held in holders]
    missing = amount - sum(whole for _, whole, _ in split)
    if not missing:
        return [(child, whole) for child, whole, _ in split]
    split.sort(key=lambda entry: (-entry[2], entry[0].path))
    return [(child, whole + (1 if at < missing else 0)) for at, (child, whole, _) in enumerate(split)]
