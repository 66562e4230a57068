"""Keeps a lower bound of the cost of each node from one attempt to the next, so that an attempt only looks at the best
few nodes.

Most asks are equal to many others, and little changes between two attempts. So the nodes are kept in the order of a
lower bound of the key of their solution. The bound depends on the node and on the victims that the laws allow one by
one, but not on how many of them may leave together, which is only determined for the nodes that are looked at. Changes
are found by comparing records, not by notifications, which code might forget to send: a node counts its changes, and
the rules for a leaf are compared with the former ones.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.guarantee.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.needs import Needs
from kornel.core.preemption.priorities import Adjustment
from kornel.core.preemption.victim_index import CLASSES, IDLE_NS, MILDEST, age_of, reluctance_of

_PREEMPTED: Final = AskPlace.PREEMPTED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every allocation on a node
is tested."""

Bound = tuple[bool, bool, int, int, int, str]
"""A lower bound of the keys of all solutions on a node, without the depth: (any originator, any opted out, victims,
highest adjusted priority, -created of the oldest, node ID)."""

Question = tuple[Queue, Queue, int, Shape, frozenset[int]]
"""The fence, leaf, priority and shape of an ask, and its types for which a victim needs a guarantee of its own."""

MOST_QUESTIONS: Final = 8
NODES_AT_ONCE: Final = 100
"""The number of nodes that are looked at again in one step, which takes a millisecond or two."""

GLANCES: Final = 5
"""The number of nodes that can be judged by their sums in the time of one node whose victims have to be
distinguished."""

SINGLE: Final = 2
"""The effort for a node on which a single ordinary victim is enough, where a glance is 1."""

MISSES: Final = 3
"""The number of nodes in one step, beyond those on which a single victim is enough, after which the others are judged
the longer way at once."""

_CLASS: Final = 7
"""The bits of ``Allocation.standing`` that hold the class, below the priority."""

SORTED_BESIDES: Final = 1_000
"""With more nodes than this, sorting them for the first time is a separate step: 5,000 nodes take 3 ms."""
_BOUND_OF: Final = itemgetter(0)

_Victim = tuple[int, int, tuple[int, ...]]
"""A possible victim as (adjusted priority, -created, amount by asked type)."""


class JudgedLeaf:
    """The rules for a leaf at the last look; ``blocked``: the shapes that bounds leave out because a law protected
    them."""

    __slots__ = ("adjusted", "blocked", "declared", "highest")

    def __init__(self, terms: LeafTerms) -> None:
        self.declared: Final[frozenset[int]] = terms.declared
        self.adjusted: Final[Adjustment] = terms.adjusted
        self.highest: Final[int | None] = terms.highest
        self.blocked: dict[Shape, None] = {}

    def is_outdated(self, terms: LeafTerms, laws: Terms) -> bool:
        """Tells whether more may be taken from the leaf by now, or at another price, than the bounds assume."""
        if (terms.highest, terms.adjusted, terms.declared) != (self.highest, self.adjusted, self.declared):
            return True
        return any(not isinstance(laws.kind_of(terms, shape), str) for shape in self.blocked)


class Unprepared(Exception):
    """Raised if too much has changed to bring the bounds up to date in one step; the caller has to try again, as often
    as necessary."""


class KnownProspects:
    """The prospects of the latest questions in one partition."""

    def __init__(self) -> None:
        self._by_question: dict[Question, Prospects] = {}
        self.behind = False
        """Tells whether the last attempt could not be made because its prospects were not up to date."""

    def refreshed_for(
        self,
        ask: Allocation,
        fence: Queue,
        nodes: Mapping[str, Node],
        leaves: Iterable[LeafTerms],
        laws: Terms,
        needs: Needs,
    ) -> Prospects | None:
        """Returns the bounds of *nodes* for asks like *ask*, brought up to date. *leaves*: the leaves that the laws of
        this attempt do not protect as a whole.

        Returns ``None`` if bounds are neither kept nor to be computed. Raises :class:`Unprepared` if the update takes
        more than one step.
        """
        unowed = _unowed_types(needs)
        question = (fence, ask.queue, ask.priority, ask.shape, unowed)
        prospects = self._by_question.pop(question, None) or Prospects(ask.shape.pairs, unowed)
        self._by_question[question] = prospects
        if len(self._by_question) > MOST_QUESTIONS:
            del self._by_question[next(iter(self._by_question))]
        self.behind = not prospects.note_changes(nodes, leaves, laws, NODES_AT_ONCE)
        if self.behind:
            raise Unprepared
        return prospects

    def doubt_nodes(self, nodes: Iterable[Node]) -> None:
        """Makes the bounds of *nodes* be computed again, because they were computed while hypothetical changes were
        booked there."""
        for prospects in self._by_question.values():
            for node in nodes:
                prospects.forget_version(node)

    def keep_only(self, leaves: set[Queue]) -> None:
        """Drops the bounds for asks of all other queues; to be called now and then."""
        self._by_question = {question: known for question, known in self._by_question.items() if question[1] in leaves}


