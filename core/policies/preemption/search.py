"""The node: which of them can be freed at what price, and which is the best (preemption.md B.6).

Every node is judged by the key of its own solution. Nodes whose key cannot be better than the best one found, whatever
their solution turns out to be, are not solved at all; that bound takes most of the work away and never changes the
answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.policies.preemption.candidates import Candidates
from core.policies.preemption.needs import Needs, in_the_way
from core.policies.preemption.order import CLASSES, Candidate, SolutionKey, solution_key
from core.policies.preemption.solve import Pool, Solver
from core.policies.preemption.terms import Terms
from core.policies.view import PartitionView

MILDEST: Final = ((False, False), (False, True), (True, False), (True, True))
"""The best a solution can be, as (any opted out, any originator), that needs the class of the same index."""


class Solution(NamedTuple):
    """Victims, in B.5 order, that make room on a node; the smallest key is the best."""

    key: SolutionKey
    node: Node
    victims: tuple[Candidate, ...]


class _Site(NamedTuple):
    """A usable node that lacks room, and all that is needed if it is to be the one."""

    node: Node
    needs: list[int]
    least: int
    """No fewer victims than this can do."""


class Search:
    """One attempt's look at the nodes."""

    def __init__(
        self, view: PartitionView, ask: Allocation, needs: Needs, terms: Terms, candidates: Candidates, now_ns: int
    ) -> None:
        self._view = view
        self._ask = ask
        self._needs = needs
        self._by_class = candidates.by_class
        self._solver = Solver(terms.room)
        self._now_ns = now_ns
        self._most = terms.most()
        self._largest = [0] * len(needs.types)
        """By need, the most one candidate can contribute."""
        for gains in terms.gains.values():
            for i, amount in gains:
                self._largest[i] = max(self._largest[i], amount)
        self._sites: dict[Node, _Site | None] = {}
        self.verdicts: Counter[str] = Counter()
        """How many of the nodes looked at were turned down for what."""

    def best(self) -> Solution | None:
        """The solution with the smallest key of all nodes."""
        best = self._best_with_room()
        solved: set[Node] = set()
        for level in CLASSES:
            if best is not None and best.key[:2] < MILDEST[level]:
                break
            for bound, site in self._order(level, solved):
                if best is not None and bound > best.key[:5]:
                    break
                victims = self._solver.solve(site.needs, self._pool(site.node, level))
                if victims is None:
                    continue
                solved.add(site.node)
                key = solution_key(victims, site.node.node_id)
                if best is None or key < best.key:
                    best = Solution(key, site.node, tuple(victims))
        return best

    def all(self) -> list[Solution]:
        """The solution of every node, best first: for when a predicate has the last word."""
        found = self._all_with_room()
        solved: set[Node] = set()
        for level in CLASSES:
            for _, site in self._order(level, solved):
                victims = self._solver.solve(site.needs, self._pool(site.node, level))
                if victims is not None:
                    solved.add(site.node)
                    found.append(Solution(solution_key(victims, site.node.node_id), site.node, tuple(victims)))
        return sorted(found, key=lambda solution: solution.key)

    def on_node(self, node: Node) -> list[Candidate]:
        """All candidates on *node*, in B.5 order."""
        return [candidate for buckets in self._by_class for candidate in sorted(buckets.get(node, ()))]

    def cancelled(self, node: Node) -> tuple[Reservation, ...]:
        """The reservations that give way if *node*, which is usable, is the one."""
        return in_the_way(node, self._ask, self._now_ns) or ()

    def _pool(self, node: Node, level: int) -> Pool:
        return [buckets.get(node, []) for buckets in self._by_class[: level + 1]]

    def _order(self, level: int, solved: set[Node]) -> Iterator[tuple[tuple[bool, bool, int, int, int], _Site]]:
        """Nodes to be solved with the classes up to *level*, each with a bound no key of its solution is below.

        A node without candidates of the class *level* was judged with the milder ones already.
        """
        opted_out, originator = MILDEST[level]
        bounds: list[tuple[int, int, int, str, _Site]] = []
        for node in self._by_class[level]:
            site = self._site(node)
            if site is None or node in solved:
                continue
            # With the lowest of all priorities come only victims of that priority, the youngest of them at best.
            first = min(min(buckets[node]) for buckets in self._by_class[: level + 1] if node in buckets)
            bounds.append((site.least, first[0], first[1], node.node_id, site))
        bounds.sort()
        for least, priority, created, _, site in bounds:
            yield (opted_out, originator, least, priority, created), site

    def _site(self, node: Node) -> _Site | None:
        if node in self._sites:
            return self._sites[node]
        site = self._sites[node] = self._new_site(node)
        return site

    def _new_site(self, node: Node) -> _Site | None:
        if in_the_way(node, self._ask, self._now_ns) is None:
            self.verdicts[self._unusable(node)] += 1
            return None
        if node.fits(self._ask.shape.pairs):
            self.verdicts["has room"] += 1
            return None
        needs = self._needs.on(node)
        least = 1
        for i, amount in enumerate(needs):
            if amount > 0:
                if amount > self._most[i] or not self._largest[i]:
                    self.verdicts["need left"] += 1
                    return None
                least = max(least, -(-amount // self._largest[i]))
        return _Site(node, needs, least)

    def _unusable(self, node: Node) -> str:
        if not node.schedulable:
            return "not schedulable"
        return "reserved" if node.could_hold(self._ask.shape.pairs) else "too small"

    def _roomy(self) -> list[Node]:
        """Usable nodes that hold the ask as they are, by ID; only the queues stand in the way there."""
        if not self._needs.anywhere():
            return []
        pairs = self._ask.shape.pairs
        roomy = [node for node in self._view.nodes.values() if node.fits(pairs)]
        return sorted(
            (node for node in roomy if in_the_way(node, self._ask, self._now_ns) is not None),
            key=lambda node: node.node_id,
        )

    def _victims_anywhere(self) -> list[Candidate] | None:
        """Victims from wherever they run, for a node that has room: the same for all such nodes."""
        if any(amount > most for amount, most in zip(self._needs.base, self._most, strict=True)):
            return None
        pool: list[list[Candidate]] = []
        for buckets in self._by_class:
            pool.append([candidate for bucket in buckets.values() for candidate in bucket])
            if buckets:
                victims = self._solver.solve(self._needs.base, pool)
                if victims is not None:
                    return victims
        return None

    def _best_with_room(self) -> Solution | None:
        solutions = self._all_with_room()
        return solutions[0] if solutions else None

    def _all_with_room(self) -> list[Solution]:
        roomy = self._roomy()
        victims = self._victims_anywhere() if roomy else None
        if victims is None:
            return []
        return [Solution(solution_key(victims, node.node_id), node, tuple(victims)) for node in roomy]
