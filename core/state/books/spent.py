"""Sums of what applications have used: amount times seconds of their ended allocations (rest.md 4.5,
resourceHistory)."""

from __future__ import annotations

from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import SpentKind

_NS_PER_S: Final = 10**9
_REAL, _PREEMPTED, _PLACEHOLDER = SpentKind.REAL, SpentKind.PREEMPTED, SpentKind.PLACEHOLDER


def note_end(allocation: Allocation, now_ns: int) -> None:
    """Adds what *allocation*, which is about to leave its node, has used there. Whole seconds count."""
    node = allocation.node
    seconds = (now_ns - allocation.bound_ns) // _NS_PER_S
    if node is None or seconds <= 0:
        return
    kind = _PREEMPTED if allocation.preempted else _PLACEHOLDER if allocation.spec.placeholder else _REAL
    application = allocation.application
    if not application.spent:
        application.spent = {}
    spent = application.spent
    amounts = spent.get((kind, node.instance_type))
    if amounts is None:
        amounts = spent[kind, node.instance_type] = {}
    for t, amount in allocation.shape.pairs:
        amounts[t] = amounts.get(t, 0) + amount * seconds
