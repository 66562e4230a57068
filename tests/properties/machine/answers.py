"""The effects of one call, read in the order in which a shim hears them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kornel.core.domain.effects import Allocated, AllocationRejected, Effect, Released
from tests.properties.machine.view import ContractBroken

E = TypeVar("E")

_ANSWERS = (Allocated, AllocationRejected, Released)
"""What answers one entry of a request, or announces a placement."""


class Answers:
    """What may come at any time is taken in on the way, by *aside*."""

    def __init__(self, effects: Sequence[Effect], aside: Callable[[Effect], bool]) -> None:
        self._effects = effects
        self._at = 0
        self._aside = aside

    def pass_asides(self) -> None:
        while self._at < len(self._effects) and self._aside(self._effects[self._at]):
            self._at += 1

    def take(self) -> Effect | None:
        """The next answer; ``None``: there is none."""
        self.pass_asides()
        if self._at == len(self._effects):
            return None
        self._at += 1
        return self._effects[self._at - 1]

    def any(self, kind: type) -> bool:
        """Whether an answer of *kind* is still to come."""
        return any(isinstance(effect, kind) for effect in self._effects[self._at :])

    def coming(self, kind: type[E]) -> list[E]:
        """The answers of *kind* that are still to come."""
        return [effect for effect in self._effects[self._at :] if isinstance(effect, kind)]

    def at(self, kind: type) -> bool:
        """Whether the next answer is of *kind*; what comes before one of another kind may belong to a later entry."""
        after = self._effects[self._at :]
        first = next((effect for effect in after if isinstance(effect, (kind, *_ANSWERS))), None)
        if not isinstance(first, kind):
            return False
        self.pass_asides()
        return self._effects[self._at] is first

    def next(self, kind: type[E]) -> E:
        """The next answer, which must be of *kind*."""
        answer = self.take()
        if not isinstance(answer, kind):
            raise ContractBroken("answer", f"{answer} instead of {kind.__name__}")
        return answer

    def end(self) -> None:
        if (answer := self.take()) is not None:
            raise ContractBroken("answer", f"{answer} answers nothing")


def token(reason: str) -> str:
    return reason.partition(":")[0]
