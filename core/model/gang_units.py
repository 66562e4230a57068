"""Defines the group of members of a gang that wait for each other, because all of them are placed by one decision or
none is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.resources import NOTHING
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.applications import Application, GroupKey
from kornel.core.model.shapes import Shape

UNIT_SHAPE: Final = Shape(NOTHING, ())
"""A shape that belongs to no ask. It stands in a unit in place of the shape of equal asks, because the members of a
unit need not be equal."""


class UnitId(NamedTuple):
    """The members of a gang that are placed together: the placeholders of *application*, whatever their task group, if
    *task_group* is empty, otherwise the real asks of that group."""

    application: Application
    task_group: str

    @property
    def key(self) -> GroupKey:
        """The key of the unit among the groups of its application."""
        return (UNIT_SHAPE, "", False, self.task_group)

    def find_unit(self) -> GangUnit | None:
        """Returns the group in which the members wait for each other; ``None``: none of them does."""
        unit = self.application.groups.get(self.key)
        return unit if isinstance(unit, GangUnit) else None

    def includes_ask(self, ask: Allocation) -> bool:
        """Tells whether *ask* is one of these members."""
        spec = ask.spec
        if ask.application is not self.application or spec.placeholder is bool(self.task_group):
            return False
        return spec.placeholder or spec.task_group == self.task_group


def unit_of(ask: Allocation) -> UnitId:
    """Returns the members that *ask* would be placed together with; only asks of a task group are."""
    return UnitId(ask.application, "" if ask.spec.placeholder else ask.spec.task_group)


class GangUnit(AskGroup):
    """The waiting members of a gang that are placed together: the placeholders of one application, or the real asks of
    one task group. The unit takes its turn among the groups of equal asks, at the position of its first member.
    """

    __slots__ = ("amounts", "id", "lacks", "refusal")

    is_unit = True

    def __init__(self, unit_id: UnitId, number: int) -> None:
        super().__init__(unit_id.application, unit_id.key, number)
        self.id: Final = unit_id
        self.amounts: Final[dict[str, int]] = {}
        """The sum of what its members ask for, by type."""
        self.lacks: Unschedulable | None = None
        """The reason why it was not placed when it was last tried."""
        self.refusal: Any = None
        """The answer of its last attempt to preempt; ``None``: there was none."""

    @property
    def kept_back(self) -> bool:
        """Returns true, because preemption must not act for a single member, whatever the unit waits for."""
        return True

    def add(self, ask: Allocation) -> bool:
        """Adds *ask*. Returns whether it comes before all others."""
        for name, amount in ask.shape.resources.items():
            self.amounts[name] = self.amounts.get(name, 0) + amount
        return super().add(ask)

    def remove(self, ask: Allocation) -> None:
        """Removes *ask*, whose size must still be the one that it had when it was added."""
        for name, amount in ask.shape.resources.items():
            self.amounts[name] -= amount
        super().remove(ask)

    def find_missing(self, announced: Mapping[str, int]) -> dict[str, int]:
        """Returns, by type, how much of what was *announced* the members do not ask for yet; empty: all members are
        there."""
        amounts = self.amounts
        return {name: most - amounts.get(name, 0) for name, most in announced.items() if amounts.get(name, 0) < most}
