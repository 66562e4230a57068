"""The kinds of preemption as pages and programs need them that show decisions: ours, not YuniKorn's."""

from __future__ import annotations

from typing import Any

from core.preemption.kind import DecisionSource, Kind
from core.preemption.registry import SOURCES


def preemption_kinds() -> list[dict[str, Any]]:
    """Returns everybody who decides about preemption: the kinds in the order in which they run, then the governor."""
    return [_source(source) for source in SOURCES.values()]


def _source(source: DecisionSource) -> dict[str, Any]:
    kind = source if isinstance(source, Kind) else None
    return {
        "name": source.name,
        "laws": list(kind.laws) if kind is not None else [],
        "law": kind.allowed_by if kind is not None else "",
        "colour": str(source.colour),
        "outcomes": {
            str(outcome): {"leaves": ending.leaves, "tone": str(ending.tone)}
            for outcome, ending in source.outcomes.items()
        },
    }
