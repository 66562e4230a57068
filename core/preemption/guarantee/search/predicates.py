"""Applies the shim's predicates to solutions: some nodes drop out, and some need further victims (preemption.md B.6,
K6)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.rules.candidates import Candidates, Solution
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.guarantee.search.device_predicate import DevicePredicate, list_orders
from kornel.core.preemption.plan import AnswerPending, PreemptionPredicate
from kornel.core.preemption.walk import Candidate, are_met, take_everybody

BATCH: Final = 10
"""The number of nodes that the shim is asked about at once."""


class Approved(NamedTuple):
    """A solution that the predicate allowed; ``extended`` tells whether it has other victims than the resources
    require."""

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
        """The number of solutions that the predicate was asked about."""

    def first_approved(self, solutions: Iterable[Solution]) -> Approved | None:
        """Returns the best approved solution; *solutions* come best first.

        Further victims worsen the key of a solution, so other solutions are tried as long as one of them may be better.
        Raises :class:`AnswerPending` if answers about up to ten nodes are still to come.
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
        predicate = self._predicate
        leaving = _allocations_of(here)
        if isinstance(predicate, DevicePredicate) and not predicate.has_devices(self._ask, node, leaving):
            return self._extend_for_devices(solution, here, predicate)
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
        return Approved(Solution.in_order(node, kept + elsewhere), extended=True)

    def _extend_for_devices(
        self, solution: Solution, here: list[Candidate], predicate: DevicePredicate
    ) -> Approved | None:
        """Returns the best of several solutions in which further or other victims free the devices of the ask on the
        node of *solution*, or ``None`` if there is none or the shim does not agree."""
        node = solution.node
        elsewhere = [victim for victim in solution.victims if victim[4].node is not node]
        offered = here + self._reserve(solution)
        needs = self._needs_at(node)
        best: Solution | None = None
        for order, least in list_orders(self._ask, predicate.devices_on(node), offered):
            kept = self._first_enough(node, needs, order, least, elsewhere, predicate)
            if kept is not None:
                found = Solution.in_order(node, kept + elsewhere)
                best = found if best is None or found.key < best.key else best
        if best is None:
            return None
        chosen = [victim for victim in best.victims if victim[4].node is node]
        others = [victim for victim in offered if victim not in chosen]
        index = predicate(self._ask, node, _allocations_of(chosen + others), len(chosen) - 1)
        if index is None:
            return None
        more = others[: index + 1 - len(chosen)]
        if more:
            best = Solution.in_order(node, [*best.victims, *more])
        return Approved(best, extended=True)

    def _first_enough(
        self,
        node: Node,
        needs: list[int],
        order: list[Candidate],
        least: int,
        elsewhere: list[Candidate],
        predicate: DevicePredicate,
    ) -> list[Candidate] | None:
        """Returns the first victims in *order*, at least *least* of them, that cover *needs* and free the devices of
        the ask, or ``None`` if all together are not enough. Victims that are needed for neither are dropped, tried from
        the last one on."""

        def is_enough(some: list[Candidate]) -> bool:
            covered = are_met(needs, some + elsewhere) if needs else True
            return covered and predicate.has_devices(self._ask, node, _allocations_of(some))

        counts = range(max(1, least), len(order) + 1)
        # A larger number of victims never frees less, so the smallest sufficient number is found by bisection.
        at = bisect_left(counts, True, key=lambda count: is_enough(order[:count]))
        if at == len(counts):
            return None
        kept = order[: counts[at]]
        for victim in reversed(kept):
            rest = [other for other in kept if other is not victim]
            if rest and is_enough(rest):
                kept = rest
        return kept

    def _needs_at(self, node: Node) -> list[int]:
        fits = node.has_room(self._ask.shape.pairs)
        return self._needs.base if fits else self._needs.needs_on(node)

    def _reserve(self, solution: Solution) -> list[Candidate]:
        """Returns the other candidates on the node that law 2 allows, each together with all before it."""
        # This comes before the rooms are copied, because the first member of a gang adds a room.
        pool = self._candidates.on_node(solution.node)
        room = self._room.copy()
        taken = set()
        for victim in solution.victims:
            taken.add(victim[3])
            for r, amount in victim[5].uses:
                room[r] -= amount
        others = (candidate for candidate in chain.from_iterable(pool) if candidate[3] not in taken)
        return take_everybody(self._needs.base, room, others).taken

    def _drop_again(self, solution: Solution, chosen: list[Candidate], elsewhere: list[Candidate]) -> list[Candidate]:
        """Returns *chosen* without the victims that neither the needs nor the predicate require, tried from the last
        one on (preemption.md K6)."""
        node = solution.node
        needs = self._needs_at(node)
        kept = chosen
        for victim in reversed(chosen):
            rest = [other for other in kept if other is not victim]
            if (
                rest
                and are_met(needs, rest + elsewhere)
                and self._predicate(self._ask, node, _allocations_of(rest), len(rest) - 1) is not None
            ):
                kept = rest
        return kept


def _allocations_of(victims: list[Candidate]) -> tuple[Allocation, ...]:
    return tuple(victim[4] for victim in victims)
