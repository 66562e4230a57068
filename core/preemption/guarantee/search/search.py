"""Searches the node: on which nodes victims can make room at which price, and which is the best (preemption.md B.6).

Every node is judged by the key of its own solution. If a partition keeps :mod:`.prospects` of its nodes, the most
promising ones are looked at first (:mod:`.frontier`); otherwise all candidates are walked over once. Both ways find the
same solution.

The walk is for forecasts, other prices and plans that spare victims, for which no prospects are kept and would have to
be computed first. With 50,000 victims on 5,000 nodes, that takes 149 ms and the walk 71 ms, while a search with kept
prospects takes 1.3 ms. If the laws allow no victim, the walk takes 21 ms and the prospects 160 ms.

The walk looks at candidates in the order in which victims are taken, and adds each to its node. From the moment that a
node has enough candidates, all other nodes would need a victim at least as important and as old as the present
candidate. Once that is worse than the best solution, and no node can do with fewer victims, the search ends. This bound
saves most of the work and never changes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.rules.candidates import Candidates, Ranking, Solution
from kornel.core.preemption.guarantee.rules.needs import Needs, can_take_claim
from kornel.core.preemption.guarantee.search.device_predicate import MOST_NODES, measure_missing
from kornel.core.preemption.guarantee.search.frontier import Frontier, Solver
from kornel.core.preemption.guarantee.search.gang_victims import GangSearch
from kornel.core.preemption.guarantee.search.prospects import Prospects
from kornel.core.preemption.walk import Candidate
from kornel.core.state.records.victim_index import CLASSES, MILDEST
from kornel.shared.readable_amounts import format_count

FEW_LEAVES: Final = 32
"""The number of leaves that are asked first whether they can give up enough together."""

_NOBODY: Final[list[list[Candidate]]] = []


class _Site:
    """A usable node that lacks room, with the needs there and the candidates seen so far."""

    __slots__ = ("least", "left", "needs", "node", "pool", "solved")

    def __init__(self, node: Node, needs: list[int], least: int) -> None:
        self.node: Final = node
        self.needs: Final = needs
        self.least = least
        """A lower bound of the number of victims."""
        self.left = needs
        """The needs that would be left if all candidates seen so far left."""
        self.pool: list[list[Candidate]] = _NOBODY
        self.solved = False

    def add(self, level: int, candidate: Candidate) -> bool:
        """Adds *candidate*. Returns whether the candidates seen so far would be enough if the laws allowed all of
        them."""
        if self.pool is _NOBODY:
            # The lists are made only now, because most sites never get a candidate.
            self.pool = [[] for _ in CLASSES]
            self.left = self.needs.copy()
        self.pool[level].append(candidate)
        left = self.left
        for i, amount in candidate[5].gains:
            left[i] -= amount
        return max(left) <= 0


class Search:
    """The search of one attempt over the nodes."""

    def __init__(
        self,
        view: PartitionView,
        ask: Allocation,
        needs: Needs,
        terms: Terms,
        candidates: Candidates,
        by_class: Sequence[Ranking],
        prospects: Prospects | None,
    ) -> None:
        self._view = view
        self._ask = ask
        self._needs = needs
        self._candidates = candidates
        self._by_class = by_class
        self._solver = Solver(terms.room, needs.owed)
        self._prospects = prospects
        self._terms = terms
        self._most: dict[int | None, list[int]] = {}
        """By number of leaves, an upper bound of what they can give up together by need; ``None``: all leaves."""
        self._gains: list[Pairs] = []
        self._largest: list[int] | None = None
        self._sites: dict[Node, _Site | None] = {}
        self.verdicts: Counter[str] = Counter()
        """The number of nodes that cannot be used, by reason."""
        self._solutions = 0
        self._second: Solution | None = None
        self._looked = 0
        self._gangs_left = self._nodes_left = False
        self._allows: Callable[[Node], bool] | None = None
        self._open_too = False
        self._among: Sequence[Node] | None = None

    def keep_to(
        self, allows: Callable[[Node], bool], among: Sequence[Node] | None = None, *, open_too: bool = False
    ) -> None:
        """Restricts the search to nodes that *allows* accepts and that are *among* the given ones, if there are any.

        With *open_too*, nodes on which the ask finds room now count as well.
        """
        self._allows, self._among, self._open_too = allows, among, open_too

    @property
    def _nodes(self) -> Iterable[Node]:
        return self._view.nodes.values() if self._among is None else self._among

    def find_best(self) -> Solution | None:
        """Returns the solution with the smallest key of all nodes."""
        if self._prospects is not None:
            return next(self._in_order(self._prospects), None)
        if self._among is not None:
            # They are few, and a walk over all candidates would meet many others first.
            return self._best_among(self._among)
        best: Solution | None = None
        for solution in self._with_room(self._view.nodes.values()):
            best = self._choose_better(best, solution)
        for level in CLASSES:
            if best is not None and best.key[:2] < MILDEST[level]:
                break
            best = self._best_of(level, best)
        return best

    def _best_among(self, nodes: Sequence[Node]) -> Solution | None:
        """Returns the solution with the smallest key on *nodes*, without examining candidates on other nodes."""
        best: Solution | None = None
        for solution in self._with_room(nodes):
            best = self._choose_better(best, solution)
        for node in nodes:
            needs = self._find_lack(node)
            if needs is None:
                continue
            self._looked += 1
            pool = self._candidates.on_node(node)
            for level in CLASSES:
                if best is not None and best.key[:2] < MILDEST[level]:
                    break
                victims = self._solver.solve(needs, pool[: level + 1]) if pool[level] else None
                if victims is not None:
                    best = self._choose_better(best, Solution.of(node, victims))
                    break
        return best

    def list_with_gangs(self, levels: Sequence[int]) -> list[Solution]:
        """Returns solutions with victims of the classes *levels* that take a whole gang, the best first, for the case
        that these classes give no other."""
        gangs = GangSearch(self._candidates, self._terms, self._solver, self._find_lack, levels, self._among)
        found = gangs.list_solutions()
        self._gangs_left = gangs.cut_short
        if found:
            self._solutions, self._second = len(found), found[1] if len(found) > 1 else None
        return found

    def list_solutions(self) -> Iterable[Solution]:
        """Returns the solution of every node, the best first, for the case that a predicate decides."""
        if self._prospects is not None:
            return self._in_order(self._prospects)
        found = self._with_room(self._nodes)
        for node in self._nodes:
            site = self._make_site(node)
            if site is None:
                continue
            pool = self._candidates.on_node(node)
            for level in CLASSES:
                victims = self._solver.solve(site.needs, pool[: level + 1]) if pool[level] else None
                if victims is not None:
                    found.append(Solution.of(node, victims))
                    break
        found.sort(key=lambda solution: solution.key)
        self._solutions = len(found)
        self._second = found[1] if len(found) > 1 else None
        return found

    def _in_order(self, prospects: Prospects) -> Iterator[Solution]:
        """Yields the solution of every node, the best first, computed only as far as the caller reads."""
        own = self._ask.reservation.node if self._ask.reservation is not None else None
        if self._among is not None and own not in self._among:
            own = None
        frontier = Frontier(self._candidates, self._solver, self._find_lack, prospects, own)
        roomy = prospects.roomy if own is None else {**prospects.roomy, own: None}
        for solution in frontier.in_order(self._with_room(roomy)):
            self._second = frontier.second_best()
            self._solutions, self._looked = frontier.found, frontier.looked
            yield solution
        self._looked = frontier.looked
        if self._among is None:
            self.verdicts += prospects.count_verdicts()
            return
        # These are few, so each gets the verdict of a walk, which is more exact than that of its bound.
        self.verdicts.clear()
        for node in self._among:
            self._find_lack(node)

    @property
    def cut_short(self) -> bool:
        """Tells whether there were more gangs or nodes than were looked at."""
        return self._gangs_left or self._nodes_left

    def describe_weighed(self) -> str:
        """Returns, as a text, how many nodes were looked at, and what the next best of them would have cost.

        The search ends as soon as no node can beat the best, so there may be better ones than the next best that it did
        not look at.
        """
        second = self._second
        next_best = ""
        if second is not None:
            next_best = f", next best {second.node.node_id} with {format_count(len(second.victims), 'victim')}"
        looked = self._looked or len(self._sites) or self._solutions
        nodes = format_count(len(self._view.nodes), "node")
        return f"{looked} of {nodes} looked at, {self._solutions} could be freed{next_best}"

    def _best_of(self, level: int, best: Solution | None) -> Solution | None:
        """Returns the better of *best* and the best solution with the classes up to *level* on nodes where milder
        classes do not make enough room."""
        blocked: dict[Node, _Site] = {}
        """The nodes with enough candidates so far, of which law 2 does not allow the first ones together."""
        fewer_than = 0
        """Once set, only the *hopeful* nodes count, which may need fewer victims than this."""
        hopeful: set[Node] = set()
        for candidate in self._by_class[level]:
            if best is not None and best.key[:2] == MILDEST[level] and candidate[:2] > best.key[3:5]:
                # A solution that includes this victim and has as many victims as the best would be worse.
                if fewer_than != best.key[2]:
                    fewer_than = best.key[2]
                    hopeful = self._hopeful_nodes(fewer_than)
                if not hopeful:
                    break
            node = candidate[4].node
            site = None if node is None or (fewer_than and node not in hopeful) else self._make_site(node)
            if site is None or site.solved or not site.add(level, candidate):
                continue
            victims = self._solver.first_come(site.needs, site.pool[: level + 1])
            if victims is None:
                blocked[site.node] = site
            else:
                # Candidates come in order, so later ones can only make the solution of this node worse.
                site.solved = True
                blocked.pop(site.node, None)
                best = self._choose_better(best, Solution.of(site.node, victims))
        return self._best_of_blocked(level, best, blocked.values())

    def _choose_better(self, best: Solution | None, other: Solution) -> Solution:
        self._solutions += 1
        if best is None:
            return other
        winner, loser = (other, best) if other.key < best.key else (best, other)
        if self._second is None or loser.key < self._second.key:
            self._second = loser
        return winner

    def _hopeful_nodes(self, fewer_than: int) -> set[Node]:
        """Returns the nodes without a solution yet that may need fewer victims than *fewer_than*."""
        if fewer_than == 1:
            return set()
        sites = (self._make_site(node) for node in self._view.nodes.values())
        return {
            site.node
            for site in sites
            if site is not None and not site.solved and self._least_victims(site) < fewer_than
        }

    def _least_victims(self, site: _Site) -> int:
        """Returns a lower bound of the number of victims, sharper than the first one, which looked at each need by
        itself."""
        if site.least == 1 and not any(_can_cover(gains, site.needs) for gains in self._gains):
            site.least = 2
        return site.least

    def _best_of_blocked(self, level: int, best: Solution | None, blocked: Iterable[_Site]) -> Solution | None:
        """Returns the better of *best* and what walks that begin again find on the *blocked*
        nodes."""
        for site in sorted(blocked, key=lambda site: (site.least, site.node.node_id)):
            if best is not None and (*MILDEST[level], site.least) > best.key[:3]:
                continue
            victims = self._solver.solve(site.needs, self._candidates.on_node(site.node, level))
            if victims is not None:
                site.solved = True
                best = self._choose_better(best, Solution.of(site.node, victims))
        return best

    def _make_site(self, node: Node) -> _Site | None:
        try:
            return self._sites[node]
        except KeyError:
            site = self._sites[node] = self._new_site(node)
            return site

    def _new_site(self, node: Node) -> _Site | None:
        needs = self._find_lack(node)
        if needs is None:
            return None
        least = 1
        largest = self._largest_gains()
        for i, amount in enumerate(needs):
            if amount > 0:
                if not largest[i]:
                    self.verdicts["need left"] += 1
                    return None
                least = max(least, -(-amount // largest[i]))
        return _Site(node, needs, least)

    def _find_lack(self, node: Node) -> list[int] | None:
        """Returns the needs on *node*. If it cannot be used, has room, or cannot get enough from victims, returns
        ``None`` and counts that."""
        if not can_take_claim(node, self._ask):
            self.verdicts[self._why_unusable(node)] += 1
            return None
        if self._allows is not None and not self._allows(node):
            self.verdicts["ruled out"] += 1
            return None
        if self._needs.met_on(node):
            self.verdicts["has room"] += 1
            return None
        needs = self._needs.needs_on(node)
        if not self._may_give(needs):
            self.verdicts["need left"] += 1
            return None
        return needs

    def _may_give(self, needs: Sequence[int]) -> bool:
        """Tells whether all leaves together may be able to give up *needs*. A few of them usually are, and there may be
        thousands."""
        for leaves in (FEW_LEAVES, None):
            if leaves not in self._most:
                self._most[leaves] = self._terms.most_by_need(leaves)
            if all(amount <= most for amount, most in zip(needs, self._most[leaves], strict=True)):
                return True
        return False

    def _largest_gains(self) -> list[int]:
        """Returns, by need, the most one candidate can contribute."""
        if self._largest is None:
            self._gains = [
                gains for shape in self._candidates.possible_shapes() if (gains := self._terms.gains_of(shape))
            ]
            self._largest = [0] * len(self._needs.types)
            for gains in self._gains:
                for i, amount in gains:
                    self._largest[i] = max(self._largest[i], amount)
        return self._largest

    def _why_unusable(self, node: Node) -> str:
        if not node.schedulable:
            return "not schedulable"
        if node.node_id in self._ask.stuck.values():
            return "victims stuck"
        if node.node_id in (self._ask.refused or ()):
            return "refused by the shim"
        return "claimed" if node.could_hold(self._ask.shape.pairs) else "too small"

    def _with_room(self, nodes: Iterable[Node]) -> list[Solution]:
        """Returns the solutions on those of *nodes* that have room for the ask, or will have it once present victims
        have left.

        If only queues lack room, victims may be on any node, so they are the same for all of these nodes. If nothing
        lacks room, the ask claims room that is about to become free, without victims.
        """
        if self._allows is not None:
            nodes = filter(self._allows, nodes)
        roomy = [node for node in nodes if self._needs.met_on(node) and can_take_claim(node, self._ask)]
        if self._needs.needs_victims_everywhere():
            victims = self._victims_anywhere() if roomy else None
            if victims is None:
                return []
        else:
            victims = []
            roomy = [node for node in roomy if self._open_too or not self._fits_now(node)]
        if self._ask.shape.devices is not None and len(roomy) > MOST_NODES:
            # On each of them, victims are looked for because of devices.
            roomy = sorted(roomy, key=lambda node: (measure_missing(node, self._ask), node.node_id))[:MOST_NODES]
            self._nodes_left = True
        return sorted((Solution.of(node, victims) for node in roomy), key=lambda solution: solution.key)

    def _fits_now(self, node: Node) -> bool:
        """Tells whether normal placement would find room on *node*, so that something else has kept the ask from it."""
        return node.fits_ask(self._ask)

    def _victims_anywhere(self) -> list[Candidate] | None:
        if not self._may_give(self._needs.base):
            return None
        for level in CLASSES:
            victims = self._solver.solve(self._needs.base, self._by_class[: level + 1])
            if victims is not None:
                return victims
        return None


def _can_cover(gains: Iterable[tuple[int, int]], needs: list[int]) -> bool:
    """Tells whether one victim with these *gains* meets all *needs*."""
    amounts = dict(gains)
    return all(amounts.get(i, 0) >= amount for i, amount in enumerate(needs))