class NoProspects(KnownProspects):
    """Prospects that keep no bounds, so that each search walks over the candidates, as a forecast does."""

    def refreshed_for(self, *_: object) -> None:
        """Returns ``None``, because no bounds are kept."""


class Prospects:
    """The bounds of all nodes for asks of one size, priority, leaf and fence."""

    def __init__(self, demand: Pairs, unowed: frozenset[int]) -> None:
        self._demand = demand
        self._unowed = unowed
        self._versions: dict[Node, int] = {}
        self._stale: dict[Node, None] = {}
        self._leaves: dict[Queue, JudgedLeaf] = {}
        self._amounts: dict[Shape, tuple[int, ...]] = {}
        self._bounds: dict[Node, Bound] = {}
        self._sorted = False
        self.order: list[tuple[Bound, Node]] = []
        """The nodes where victims may make enough room, the most promising first."""
        self.roomy: dict[Node, None] = {}
        """The nodes that have room for the ask, or will have it once present victims have left."""
        self._hopeless: dict[Node, str] = {}
        """The nodes that cannot be used, each with the reason."""

    def note_changes(self, nodes: Mapping[str, Node], leaves: Iterable[LeafTerms], laws: Terms, most: int) -> bool:
        """Updates the bounds after changes, for *most* nodes at a time. Returns whether all are up to date.

        *leaves*: the leaves that the laws of this attempt do not protect as a whole.
        """
        # All nodes are compared with their former versions only when those that are known to have changed are done.
        compared = not self._stale
        if compared:
            self._note_nodes(nodes)
        terms_of = {terms.leaf: terms for terms in leaves}
        self._note_leaves(nodes, terms_of, laws)
        effort = self._judge_nodes(terms_of, laws, most * GLANCES)
        if not compared and not self._stale:
            self._note_nodes(nodes)
            effort = self._judge_nodes(terms_of, laws, effort)
        if self._stale:
            return False
        if not self._sorted:
            takes_long = len(self.order) > SORTED_BESIDES
            if effort < most * GLANCES and takes_long:
                return False
            self.order.sort(key=_BOUND_OF)
            self._sorted = True
            return not takes_long
        return True

    def _judge_nodes(self, terms_of: Mapping[Queue, LeafTerms], laws: Terms, effort: int) -> int:
        """Computes the bounds of stale nodes until *effort* is spent. Returns what is left of it."""
        batch: list[Node] = []
        misses = 0
        for node in self._stale:
            if effort <= 0:
                break
            batch.append(node)
            self._versions[node] = node.version
            short = self._find_short(node)
            bound: Bound | None = None
            if not short:
                effort -= 1
            elif misses < MISSES and (bound := self._find_single(node, short, terms_of, laws)) is not None:
                effort -= SINGLE
                misses -= misses > 0
            elif self._out_of_reach(node, short, terms_of):
                effort -= 1
                misses += 1
                self._hopeless[node] = "need left"
            else:
                effort -= GLANCES
                misses += 1
                bound = self._find_bound(node, short, terms_of, laws)
            self._replace_bound(node, bound)
        for node in batch:
            del self._stale[node]
        return effort

    def doubt_node(self, node: Node) -> None:
        """Makes the bound of *node*, whose solution was worse than the bound, be computed again before the next
        attempt."""
        self._stale[node] = None

    def forget_version(self, node: Node) -> None:
        """Makes *node* count as changed, whatever its version is."""
        if node in self._versions:
            self._versions[node] = -1

    def count_verdicts(self) -> Counter[str]:
        """Returns how many nodes cannot be used, by reason."""
        found = Counter(self._hopeless.values())
        found["has room"] += len(self.roomy)
        return found

    def _note_nodes(self, nodes: Mapping[str, Node]) -> None:
        versions, stale = self._versions, self._stale
        changed = [node for node in nodes.values() if versions.get(node) != node.version]
        for node in changed:
            stale[node] = None
            versions[node] = node.version
        if len(versions) > len(nodes):
            for node in [node for node in versions if nodes.get(node.node_id) is not node]:
                del versions[node]
                stale.pop(node, None)
                self._replace_bound(node, None)
                self._hopeless.pop(node, None)
                self.roomy.pop(node, None)

    def _note_leaves(self, nodes: Mapping[str, Node], terms_of: Mapping[Queue, LeafTerms], laws: Terms) -> None:
        known: dict[Queue, JudgedLeaf] = {}
        outdated: list[Queue] = []
        for leaf, terms in terms_of.items():
            before = self._leaves.get(leaf)
            if before is None or before.is_outdated(terms, laws):
                known[leaf] = JudgedLeaf(terms)
                outdated.append(leaf)
            else:
                known[leaf] = before
        self._leaves = known
        stale = self._stale
        applications = [application for leaf in outdated for application in leaf.applications.values()]
        if sum(len(application.allocations) for application in applications) > len(nodes):
            stale.update(dict.fromkeys(nodes.values()))
            return
        for application in applications:
            for allocation in application.allocations.values():
                if allocation.node is not None and allocation.node.node_id in nodes:
                    stale[allocation.node] = None

    def _replace_bound(self, node: Node, bound: Bound | None) -> None:
        before = self._bounds.get(node)
        if before == bound:
            return
        order = self.order
        if before is not None:
            if self._sorted:
                del order[bisect_left(order, before, key=lambda entry: entry[0])]
            else:
                order.remove((before, node))
            del self._bounds[node]
        if bound is not None:
            if self._sorted:
                insort(order, (bound, node))
            else:
                order.append((bound, node))
            self._bounds[node] = bound

    def _find_short(self, node: Node) -> list[tuple[int, int]]:
        """Returns what *node* is short of, as (place in the demand, amount). Returns an empty list if the verdict on
        the node is clear already, and notes that verdict."""
        self.roomy.pop(node, None)
        self._hopeless.pop(node, None)
        room = node.beside
        short = [(at, amount - room[t]) for at, (t, amount) in enumerate(self._demand) if amount > room[t]]
        if not short:
            self.roomy[node] = None
        elif not node.could_hold(self._demand):
            self._hopeless[node] = "too small"
        else:
            return short
        return []

    def _out_of_reach(self, node: Node, short: list[tuple[int, int]], terms_of: Mapping[Queue, LeafTerms]) -> bool:
        """Tells whether *node* would stay *short* even without all allocations of leaves that may give anything up.

        Some of these allocations may be protected, so the answer holds until the node changes or another leaf may give
        something up.
        """
        left = dict(short)
        for allocation in node.allocations.values():
            if allocation.application.queue not in terms_of:
                continue
            amounts = self._amounts_of(allocation.shape)
            for at, _ in short:
                left[at] -= amounts[at]
            if max(left.values()) <= 0:
                return False
        return True

    def _amounts_of(self, shape: Shape) -> tuple[int, ...]:
        amounts = self._amounts.get(shape)
        if amounts is None:
            by_type = dict(shape.pairs)
            amounts = self._amounts[shape] = tuple(by_type.get(t, 0) for t, _ in self._demand)
        return amounts

    def _find_single(
        self, node: Node, short: list[tuple[int, int]], terms_of: Mapping[Queue, LeafTerms], laws: Terms
    ) -> Bound | None:
        """Returns the bound of *node* if it has a victim of the first class that is enough alone, otherwise ``None``.

        The bound is that of :meth:`_find_bound`. The first attempt of its kind looks at all allocations of the cluster
        here, so nothing is called for each of them, and neighbours of one application and size are judged once.
        """
        sought = self._sought_types(short) if self._unowed else None
        application: Application | None = None
        shape: Shape | None = None
        usable = covers = enough = False
        highest: int | None = None
        fixed: int | None = None
        offset = 0
        lowest = 0
        first: int | None = None
        for allocation in node.allocations.values():
            if allocation.shape is not shape or allocation.application is not application:
                application, shape = allocation.application, allocation.shape
                terms = terms_of.get(application.queue)
                usable = terms is not None and (sought is None or not sought.isdisjoint(terms.declared))
                if terms is None or not usable:
                    continue
                if shape not in terms.kinds and isinstance(laws.kind_of(terms, shape), str):
                    self._leaves[terms.leaf].blocked[shape] = None
                    usable = False
                    continue
                highest, (fixed, offset) = terms.highest, terms.adjusted
                covers = False
                if not enough:
                    amounts = self._amounts_of(shape)
                    covers = all(amounts[at] >= amount for at, amount in short)
            if not usable:
                continue
            standing = allocation.standing
            if standing & _CLASS or allocation.place is _PREEMPTED:
                continue
            standing >>= 3
            if highest is not None and standing > highest:
                continue
            if covers:
                enough = True
            priority = (standing if fixed is None else fixed) + offset
            if first is not None and priority > lowest:
                continue
            age = -allocation.created_ns - IDLE_NS if allocation.spec.placeholder else -allocation.created_ns
            if first is None or priority < lowest or age < first:
                lowest, first = priority, age
        if first is None or not enough:
            return None
        return (*MILDEST[0], 1, lowest, first, node.node_id)

    def _find_bound(
        self, node: Node, short: list[tuple[int, int]], terms_of: Mapping[Queue, LeafTerms], laws: Terms
    ) -> Bound | None:
        by_class = self._victims_on(node, terms_of, laws, self._sought_types(short))
        pool: list[_Victim] = []
        for level in CLASSES:
            if not by_class[level]:
                continue
            pool += by_class[level]
            least = _fewest_victims(short, pool)
            if least:
                pool.sort()
                highest = pool[least - 1][0]
                oldest = sorted(victim[1] for victim in pool if victim[0] <= highest)[least - 1]
                return (*MILDEST[level], least, highest, oldest, node.node_id)
        self._hopeless[node] = "need left"
        return None

    def _sought_types(self, short: list[tuple[int, int]]) -> set[int] | None:
        """Returns the types that a node is *short* of if no guarantee covers any of them: then a victim must belong to
        a queue with a guarantee of one of them. Otherwise returns ``None``."""
        types = {self._demand[at][0] for at, _ in short}
        return types if self._unowed.issuperset(types) else None

    def _victims_on(
        self, node: Node, terms_of: Mapping[Queue, LeafTerms], laws: Terms, sought: set[int] | None
    ) -> list[list[_Victim]]:
        """Returns the possible victims on *node* by class. *sought*: the types of which a victim's queue needs a
        guarantee of one."""
        found: list[list[_Victim]] = [[] for _ in CLASSES]
        for allocation in node.allocations.values():
            spec, leaf = allocation.spec, allocation.application.queue
            terms = terms_of.get(leaf)
            if terms is None or spec.required_node or (terms.highest is not None and spec.priority > terms.highest):
                continue
            if allocation.place is _PREEMPTED:
                # It leaves for another ask. If it counted, every node with claims would look as promising as one
                # without.
                continue
            if sought is not None and sought.isdisjoint(terms.declared):
                continue
            shape = allocation.shape
            if shape not in terms.kinds and isinstance(laws.kind_of(terms, shape), str):
                self._leaves[leaf].blocked[shape] = None
                continue
            victim = (terms.adjusted.of(spec.priority), age_of(allocation), self._amounts_of(shape))
            found[reluctance_of(allocation)].append(victim)
        return found


def _unowed_types(needs: Needs) -> frozenset[int]:
    """Returns the asked types that no guarantee covers; none if victims for other needs may free them as well."""
    if needs.needs_victims_everywhere():
        return frozenset()
    return frozenset(t for t, owed in zip(needs.types, needs.owed, strict=True) if not owed)


def _fewest_victims(short: list[tuple[int, int]], pool: list[_Victim]) -> int:
    """Returns a lower bound of the number of victims of *pool* that cover what is *short*; 0: even all together do
    not."""
    fewest = 1
    for at, amount in short:
        needed, left = 0, amount
        for gain in sorted((victim[2][at] for victim in pool), reverse=True):
            needed += 1
            left -= gain
            if left <= 0:
                break
        else:
            return 0
        fewest = max(fewest, needed)
    if fewest > 1 or len(short) == 1 or any(all(victim[2][at] >= amount for at, amount in short) for victim in pool):
        return fewest
    return 2 if len(pool) > 1 else 0
