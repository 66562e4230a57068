"""Chooses victims as every kind of preemption does: walks over the candidates, the mildest first, and gives back those
who turn out not to be needed (preemption.md B.6).

The walk takes each candidate who lowers an unmet need and whom the laws let go after those already taken, and stops
when the needs are met. It fails where those taken first leave others too little of a guarantee. Then it begins again
with one or two of those whom a walk kept for that reason in front. No other search for victims exists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Final, TypeVar

from kornel.core.model.allocations import Allocation
from kornel.core.model.shapes import Pairs

MOST_AGAIN: Final = 64
"""The most candidates, and the most pairs of candidates, with whom failed walks begin again."""

_NEVER_MET: Final = 2**62
"""A need that is never met."""

_C = TypeVar("_C")


class Effects:
    """The effects of taking a candidate; candidates with the same object are alike."""

    __slots__ = ("depth", "gains", "serves", "uses")

    def __init__(self, gains: Pairs, uses: Pairs, serves: tuple[int, ...], depth: int = 0) -> None:
        self.gains: Final = gains
        """The contribution to each need, as (need, amount)."""
        self.uses: Final = uses
        """The amounts taken from the rooms that the laws leave, as (room, amount)."""
        self.serves: Final = serves
        """The needs that justify taking it; it may contribute to other needs besides."""
        self.depth: Final = depth
        """The depth of the lowest common ancestor of its leaf and the leaf of the ask (preemption.md K5)."""


Candidate = tuple[int, int, int, str, Allocation, Effects]
"""(priority or price, age, earlier preemptions of the application, key, allocation, effects): of two candidates of one
class, the smaller one is taken first."""


class Walk:
    """One walk: those taken so far, and those whom a law kept only because of these."""

    __slots__ = ("_all_served", "_lacks", "_left", "_needs", "_room", "_rooms", "_unmet", "kept", "taken")

    def __init__(
        self,
        needs: list[int],
        rooms: list[int],
        *,
        all_served: bool = True,
        lacks: Callable[[Sequence[Candidate]], bool] | None = None,
    ) -> None:
        """Begins with nobody. *needs*: the amounts to be freed; *rooms*: what the laws leave to be taken.

        *all_served*: whoever contributes to a need may be taken for it. *lacks* tells for some victims whether
        something that cannot be counted, such as devices, is still lacking; that is the last need, with the amount 1.
        """
        self._needs = needs
        self._rooms = rooms
        self._left = needs.copy()
        self._room = rooms.copy()
        self._unmet = sum(1 for amount in needs if amount > 0)
        self._all_served = all_served
        self._lacks = lacks
        self.taken: list[Candidate] = []
        self.kept: list[Candidate] = []

    def take_from(self, candidates: Iterable[Candidate]) -> bool:
        """Takes victims out of *candidates*, in order. Returns whether the needs are met.

        It stops at the first success, because later candidates cannot change the result.
        """
        left, room, rooms, taken = self._left, self._room, self._rooms, self.taken
        unmet, lacks = self._unmet, self._lacks
        for candidate in candidates:
            effects = candidate[5]
            for i in effects.serves:
                if left[i] > 0:
                    break
            else:
                if not self._all_served and self._would_serve(effects):
                    self.kept.append(candidate)
                continue
            if len(room) < len(rooms):
                # Candidates may be made while they are read, and the first member of a gang adds a room.
                room += rooms[len(room) :]
            for r, amount in effects.uses:
                if room[r] < amount:
                    self.kept.append(candidate)
                    break
            else:
                taken.append(candidate)
                for r, amount in effects.uses:
                    room[r] -= amount
                for i, amount in effects.gains:
                    if left[i] > 0:
                        left[i] -= amount
                        if left[i] <= 0:
                            unmet -= 1
                    else:
                        left[i] -= amount
                if lacks is not None and left[-1] > 0 and not lacks(taken):
                    left[-1] = 0
                    unmet -= 1
                if not unmet:
                    self._unmet = 0
                    return True
        self._unmet = unmet
        return False

    def _would_serve(self, effects: Effects) -> bool:
        """Tells whether a candidate with *effects* contributes to an unmet need, and could be taken if those taken
        before him had not met another one."""
        left, needs = self._left, self._needs
        return any(left[i] > 0 for i, _ in effects.gains) and any(needs[i] > 0 for i in effects.serves)

    def give_back(self) -> list[Candidate]:
        """Returns those taken without the ones that are not needed, tried from the last one on."""
        left, lacks = self._left, self._lacks
        kept = self.taken.copy()
        for at in range(len(kept) - 1, -1, -1):
            gains = kept[at][5].gains
            for i, amount in gains:
                if left[i] + amount > 0:
                    break
            else:
                if lacks is not None and self._needs[-1] > 0 and lacks(kept[:at] + kept[at + 1 :]):
                    continue
                del kept[at]
                for i, amount in gains:
                    left[i] += amount
        return kept

    def justifies(self, victims: Sequence[Candidate]) -> bool:
        """Tells whether each of *victims*, those that are not given back, is justified: without it, a need that it may
        be taken for would not be met."""
        if self._all_served:
            return True
        left, needs = self._left, self._needs
        return all(
            any(i in victim[5].serves and needs[i] > 0 and left[i] + amount > 0 for i, amount in victim[5].gains)
            for victim in victims
        )


def are_met(needs: list[int], victims: Iterable[Candidate]) -> bool:
    """Tells whether *needs* are met once all *victims* have left, whatever the laws say."""
    left = needs.copy()
    for victim in victims:
        for i, amount in victim[5].gains:
            left[i] -= amount
    return max(left) <= 0


def take_everybody(
    needs: list[int], rooms: list[int], candidates: Iterable[Candidate], *, all_served: bool = True
) -> Walk:
    """Returns the walk that takes each of *candidates*, in order, whom the laws let go after those taken before, as if
    *needs* were never met."""
    walk = Walk([_NEVER_MET] * len(needs), rooms, all_served=all_served)
    walk.take_from(candidates)
    return walk


def walk_over(
    needs: list[int], rooms: list[int], candidates: Iterable[Candidate], *, all_served: bool = True
) -> list[Candidate] | None:
    """Returns the victims of the plain walk over *candidates*, in order; ``None``: it fails."""
    walk = Walk(needs, rooms, all_served=all_served)
    if not walk.take_from(candidates):
        return None
    victims = walk.give_back()
    return victims if walk.justifies(victims) else None


def walk_again(
    needs: list[int],
    rooms: list[int],
    candidates: Sequence[Candidate],
    *,
    all_served: bool = True,
    lacks: Callable[[Sequence[Candidate]], bool] | None = None,
    turns: Iterable[object] = repeat(None),
) -> list[Candidate] | None:
    """Returns the victims of the first walk over *candidates* that does not fail, in order; ``None``: all fail. It
    walks as often as *turns* allows, and takes one of these for each time."""
    kept: list[Candidate] = []
    for first, _ in zip(list_firsts(kept, _effects_of), turns, strict=False):
        walk = Walk(needs, rooms, all_served=all_served, lacks=lacks)
        ahead = {candidate[3] for candidate in first}
        if walk.take_from(first) or walk.take_from(c for c in candidates if c[3] not in ahead):
            victims = walk.give_back()
            if walk.justifies(victims):
                going = {victim[3] for victim in victims}
                return [candidate for candidate in candidates if candidate[3] in going]
        kept += walk.kept
    return None


def _effects_of(candidate: Candidate) -> Hashable:
    return candidate[5]


def list_firsts(kept: Sequence[_C], alike: Callable[[_C], Hashable]) -> Iterator[tuple[_C, ...]]:
    """Yields those with whom walks begin: nobody, then each of *kept* whom a law kept only because of others taken
    before him, in order, then each pair of them. Those who are *alike* count once, because they would fail alike.

    The caller adds to *kept* whom each walk keeps. They come next, before further pairs.
    """
    yield ()
    groups: dict[Hashable, list[_C]] = {}
    singles: deque[tuple[_C, ...]] = deque()
    pairs: deque[tuple[_C, ...]] = deque()
    read, pairs_left = 0, MOST_AGAIN
    while True:
        for candidate in islice(kept, read, None):
            group = groups.get(alike(candidate))
            if group is None and len(groups) < MOST_AGAIN:
                pairs += [(other[0], candidate) for other in groups.values()]
                singles.append((candidate,))
                groups[alike(candidate)] = [candidate]
            elif group is not None and len(group) == 1 and candidate is not group[0]:
                pairs.append((group[0], candidate))
                group.append(candidate)
        read = len(kept)
        if singles:
            yield singles.popleft()
        elif pairs and pairs_left:
            pairs_left -= 1
            yield pairs.popleft()
        else:
            return
