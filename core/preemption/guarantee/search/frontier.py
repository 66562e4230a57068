"""Yields the solutions on all nodes, the best first, and looks at as few nodes as their bounds allow (preemption.md
B.6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Final, NamedTuple

from kornel.core.model.nodes import Node
from kornel.core.preemption.guarantee.rules.candidates import Candidates, Solution, SolutionKey
from kornel.core.preemption.guarantee.search.prospects import Prospects
from kornel.core.preemption.walk import Candidate, Effects, are_met, walk_again, walk_over
from kornel.core.state.records.victim_index import CLASSES, MILDEST

_LOWEST: Final = -(2**80)
"""A key below every priority and every age."""

Lack = Callable[[Node], list[int] | None]
"""A function that returns the needs on a node; ``None``: the node cannot be used."""


class _Impasse(NamedTuple):
    """A node on which the laws do not allow the first candidates together, so that the walk over the classes up to
    *level* has to begin again."""

    node: Node
    needs: list[int]
    pool: list[list[Candidate]]
    level: int


class Frontier:
    """The walk of one attempt over the nodes, the most promising first.

    A node is looked at when its bound is the smallest of all that remain, and a walk that has to begin again is put off
    until nothing else can be better. So each solution that is yielded is the best of all that remain.
    """

    def __init__(
        self, candidates: Candidates, solver: Solver, lack: Lack, prospects: Prospects, apart: Collection[Node]
    ) -> None:
        """Begins with no node looked at. *apart*: the nodes to which the bounds, computed for other asks, do not
        apply."""
        self._apart = apart
        self._candidates = candidates
        self._solver = solver
        self._lack = lack
        self._prospects = prospects
        self._ahead: list[tuple[SolutionKey, int, Solution | _Impasse]] = []
        self._next: tuple[SolutionKey, Node] | None = None
        self._number = 0
        self.found = 0
        """The number of nodes looked at on which victims can make enough room."""
        self.looked = 0

    def in_order(self, known: Iterable[Solution]) -> Iterator[Solution]:
        """Yields all solutions, those already *known* among them, in the order of their keys."""
        for solution in known:
            self._push(solution.key, solution)
        for node in self._apart:
            self._look_at(node, (False, False, 0, _LOWEST, _LOWEST, _LOWEST, node.node_id))
        shared = set(self._candidates.open_leaves.values())
        deepest = max((terms.branch.common.depth for terms in shared), default=0)
        for cost, age, node in self._prospects.in_order():
            if node in self._apart:
                continue
            self._next = ((*cost, age, -deepest, node.node_id), node)
            yield from self._better_than(self._next[0])
            self._look_at_next()
        yield from self._better_than(None)

    def second_best(self) -> Solution | None:
        """Returns the best of the solutions known by now and not yielded yet; if there is none, looks at one more node
        first."""
        if not self._ahead:
            self._look_at_next()
        solutions = [what for _, _, what in self._ahead if isinstance(what, Solution)]
        return min(solutions, key=lambda solution: solution.key, default=None)

    def _better_than(self, floor: SolutionKey | None) -> Iterator[Solution]:
        ahead = self._ahead
        while ahead and (floor is None or ahead[0][0] <= floor):
            key, _, first = heappop(ahead)
            if isinstance(first, Solution):
                yield first
                continue
            victims = self._solver.begin_again(first.needs, first.pool[: first.level + 1])
            if victims is None:
                self._try_pools(first._replace(level=first.level + 1), key)
            else:
                self._note_freed(first.node, victims)

    def _look_at_next(self) -> None:
        if self._next is not None:
            (floor, node), self._next = self._next, None
            self._look_at(node, floor)

    def _look_at(self, node: Node, floor: SolutionKey) -> None:
        self.looked += 1
        needs = self._lack(node)
        if needs is None:
            return
        pool = self._candidates.on_node(node)
        if not are_met(needs, chain.from_iterable(pool)):
            self._prospects.doubt_node(node)
            return
        self._try_pools(_Impasse(node, needs, pool, 0), floor)

    def _try_pools(self, at: _Impasse, floor: SolutionKey) -> None:
        """Tries the classes from the level of *at* on with the first candidates in order; if another walk might find a
        solution, puts that off."""
        for level in range(at.level, len(CLASSES)):
            if not at.pool[level]:
                continue
            pool = at.pool[: level + 1]
            victims = self._solver.first_come(at.needs, pool)
            if victims is not None:
                solution = self._note_freed(at.node, victims)
                # Who is protected yet may be a better victim later.
                lasts = at.node not in self._apart and not self._candidates.ends_ns
                if lasts and not any(candidate[5].uses for part in pool for candidate in part):
                    self._prospects.note_solution(at.node, solution.key)
                return
            if are_met(at.needs, chain.from_iterable(pool)):
                key = max(floor, (*MILDEST[level], 1, _LOWEST, _LOWEST, _LOWEST, at.node.node_id))
                self._push(key, at._replace(level=level))
                return

    def _note_freed(self, node: Node, victims: list[Candidate]) -> Solution:
        self.found += 1
        solution = Solution.of(node, victims)
        self._push(solution.key, solution)
        return solution

    def _push(self, key: SolutionKey, what: Solution | _Impasse) -> None:
        self._number += 1
        heappush(self._ahead, (key, self._number, what))


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

    def solve_mildest(
        self, needs: list[int], pool: Pool, levels: Iterable[int] | None = None
    ) -> list[Candidate] | None:
        """Returns the victims of the first class of *levels* up to which there are some; ``None``: there are none."""
        for level in range(len(pool)) if levels is None else levels:
            victims = self.solve(needs, pool[: level + 1]) if pool[level] else None
            if victims is not None:
                return victims
        return None

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
