"""Keeps the bounds of all nodes for each question from one attempt to the next, so that an attempt only looks at the
best few nodes.

Most asks are equal to many others, and little changes between two attempts. So the nodes are kept in the order of a
lower bound of the key of their solution (:mod:`.node_bounds`), and only those that have changed are judged again. A
question that is new takes several steps, one in each slice. While it does, no other ask searches in that slice: the
first ask in order goes on until its question is answered, however many questions wait (preemption.md F).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.guarantee.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.needs import Needs
from kornel.core.preemption.guarantee.node_bounds import GLANCES, Bound, Cost, NodeJudge
from kornel.core.preemption.guarantee.watched_nodes import WatchedNodes
from kornel.core.preemption.priorities import Adjustment

Question = tuple[Queue, Queue, int, Shape, frozenset[int]]
"""The fence, leaf, priority and shape of an ask, and its types for which a victim needs a guarantee of its own."""

NODES_AT_ONCE: Final = 100
"""The number of nodes that are judged in one step, which takes a millisecond or two; a glance counts as a fifth."""

MOST_BYTES: Final = 64 << 20
"""About the most memory that the bounds in one partition take. The question that was asked least recently is forgotten
first, but one that is being worked on only after all others."""

_QUESTION_BYTES: Final = 1 << 10
_NODE_BYTES: Final = 64
"""The memory that one bound takes: three references, and the age, which is a number of its own."""
_LEAF_BYTES: Final = 160

_Rules = tuple[int | None, Adjustment, frozenset[int]]
"""The rules for a leaf at the last look: (highest priority that may go, adjustment of priorities, types declared)."""


class Unprepared(Exception):
    """Raised if too much has changed to bring the bounds up to date in one step; the caller has to try again, as often
    as necessary."""


class KnownProspects:
    """The prospects of the latest questions in one partition."""

    def __init__(self) -> None:
        self._by_question: dict[Question, Prospects] = {}
        """The question that was asked least recently comes first."""
        self._watched: WatchedNodes | None = None
        self._doubted = 0
        """The number of nodes that were doubted since the last attempt."""
        self.behind = False
        """Tells whether a question is being worked on in this slice, so that no other ask may search in it."""

    def begin_slice(self) -> None:
        """Lets asks search again."""
        self.behind = False

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
        watched = self._watch(nodes)
        prospects = self._by_question.pop(question, None)
        is_new = prospects is None
        if prospects is None:
            prospects = Prospects(ask.shape.pairs, unowed, watched)
        self._by_question[question] = prospects
        # What a gang has on paper changes with every step, so it must not use up what a step may judge.
        ready = prospects.refresh(leaves, laws, (NODES_AT_ONCE + self._doubted) * GLANCES)
        self._doubted = 0
        if is_new:
            self._forget_oldest(prospects)
        self.behind = not ready
        if self.behind:
            raise Unprepared
        return prospects

    def doubt_nodes(self, nodes: Collection[Node]) -> None:
        """Makes the bounds of *nodes* be computed again, because they were computed while hypothetical changes were
        booked there."""
        self._doubted = len(nodes)
        if self._watched is not None:
            self._watched.doubt(nodes)

    def keep_only(self, leaves: set[Queue]) -> None:
        """Drops the bounds for asks of all other queues; to be called now and then."""
        self._by_question = {question: known for question, known in self._by_question.items() if question[1] in leaves}
        if not self._by_question:
            self._watched = None

    def work_left(self) -> int:
        """Returns the number of judgements of nodes that the questions being worked on still need."""
        return sum(known.work_left for known in self._by_question.values())

    def _watch(self, nodes: Mapping[str, Node]) -> WatchedNodes:
        """Finds the *nodes* that have changed or gone since the last attempt."""
        if self._watched is None:
            self._watched = WatchedNodes()
        for slot in self._watched.compare(nodes):
            for prospects in self._by_question.values():
                prospects.drop_slot(slot)
        return self._watched

    def _forget_oldest(self, newest: Prospects) -> None:
        """Forgets questions until the rest does not take too much memory, but never *newest*."""
        held = sum(known.bytes_held for known in self._by_question.values())
        if held <= MOST_BYTES:
            return
        for question, known in sorted(self._by_question.items(), key=lambda item: item[1].work_left > 0):
            if held <= MOST_BYTES:
                return
            if known is not newest:
                del self._by_question[question]
                held -= known.bytes_held


class NoProspects(KnownProspects):
    """Prospects that keep no bounds, so that each search walks over the candidates, as a forecast does."""

    def refreshed_for(self, *_: object) -> None:
        """Returns ``None``, because no bounds are kept."""


class Band:
    """The nodes with bounds of one cost, by slot. They are sorted, by age and node ID, when they are first read."""

    __slots__ = ("cost", "is_sorted", "slots")

    def __init__(self, cost: Cost) -> None:
        self.cost: Final = cost
        self.slots: list[int] = []
        self.is_sorted = False


class Prospects:
    """The bounds of all nodes for asks of one size, priority, leaf and fence."""

    def __init__(self, demand: Pairs, unowed: frozenset[int], watched: WatchedNodes) -> None:
        self._demand = demand
        self._unowed = unowed
        self._watched = watched
        self._seen = 0
        """The number of the last look whose changes are noted."""
        self._stale: dict[int, None] = {}
        """The slots of the nodes that still have to be judged."""
        self._leaves: dict[Queue, _Rules] = {}
        self._blocked: dict[Queue, dict[Shape, None]] = {}
        """By leaf, the shapes that bounds leave out because a law protected them."""
        self._bands: dict[Cost, Band] = {}
        self._band_of: list[Band | None] = []
        """The band of each node by slot; ``None``: the node has room, or cannot be used."""
        self._ages: list[int] = []
        """The age of the oldest victim by slot."""
        self._roomy: dict[int, None] = {}

    @property
    def roomy(self) -> dict[Node, None]:
        """The nodes that have room for the ask, or will have it once present victims have left."""
        nodes = self._watched.nodes
        return {node: None for slot in self._roomy if (node := nodes[slot]) is not None}

    @property
    def work_left(self) -> int:
        """The number of nodes that still have to be judged."""
        return len(self._stale)

    @property
    def bytes_held(self) -> int:
        """About the memory that the bounds take."""
        return _QUESTION_BYTES + _NODE_BYTES * len(self._ages) + _LEAF_BYTES * len(self._leaves)

    def refresh(self, leaves: Iterable[LeafTerms], laws: Terms, effort: int) -> bool:
        """Updates the bounds after changes, for about *effort* glances at nodes. Returns whether all are up to date.

        *leaves*: the leaves that the laws of this attempt do not protect as a whole.
        """
        # Changes are only noted when all nodes that are known to have changed are done.
        if not self._stale:
            self._note_changes()
        terms_of = {terms.leaf: terms for terms in leaves}
        self._note_leaves(terms_of, laws)
        judge = NodeJudge(self._demand, self._unowed, terms_of, laws)
        self._judge_stale(judge, effort)
        if not self._stale:
            self._note_changes()
            self._judge_stale(judge, effort)
        for leaf, shapes in judge.blocked.items():
            self._blocked.setdefault(leaf, {}).update(shapes)
        return not self._stale

    def in_order(self) -> Iterator[tuple[Cost, int, Node]]:
        """Yields the nodes where victims may make enough room, the most promising first, each with its bound."""
        nodes, ages = self._watched.nodes, self._ages
        for cost in sorted(self._bands):
            band = self._bands[cost]
            if not band.is_sorted:
                band.slots.sort(key=self._node_id)
                band.slots.sort(key=ages.__getitem__)
                band.is_sorted = True
            for slot in band.slots:
                node = nodes[slot]
                assert node is not None, "nodes that have gone are dropped from all bands"
                yield cost, ages[slot], node

    def doubt_node(self, node: Node) -> None:
        """Makes the bound of *node*, whose solution was worse than the bound, be computed again before the next
        attempt."""
        self._stale[self._watched.slots[node]] = None

    def drop_slot(self, slot: int) -> None:
        """Forgets the node that had *slot* and has gone."""
        self._stale.pop(slot, None)
        self._roomy.pop(slot, None)
        if slot < len(self._band_of) and (band := self._band_of[slot]) is not None:
            self._band_of[slot] = None
            band.slots.remove(slot)

    def count_verdicts(self) -> Counter[str]:
        """Returns how many nodes cannot be used, by reason."""
        found = Counter({"has room": len(self._roomy)})
        for node, slot in self._watched.slots.items():
            if self._band_of[slot] is None and slot not in self._roomy:
                found["need left" if node.could_hold(self._demand) else "too small"] += 1
        return found

    def _note_changes(self) -> None:
        changed = list(self._watched.changed_since(self._seen))
        self._stale.update(dict.fromkeys(reversed(changed)))
        self._seen = self._watched.look

    def _note_leaves(self, terms_of: Mapping[Queue, LeafTerms], laws: Terms) -> None:
        """Finds the leaves of which more may be taken by now, or at another price, than the bounds assume; the nodes
        where they run something are judged again."""
        known: dict[Queue, _Rules] = {}
        outdated: list[Queue] = []
        for leaf, terms in terms_of.items():
            rules = (terms.highest, terms.adjusted, terms.declared)
            blocked = self._blocked.get(leaf, ())
            before = self._leaves.get(leaf)
            if before == rules and all(isinstance(laws.kind_of(terms, shape), str) for shape in blocked):
                known[leaf] = before
            else:
                known[leaf] = rules
                outdated.append(leaf)
                self._blocked.pop(leaf, None)
        for leaf in [leaf for leaf in self._blocked if leaf not in known]:
            del self._blocked[leaf]
        self._leaves = known
        slots = self._watched.slots
        applications = [application for leaf in outdated for application in leaf.applications.values()]
        if sum(len(application.allocations) for application in applications) > len(slots):
            self._stale.update(dict.fromkeys(slots.values()))
            return
        for application in applications:
            for allocation in application.allocations.values():
                if allocation.node is not None and (slot := slots.get(allocation.node)) is not None:
                    self._stale[slot] = None

    def _judge_stale(self, judge: NodeJudge, effort: int) -> None:
        """Judges nodes that have changed, until *judge* has spent *effort*."""
        missing = len(self._watched.nodes) - len(self._band_of)
        self._band_of.extend([None] * missing)
        self._ages.extend([0] * missing)
        done: list[int] = []
        for slot in self._stale:
            if judge.effort >= effort:
                break
            done.append(slot)
            node = self._watched.nodes[slot]
            assert node is not None, "nodes that have gone are dropped from what has to be judged"
            bound: Bound | None = None
            if judge.has_room(node):
                judge.effort += 1
                self._roomy[slot] = None
            else:
                self._roomy.pop(slot, None)
                bound = judge.find_bound(node)
            self._replace_bound(slot, bound)
        for slot in done:
            del self._stale[slot]

    def _replace_bound(self, slot: int, bound: Bound | None) -> None:
        before = self._band_of[slot]
        if before is not None:
            if bound == (before.cost, self._ages[slot]):
                return
            if before.is_sorted:
                del before.slots[bisect_left(before.slots, self._age_key(slot), key=self._age_key)]
            else:
                before.slots.remove(slot)
            self._band_of[slot] = None
            if not before.slots:
                del self._bands[before.cost]
        if bound is None:
            return
        cost, self._ages[slot] = bound
        band = self._bands.get(cost)
        if band is None:
            band = self._bands[cost] = Band(cost)
        self._band_of[slot] = band
        if band.is_sorted:
            band.slots.insert(bisect_left(band.slots, self._age_key(slot), key=self._age_key), slot)
        else:
            band.slots.append(slot)

    def _age_key(self, slot: int) -> tuple[int, str]:
        return self._ages[slot], self._node_id(slot)

    def _node_id(self, slot: int) -> str:
        node = self._watched.nodes[slot]
        assert node is not None, "nodes that have gone are dropped from all bands"
        return node.node_id


def _unowed_types(needs: Needs) -> frozenset[int]:
    """Returns the asked types that no guarantee covers; none if victims for other needs may free them as well."""
    if needs.needs_victims_everywhere():
        return frozenset()
    return frozenset(t for t, owed in zip(needs.types, needs.owed, strict=True) if not owed)
