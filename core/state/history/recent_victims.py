"""Remembers the latest victims and for which preemptors they were chosen, to be found by key or application."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kornel.core.domain.effects import PreemptionDecided, VictimRecord

KEPT: Final = 10_000
"""The number of victims remembered per partition; a new one replaces the oldest."""


class RecentVictim(NamedTuple):
    """A victim, and the decision that chose it."""

    record: VictimRecord
    decided: PreemptionDecided


class RecentVictims:
    """The last victims of one partition, by key. For a key that is used again, only the last decision is kept."""

    def __init__(self) -> None:
        self._victims: OrderedDict[str, RecentVictim] = OrderedDict()

    def note_victims(self, decided: PreemptionDecided) -> None:
        """Remember the victims of *decided*, if it has any."""
        victims = self._victims
        for victim in decided.victims[-KEPT:]:
            victims[victim.key] = RecentVictim(victim, decided)
            victims.move_to_end(victim.key)
        while len(victims) > KEPT:
            victims.popitem(last=False)

    def list_preemptors(self) -> set[str]:
        """Returns the keys of the asks for which they were chosen."""
        return {found.decided.key for found in self._victims.values()}

    def find_victim(self, key: str) -> RecentVictim | None:
        """Returns the record of the victim with *key*; ``None``: it was not a victim, or too long ago."""
        return self._victims.get(key)

    def of_application(self, application_id: str) -> Iterator[RecentVictim]:
        """Yields the victims that belonged to an application, the latest first."""
        return (found for found in reversed(self._victims.values()) if found.record.application_id == application_id)
