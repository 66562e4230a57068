"""Defines the group of placeholders of a gang that wait for each other, because all of them are placed by one decision
or none is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.resources import NOTHING
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.shapes import Shape

UNIT_SHAPE: Final = Shape(NOTHING, ())
"""A shape that belongs to no ask. It stands in a unit in place of the shape of equal asks, because the members of a
unit need not be equal."""
UNIT_KEY: Final = (UNIT_SHAPE, "", False, None)
"""The key of a unit among the groups of its application, which has one unit at most."""


class GangUnit(AskGroup):
    """The placeholders of one application that are placed together. The unit takes its turn among the groups of equal
    asks, at the position of its first member.
    """

    __slots__ = ("amounts", "lacks", "refusal")

    is_unit = True

    def __init__(self, application: Application, number: int) -> None:
        super().__init__(application, UNIT_SHAPE, "", number)
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
