"""Nobody goes without need: the law that binds every kind of preemption.

A kind says what has to be freed, place by place and type by type, and who contributes how much. Then no victim can be
left out, and what is freed exceeds a need by less than the smallest victim that could have been left out for its sake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kornel.core.laws.verdict import Law, Violation


@dataclass(frozen=True, slots=True)
class Need:
    """An amount of one type to be freed in one place.

    place   the type and the node or queue, for people
    amount  base units; 0 or less: nothing has to be freed there
    gains   by key, what each victim frees there; who frees nothing may be missing
    mine    the keys of those that may go for the sake of this need
    """

    place: str
    amount: int
    gains: Mapping[str, int]
    mine: frozenset[str]

    def freed(self) -> int:
        """Returns what all victims free there together."""
        return sum(self.gains.values())

    def depends_on(self, key: str) -> bool:
        """Tells whether without the victim called *key* less than the amount would be freed."""
        return self.amount > 0 and self.freed() - self.gains.get(key, 0) < self.amount


def check(needs: Sequence[Need], victims: Sequence[str]) -> Iterator[Violation]:
    """Yields every one of *victims*, by key, that could be left out, and every need that is met by more than it
    takes."""
    real = [need for need in needs if need.amount > 0]
    needed: dict[str, list[Need]] = {key: [need for need in real if need.depends_on(key)] for key in victims}
    for key in victims:
        if not any(key in need.mine for need in needed[key]):
            yield Violation(Law.MINIMAL, f"{key} is not needed")
    for need in real:
        spare = need.freed() - need.amount
        for key in victims:
            gain = need.gains.get(key, 0)
            if gain and gain <= spare and all(other is need for other in needed[key]):
                detail = f"{need.freed()} freed of {need.place}, {need.amount} needed: {key} could stay"
                yield Violation(Law.MINIMAL, detail)
