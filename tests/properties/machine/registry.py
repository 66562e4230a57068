"""The list of everything a shim can do: functions of the world and some dice, with ``@rule(weight)`` on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.properties.machine.dice import Dice
from tests.properties.machine.world import World

Action = Callable[[World, Dice], None]


class Rule(NamedTuple):
    """``weight``: how often it is chosen, against the others."""

    name: str
    weight: int
    perform: Action


RULES: Final[list[Rule]] = []


def rule(weight: int) -> Callable[[Action], Action]:
    """Add the function to the rules."""

    def add(action: Action) -> Action:
        RULES.append(Rule(action.__name__, weight, action))
        return action

    return add
