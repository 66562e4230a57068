"""Chooses victims from a pool: the first ones in order or, if these are not enough, by an exact search, and none that
is not needed (preemption.md B.6, steps 1 to 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import chain
from typing import Final

from kornel.core.preemption.guarantee.allowances import Kind
from kornel.core.preemption.guarantee.order import Candidate
from kornel.core.preemption.victim_index import CLASSES

STEPS_PER_NODE: Final = 10_000
STEPS_PER_ATTEMPT: Final = 50_000
"""The budget of all exact searches of one attempt together, because many nodes that just fail must not stop the core
for seconds."""

SUBSETS: Final = ((0,), (0, 1), (0, 2), CLASSES)
"""The sets of classes that are searched exactly, in the order in which their solutions compare."""

Pool = Sequence[Iterable[Candidate]]
"""Candidates by class, each class in the order of preemption.md B.5, up to some class."""


class Solver:
    """Finds victims for one ask on one node after the other. It keeps the budget of steps and remembers problems
    without a solution."""

    __slots__ = ("_all_owed", "_hopeless", "_left", "_owed", "_room", "cut_short")

    def __init__(self, room: list[int], owed: list[bool]) -> None:
        """Begins with *room*: what law 2 leaves in each room
        (:class:`kornel.core.preemption.guarantee.allowances.Terms`).

        *owed* tells for each need whether a guarantee covers it
        (:class:`kornel.core.preemption.guarantee.needs.Needs`).
        """
        self._room = room
        self._owed = owed
        self._all_owed = all(owed)
        self._left = STEPS_PER_ATTEMPT
        self.cut_short = False
        """Tells whether the budget ended a search before everything was tried."""
        self._hopeless: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        """The problems without a solution, as needs and kinds of candidates, because nodes are often alike."""

    def solve(self, needs: list[int], pool: Pool) -> list[Candidate] | None:
        """Returns victims out of *pool*, in B.5 order, that cover *needs* within law 2; ``None``: no set does."""
        taken = self.first_come(needs, pool)
        return self.solve_exactly(needs, pool) if taken is None else taken

    def first_come(self, needs: list[int], pool: Pool) -> list[Candidate] | None:
        """Walks over *pool* once and takes every candidate that lowers an unmet need and may leave, then leaves out
        those that are not needed (steps 1 and 3).

        It stops at the first success, because later candidates cannot change the result.
        """
        left = needs.copy()
        room = self._room.copy()
        unmet = sum(1 for amount in left if amount > 0)
        taken: list[Candidate] = []
        for candidate in chain.from_iterable(pool):
            kind = candidate[5]
            for i in kind.serves:
                if left[i] > 0:
                    break
            else:
                continue
            if len(room) < len(self._room):
                # A pool may make its candidates while it is read, and the first member of a gang adds a room.
                room += self._room[len(room) :]
            if not _fits_rooms(room, kind):
                continue
            taken.append(candidate)
            for r, amount in kind.uses:
                room[r] -= amount
            for i, amount in kind.gains:
                if left[i] > 0:
                    left[i] -= amount
                    if left[i] <= 0:
                        unmet -= 1
                else:
                    left[i] -= amount
            if not unmet:
                kept = without_spare(needs, taken)
                return kept if self._all_owed or is_justified(needs, kept) else None
        return None

    def solve_exactly(self, needs: list[int], pool: Pool) -> list[Candidate] | None:
        """Returns the victims with the smallest solution key, within the step budget (step 2)."""
        steps = min(STEPS_PER_NODE, self._left)
        before: list[Candidate] = []
        for classes in SUBSETS:
            part = [candidate for c in classes if c < len(pool) for candidate in pool[c]]
            if len(part) == len(before):
                continue
            before = part
            if not self._within_reach(needs, part):
                continue
            problem = (tuple(needs), tuple(sorted(candidate[5].number for candidate in part)))
            if problem in self._hopeless:
                continue
            search = _ExactSearch(needs, part, self._room, steps, all_owed=self._all_owed)
            found = search.run()
            self._left -= search.steps
            steps -= search.steps
            if found is not None:
                return found
            if steps <= 0:
                self.cut_short = True
            self._hopeless.add(problem)
        return None

    def _within_reach(self, needs: list[int], pool: list[Candidate]) -> bool:
        """Tells whether *pool* may cover the needs that no guarantee covers.

        These needs get what their own victims free, and what victims for owed needs free besides. The number of the
        latter is bounded: each of k victims is needed only if the k - 1 smallest are not enough.
        """
        if self._all_owed:
            return True
        others = 0
        for j, amount in enumerate(needs):
            if self._owed[j] and amount > 0:
                smallest = min((gain for c in pool for i, gain in c[5].gains if i == j), default=0)
                others += -(-amount // smallest) if smallest else 0
        for j, amount in enumerate(needs):
            if self._owed[j] or amount <= 0:
                continue
            most = 0
            along: list[int] = []
            for candidate in pool:
                kind = candidate[5]
                gain = next((gain for i, gain in kind.gains if i == j), 0)
                if j in kind.serves:
                    most += gain
                else:
                    along.append(gain)
            if most + sum(nlargest(others, along)) < amount:
                return False
        return True


def is_justified(needs: list[int], victims: list[Candidate]) -> bool:
    """Tells whether each of *victims* is justified: without it, a need that it may be taken for would not be met."""
    left = needs.copy()
    for victim in victims:
        for i, amount in victim[5].gains:
            left[i] -= amount
    for victim in victims:
        kind = victim[5]
        if not any(i in kind.serves and needs[i] > 0 and left[i] + amount > 0 for i, amount in kind.gains):
            return False
    return True


def without_spare(needs: list[int], victims: list[Candidate]) -> list[Candidate]:
    """Returns *victims* without those that *needs* do not require, tried from the most protected one on (step 3)."""
    left = needs.copy()
    for victim in victims:
        for i, amount in victim[5].gains:
            left[i] -= amount
    kept = victims.copy()
    for at in range(len(victims) - 1, -1, -1):
        gains = victims[at][5].gains
        if all(left[i] + amount <= 0 for i, amount in gains):
            del kept[at]
            for i, amount in gains:
                left[i] += amount
    return kept


def _fits_rooms(room: list[int], kind: Kind) -> bool:
    """Tells whether law 2 allows one more victim of *kind*."""
    for r, amount in kind.uses:
        if room[r] < amount:
            return False
    return True


class _ExactSearch:
    """Tries all ways to cover the needs with 1, 2, 3 ... victims, until there is a solution."""

    __slots__ = (
        "_all_owed", "_best", "_best_key", "_limit", "_pool", "_room", "_suffix_max", "_suffix_sum", "needs", "steps",
    )  # fmt: skip

    def __init__(self, needs: list[int], pool: list[Candidate], room: list[int], limit: int, *, all_owed: bool) -> None:
        self._all_owed = all_owed
        self.needs = needs
        self.steps = 0
        self._pool = pool
        self._room = room
        self._limit = limit
        self._best: list[Candidate] | None = None
        self._best_key: tuple[int, int, int] | None = None
        self._find_bounds()

    def _find_bounds(self) -> None:
        """Computes, for every place in the pool and every need, the sum and the largest of the contributions from there
        on."""
        width = len(self.needs)
        sums, peaks = [[0] * width], [[0] * width]
        for candidate in reversed(self._pool):
            total, peak = sums[-1].copy(), peaks[-1].copy()
            for i, amount in candidate[5].gains:
                total[i] += amount
                peak[i] = max(peak[i], amount)
            sums.append(total)
            peaks.append(peak)
        self._suffix_sum = sums[::-1]
        self._suffix_max = peaks[::-1]

    def run(self) -> list[Candidate] | None:
        """Returns the best victims found; ``None``: none exist, or the budget ended before the first was found."""
        for count in range(1, len(self._pool) + 1):
            if self._within_reach(self.needs, 0, count):
                self._extend_choice([], self.needs, self._room, 0, count)
            if self._best is not None or self.steps >= self._limit:
                break
        return self._best

    def _within_reach(self, left: list[int], start: int, count: int) -> bool:
        """Tells whether *count* candidates from *start* on could cover *left* if the laws allowed all of them."""
        total, peak = self._suffix_sum[start], self._suffix_max[start]
        return all(amount <= 0 or (amount <= total[i] and amount <= count * peak[i]) for i, amount in enumerate(left))

    def _extend_choice(self, chosen: list[Candidate], left: list[int], room: list[int], start: int, count: int) -> None:
        """Tries every candidate from *start* on as the next victim; *count* victims are still to be chosen."""
        pool = self._pool
        passed: set[tuple[int, int]] = set()
        for at in range(start, len(pool) - count + 1):
            if self.steps >= self._limit or not self._within_reach(left, at, count):
                return
            candidate = pool[at]
            kind = candidate[5]
            # An equal candidate that is younger was tried before: whatever this one solves, the younger one solves
            # better.
            equal = (kind.number, candidate[0])
            if equal in passed:
                continue
            passed.add(equal)
            self.steps += 1
            if not _fits_rooms(room, kind):
                continue
            after = left.copy()
            for i, amount in kind.gains:
                after[i] -= amount
            chosen.append(candidate)
            if count == 1:
                if max(after) <= 0 and (self._all_owed or is_justified(self.needs, chosen)):
                    self._keep_choice(chosen)
            else:
                space = room.copy()
                for r, amount in kind.uses:
                    space[r] -= amount
                self._extend_choice(chosen, after, space, at + 1, count - 1)
            chosen.pop()

    def _keep_choice(self, chosen: list[Candidate]) -> None:
        """Keeps *chosen* if it is better than the best so far; of equal ones, the first in the order of preemption.md
        B.5 stays."""
        key = (
            max(victim[0] for victim in chosen),
            max(victim[1] for victim in chosen),
            -min(victim[5].depth for victim in chosen),
        )
        if self._best_key is None or key < self._best_key:
            self._best, self._best_key = chosen.copy(), key
