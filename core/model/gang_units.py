"""The placeholders of a gang that wait for each other, because all of them are placed by one decision or none is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kornel.core.domain.reasons import Unschedulable
from kornel.core.domain.resources import NOTHING
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.applications import Application
from kornel.core.model.shapes import Shape

UNIT_SHAPE: Final = Shape(NOTHING, ())
"""Stands where groups of equal asks have their size. Members of a unit need not be alike, so it is that of none."""
UNIT_KEY: Final = (UNIT_SHAPE, "", False, None)
"""The key of the unit among the groups of its application, which has one at most."""


class GangUnit(AskGroup):
    """The placeholders of one application that are placed together: it takes its turn among the groups of equal asks,
    where its first member would.
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
        """The answer of its last attempt to preempt; ``None``: it made none."""

    @property
    def kept_back(self) -> bool:
        """Says that nobody is to leave for one of its members alone, whatever they wait for."""
        return True

    def add(self, ask: Allocation) -> bool:
        """Adds *ask*. Returns whether it comes before all others."""
        for name, amount in ask.shape.resources.items():
            self.amounts[name] = self.amounts.get(name, 0) + amount
        return super().add(ask)

    def remove(self, ask: Allocation) -> None:
        """Takes out *ask*, which is still of the size that it had when it was added."""
        for name, amount in ask.shape.resources.items():
            self.amounts[name] -= amount
        super().remove(ask)

    def find_missing(self, announced: Mapping[str, int]) -> dict[str, int]:
        """Returns how much of what was *announced* none of the members asks for yet, by type; nothing: all are here."""
        amounts = self.amounts
        return {name: most - amounts.get(name, 0) for name, most in announced.items() if amounts.get(name, 0) < most}
