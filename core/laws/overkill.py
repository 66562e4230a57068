"""Checks the law that binds every kind of preemption: no victim is taken without need.

A kind states what has to be freed, by place and type, and how much each victim contributes. By the law, no victim can
be left out. So what is freed exceeds a need by less than the smallest victim that serves this need alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kornel.core.laws.verdict import Law, Violation


@dataclass(frozen=True, slots=True)
class Need:
    """An amount of one type to be freed in one place.

    place   the type and the node or queue, for people
    amount  in base units; 0 or less: nothing has to be freed there
    gains   by key, what each victim frees there; victims that free nothing may be missing
    mine    the keys of the victims that this need justifies
    """

    place: str
    amount: int
    gains: Mapping[str, int]
    mine: frozenset[str]

    def freed(self) -> int:
        """Returns what all victims together free there."""
        return sum(self.gains.values())

    def left_after(self, gone: Sequence[str]) -> int:
        """Returns how much is missing once the victims *gone*, by key, have left; 0 or less: enough is freed."""
        return self.amount - sum([self.gains.get(key, 0) for key in gone])

    def may_serve(self, key: str) -> bool:
        """Tells whether the victim called *key* frees some of the amount, and may be taken for it."""
        return self.gains.get(key, 0) > 0 and key in self.mine

    def depends_on(self, key: str) -> bool:
        """Tells whether less than the amount would be freed without the victim called *key*."""
        return self.amount > 0 and self.freed() - self.gains.get(key, 0) < self.amount


def check(needs: Sequence[Need], victims: Sequence[str]) -> Iterator[Violation]:
    """Yields each of *victims*, by key, that could be left out: no need for which it may be taken depends on it."""
    for key in victims:
        if not any(key in need.mine and need.depends_on(key) for need in needs):
            yield Violation(Law.MINIMAL, f"{key} is not needed")
