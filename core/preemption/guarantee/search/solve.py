"""Chooses the victims of one ask on one node after the other by the walk that all kinds share (preemption.md B.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from kornel.core.preemption.walk import Candidate, Effects, walk_again, walk_over

Pool = Sequence[Iterable[Candidate]]
"""Candidates by class, each class in the order of preemption.md B.5, up to some class."""


class Solver:
    """Finds victims for one ask. It remembers problems without a solution, because nodes are often alike."""

    __slots__ = ("_all_owed", "_hopeless", "_room")

    def __init__(self, room: list[int], owed: list[bool]) -> None:
        """Begins with *room*: what law 2 leaves in each room
        (:class:`kornel.core.preemption.guarantee.rules.allowances.Terms`).

        *owed* tells for each need whether a guarantee covers it
        (:class:`kornel.core.preemption.guarantee.rules.needs.Needs`).
        """
        self._room = room
        self._all_owed = all(owed)
        self._hopeless: set[tuple[tuple[int, ...], tuple[Effects, ...]]] = set()
        """The problems without a solution, as needs and effects of candidates."""

    def solve(self, needs: list[int], pool: Pool) -> list[Candidate] | None:
        """Returns victims out of *pool*, in B.5 order, that cover *needs* within the laws; ``None``: no walk does."""
        taken = self.first_come(needs, pool)
        return self.begin_again(needs, pool) if taken is None else taken

    def first_come(self, needs: list[int], pool: Pool) -> list[Candidate] | None:
        """Returns the victims of the plain walk over *pool*; ``None``: it fails."""
        return walk_over(needs, self._room, chain.from_iterable(pool), all_served=self._all_owed)

    def begin_again(self, needs: list[int], pool: Pool) -> list[Candidate] | None:
        """Returns victims out of *pool*, over which the plain walk has failed, with other candidates first; ``None``:
        that fails, too."""
        candidates = list(chain.from_iterable(pool))
        problem = (tuple(needs), tuple([candidate[5] for candidate in candidates]))
        if problem in self._hopeless:
            return None
        found = walk_again(needs, self._room, candidates, all_served=self._all_owed)
        if found is None:
            self._hopeless.add(problem)
        return found
