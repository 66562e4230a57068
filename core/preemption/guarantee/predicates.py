"""The shim's predicates applied to the solutions: some nodes drop out, some need further victims (B.6, K6)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.preemption.guarantee.candidates import Candidates
from kornel.core.preemption.guarantee.needs import Needs
from kornel.core.preemption.guarantee.order import Candidate, Solution, full_order, solution_key
from kornel.core.preemption.plan import AnswerPending, PreemptionPredicate

BATCH: Final = 10
"""Nodes asked about at once."""


class Approved(NamedTuple):
    """A solution that the predicate let pass; ``extended``: with other victims than the resources asked for."""

    solution: Solution
    extended: bool


class Approval:
    """Asks *predicate* about one solution after another."""

    def __init__(
        self,
        ask: Allocation,
        needs: Needs,
        room: list[int],
        candidates: Candidates,
        predicate: PreemptionPredicate,
    ) -> None:
        self._ask = ask
        self._needs = needs
        self._room = room
        self._candidates = candidates
        self._predicate = predicate
        self.asked = 0
        """The number of solutions that were looked at."""

    def first_approved(self, solutions: Iterable[Solution]) -> Approved | None:
        """Returns the best approved solution; *solutions* come best first.

        Extra victims worsen a key, so the next solutions get their chance until none of them starts out better.
        Raises :class:`AnswerPending` when that depends on answers still to come, about ten nodes at most.
        """
        best: Approved | None = None
        pending = 0
        for solution in solutions:
            self.asked += 1
            if (best is not None and best.solution.key < solution.key) or pending == BATCH:
                break
            try:
                approved = self._judge_solution(solution)
            except AnswerPending:
                pending += 1
                continue
            if approved is not None and (best is None or approved.solution.key < best.solution.key):
                best = approved
        if pending:
            raise AnswerPending
        return best

    def _judge_solution(self, solution: Solution) -> Approved | None:
        node = solution.node
        here = [victim for victim in solution.victims if victim[4].node is node]
        if not here:
            passed = self._predicate(self._ask, node, (), -1)
            return None if passed is None else Approved(solution, extended=False)
        elsewhere = [victim for victim in solution.victims if victim[4].node is not node]
        offered = here + self._reserve(solution)
        start = len(here) - 1
        index = self._predicate(self._ask, node, _allocations_of(offered), start)
        if index is None:
            return None
        if index <= start:
            return Approved(solution, extended=False)
        kept = self._drop_again(solution, offered[: index + 1], elsewhere)
        victims = tuple(sorted(kept + elsewhere, key=full_order))
        key = solution_key(victims, node.node_id)
        return Approved(Solution(key, node, victims), extended=True)

    def _reserve(self, solution: Solution) -> list[Candidate]:
        """Returns the other candidates of the node that law 2 lets go, each on top of all before it."""
        # Before the rooms are copied, because the first member of a gang opens one.
        pool = self._candidates.on_node(solution.node)
        room = self._room.copy()
        for victim in solution.victims:
            for r, amount in victim[5].uses:
                room[r] -= amount
        reserve: list[Candidate] = []
        taken = {victim[3] for victim in solution.victims}
        for candidate in chain.from_iterable(pool):
            uses = candidate[5].uses
            if candidate[3] in taken or any(room[r] < amount for r, amount in uses):
                continue
            for r, amount in uses:
                room[r] -= amount
            reserve.append(candidate)
        return reserve

    def _drop_again(self, solution: Solution, chosen: list[Candidate], elsewhere: list[Candidate]) -> list[Candidate]:
        """Returns *chosen* less everyone, from the last on, without whom needs and predicate are content (K6)."""
        node = solution.node
        fits = node.has_room(self._ask.shape.pairs)
        needs = self._needs.base if fits else self._needs.needs_on(node)
        kept = chosen
        for victim in reversed(chosen):
            rest = [other for other in kept if other is not victim]
            if (
                rest
                and _is_covered(needs, rest + elsewhere)
                and self._predicate(self._ask, node, _allocations_of(rest), len(rest) - 1) is not None
            ):
                kept = rest
        return kept


def _allocations_of(victims: list[Candidate]) -> tuple[Allocation, ...]:
    return tuple(victim[4] for victim in victims)


def _is_covered(needs: list[int], victims: list[Candidate]) -> bool:
    left = needs.copy()
    for victim in victims:
        for i, amount in victim[5].gains:
            left[i] -= amount
    return max(left) <= 0
