"""What applications have used: amount times seconds of their ended allocations (rest.md 4.5, resourceHistory)."""

from __future__ import annotations

from typing import Final

from core.model.allocations import Allocation
from core.model.applications import SpentKind

_NS_PER_S: Final = 10**9


def note_end(allocation: Allocation, now_ns: int) -> None:
    """*allocation* is about to leave its node. Whole seconds count."""
    node = allocation.node
    seconds = (now_ns - allocation.bound_ns) // _NS_PER_S
    if node is None or seconds <= 0:
        return
    if allocation.preempted:
        kind = SpentKind.PREEMPTED
    elif allocation.spec.placeholder:
        kind = SpentKind.PLACEHOLDER
    else:
        kind = SpentKind.REAL
    amounts = allocation.application.spent.setdefault(kind, {}).setdefault(node.instance_type, {})
    for t, amount in allocation.shape.pairs:
        amounts[t] = amounts.get(t, 0) + amount * seconds
