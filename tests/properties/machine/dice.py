"""Where the rules take their choices from: small numbers, of which 0 always means the plainest choice."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Choices made of numbers that somebody else draws: Hypothesis, so that it can shrink them, or a seed."""

    def __init__(self, draw: Callable[[], int]) -> None:
        """*draw* gives the next number, 0 or more."""
        self._draw = draw

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Dice:
        """Dice that show *numbers* and then only zeros."""
        rest = iter(numbers)
        return cls(lambda: next(rest, 0))

    @classmethod
    def seeded(cls, source: random.Random) -> Dice:
        return cls(lambda: source.getrandbits(16))

    def below(self, bound: int) -> int:
        """0 to *bound* - 1."""
        return self._draw() % bound

    def pick(self, options: Sequence[T]) -> T:
        """One of *options*; the first is the plainest."""
        return options[self._draw() % len(options)]

    def one_in(self, number: int) -> bool:
        """Whether something happens that happens once in *number* times."""
        return self._draw() % number == number - 1
