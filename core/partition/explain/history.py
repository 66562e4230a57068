"""Who was told to leave lately, and for whom: fed by decisions, asked by key or application."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Final

from core.domain.effects import Effect, PreemptionDecided, VictimRecord
from core.domain.explanation import PreemptedWork
from core.preemption.registry import allowed_by

KEPT: Final = 10_000
"""Victims remembered per partition; a new one pushes out the oldest."""


class PreemptionHistory:
    """The last victims of one partition, by key. A key that is used again keeps its last decision."""

    def __init__(self) -> None:
        self._lost: OrderedDict[str, tuple[VictimRecord, PreemptionDecided]] = OrderedDict()

    def note(self, decided: PreemptionDecided) -> None:
        """Remember the victims of *decided*, if it has any."""
        lost = self._lost
        for victim in decided.victims[-KEPT:]:
            lost[victim.key] = (victim, decided)
            lost.move_to_end(victim.key)
        while len(lost) > KEPT:
            lost.popitem(last=False)

    def of(self, key: str) -> PreemptedWork | None:
        """How *key* was told to leave; ``None``: it was not, or too long ago."""
        found = self._lost.get(key)
        return _work(*found) if found is not None else None

    def of_application(self, application_id: str, most: int) -> tuple[PreemptedWork, ...]:
        """The *most* recent ones of an application, latest first."""
        found = (entry for entry in reversed(self._lost.values()) if entry[0].application_id == application_id)
        return tuple(_work(*entry) for entry in islice(found, most))


def _work(victim: VictimRecord, decided: PreemptionDecided) -> PreemptedWork:
    reason, _, alternatives = decided.detail.partition("; weighed: ")
    return PreemptedWork(
        victim,
        decided.at_ns,
        decided.kind,
        decided.key,
        decided.application_id,
        decided.queue,
        allowed_by(decided.kind),
        reason,
        alternatives,
    )


def note_all(histories: dict[str, PreemptionHistory], effects: Iterable[Effect]) -> None:
    """Remember what *effects* say about victims, by partition."""
    for effect in effects:
        if isinstance(effect, PreemptionDecided) and effect.victims:
            histories.setdefault(effect.partition, PreemptionHistory()).note(effect)
