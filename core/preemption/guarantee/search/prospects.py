"""Keeps the bounds of all nodes for each question from one attempt to the next, so that an attempt only looks at the
best few nodes.

Most asks are equal to many others, and little changes between two attempts. So the nodes are kept in the order of a
lower bound of the key of their solution (:mod:`.node_bounds`), and only those that have changed are judged again. Few
of these matter to a question. So each is looked at once for all questions (:mod:`.outlooks`), and a question
only judges those that the walk over the nodes reaches. A question that is new may take several steps, one in each
slice. While it does, no other ask searches in that slice: the first ask in order goes on until its question is
answered, however many questions wait (preemption.md B.1).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from itertools import compress, filterfalse, islice
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.guarantee.rules.allowances import Rules, Terms
from kornel.core.preemption.guarantee.rules.candidates import SolutionKey
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.guarantee.search.node_bounds import GLANCES, Bound, Cost, NodeJudge, Position
from kornel.core.preemption.guarantee.search.outlooks import PEAK, REACH, ROOM, Outlook, WatchedNodes
from kornel.core.preemption.priorities import Adjustment, adjustment_of
from kornel.core.state.records.victim_index import MILDEST

Question = tuple[Queue, Queue, Adjustment, int, Shape, frozenset[int]]
"""The fence and the parent queue of an ask, the adjustment of priorities in its leaf, its priority and shape, and its
types for which a victim needs a guarantee of its own.

Leaves of one parent have the same question, because the laws differ only in few victims for them, which is noticed like
every other change of the rules for a leaf.
"""

NODES_AT_ONCE: Final = 100
"""The number of fine bounds that are found in one step, which takes two or three milliseconds; a look for all questions
counts as a fifth."""

SORTED_AT_A_GLANCE: Final = 20
"""The number of nodes that one question sorts in the time of such a look."""

MOST_BYTES: Final = 64 << 20
"""About the most memory that the bounds in one partition take. The question that was asked least recently is forgotten
first, but one that is being worked on only after all others."""

_QUESTION_BYTES: Final = 1 << 10
_NODE_BYTES: Final = 40
"""The memory that one bound takes: four references, and for a few fine ones the age, which is a number of its own."""
_LEAF_BYTES: Final = 108
"""The most memory that a leaf takes in a set."""

FINE, SEVERAL, UNJUDGED_SEVERAL, UNJUDGED, STALE = 0, 1, 2, 3, 4
"""The stages of a bound, each with the number of steps left: it is a fine one, or there is none; it is known that one
ordinary victim is not enough; there is only a glimpse, which says the same, or says no such thing; nothing is known."""

_LAST: Final[Position] = (2**80, "")
"""A position behind every other."""

SEVERAL_ORDINARY: Final = (*MILDEST[0], 2)
"""The beginning of the cost of two ordinary victims, the least where one is not enough."""


class Unprepared(Exception):
    """Raised if more nodes have to be judged than one step may; the caller has to try again, as often as necessary."""


class KnownProspects:
    """The prospects of the latest questions in one partition."""

    def __init__(self) -> None:
        self._by_question: dict[Question, KeptBounds] = {}
        """The question that was asked least recently comes first."""
        self._watched: WatchedNodes | None = None
        self._outlooks: dict[Queue, Outlook] = {}
        """The outlooks of all questions by their fences."""
        self._doubted = 0
        """The number of nodes that were doubted since the last attempt."""
        self.behind = False
        """Tells whether a question is being worked on in this slice, so that no other ask may search in it. The caller
        of a search sets it when that raises :class:`Unprepared`."""

    def begin_slice(self) -> None:
        """Lets asks search again."""
        self.behind = False

    def refreshed_for(
        self, ask: Allocation, fence: Queue, nodes: Mapping[str, Node], laws: Terms, needs: Needs
    ) -> Prospects | None:
        """Returns the bounds of *nodes* for asks like *ask* under *laws*, brought up to date.

        Returns ``None`` if bounds are neither kept nor to be computed. Raises :class:`Unprepared` if the update takes
        more than one step.
        """
        unowed = _unowed_types(needs)
        parent = ask.queue.parent
        assert parent is not None, "the root is no leaf"
        question = (fence, parent, adjustment_of(ask.queue, parent), ask.priority, ask.shape, unowed)
        watched = self._watch(nodes)
        bounds = self._by_question.pop(question, None)
        is_new = bounds is None
        if bounds is None:
            outlook = self._outlooks.get(fence) or self._outlooks.setdefault(fence, Outlook(watched))
            bounds = KeptBounds(ask.shape.pairs, unowed, watched, outlook)
        self._by_question[question] = bounds
        # What a gang has on paper changes with every step, so it must not use up what a step may judge.
        most_effort = (NODES_AT_ONCE + self._doubted) * GLANCES
        self._doubted = 0
        judge = bounds.begin_attempt(laws, most_effort)
        if is_new:
            self._forget_oldest(bounds)
        if bounds.is_behind:
            raise Unprepared
        return Prospects(bounds, judge, keeps_solutions=not needs.needs_victims_everywhere())

    def doubt_nodes(self, nodes: Collection[Node]) -> None:
        """Makes the bounds of *nodes* be computed again, because they were computed while hypothetical changes were
        booked there."""
        self._doubted = len(nodes)
        if self._watched is not None:
            self._watched.doubt_nodes(nodes)

    def keep_only(self, leaves: set[Queue]) -> None:
        """Drops the bounds for asks of all other queues; to be called now and then."""
        parents = {leaf.parent for leaf in leaves}
        self._by_question = {question: known for question, known in self._by_question.items() if question[1] in parents}
        self._drop_outlooks()
        for outlook in self._outlooks.values():
            outlook.forget_empty(leaves)
        if not self._by_question:
            self._watched = None

    def work_left(self) -> int:
        """Returns an upper bound for the number of judgements of nodes that are left, for all questions."""
        return sum(known.work_left for known in self._kept)

    def _watch(self, nodes: Mapping[str, Node]) -> WatchedNodes:
        """Finds the *nodes* that have changed or gone since the last attempt."""
        if self._watched is None:
            self._watched = WatchedNodes()
        for slot in self._watched.compare_nodes(nodes):
            for known in self._kept:
                known.drop_slot(slot)
        return self._watched

    def _forget_oldest(self, newest: KeptBounds) -> None:
        """Forgets questions until the rest does not take too much memory, but never *newest*."""
        if self.bytes_held <= MOST_BYTES:
            return
        for question, known in sorted(self._by_question.items(), key=lambda item: item[1].is_behind):
            if self.bytes_held <= MOST_BYTES:
                return
            if known is not newest:
                del self._by_question[question]
                self._drop_outlooks()

    @property
    def _kept(self) -> list[Outlook | KeptBounds]:
        return [*self._outlooks.values(), *self._by_question.values()]

    @property
    def bytes_held(self) -> int:
        """About the memory that all bounds and outlooks take."""
        return sum(known.bytes_held for known in self._kept)

    def _drop_outlooks(self) -> None:
        """Drops the outlooks that no question uses any more."""
        fences = {question[0] for question in self._by_question}
        self._outlooks = {fence: outlook for fence, outlook in self._outlooks.items() if fence in fences}


class NoProspects(KnownProspects):
    """Prospects that keep no bounds, so that each search looks at all nodes, as a forecast does."""

    def refreshed_for(self, *_: object) -> None:
        """Returns ``None``, because no bounds are kept."""


class Band:
    """The nodes with bounds of one cost, by slot. They are sorted, by age and node ID, when they are first read."""

    __slots__ = ("cost", "is_sorted", "slots")

    def __init__(self, cost: Cost) -> None:
        self.cost: Final = cost
        self.slots: list[int] = []
        self.is_sorted = False


class KeptBounds:
    """The bounds of all nodes for one question, kept from one attempt to the next."""

    def __init__(self, demand: Pairs, unowed: frozenset[int], watched: WatchedNodes, outlook: Outlook) -> None:
        self._demand = demand
        self._unowed = unowed
        self._watched = watched
        self._outlook = outlook
        self._seen = 0
        """The number of the last look whose changes are noted."""
        self._stale: dict[int, None] = {}
        """The slots of the nodes that have changed and still have to be sorted."""
        self._doubted: dict[int, None] = {}
        """The slots of the nodes that were looked at in vain, because their bounds promised too much."""
        self._leaves: dict[Rules, set[Queue]] = {}
        """The leaves that were open at the last look, by their rules."""
        self._blocked: dict[Queue, dict[Shape, None]] = {}
        """By leaf, the shapes that bounds leave out because a law protected them."""
        self._stages: list[int] = []
        """The stage of each bound by slot, one of those above."""
        self._unrefined = 0
        """The sum of all stages."""
        self._bands: dict[Cost, Band] = {}
        self._costs: list[Cost] = []
        """The costs of all bands, in order."""
        self._band_of: list[Band | None] = []
        """The band of each node by slot; ``None``: the node has room, or cannot be used."""
        self._places: list[Position] = []
        """The position of each node within its band by slot."""
        self._roomy: dict[int, None] = {}

    @property
    def roomy(self) -> dict[Node, None]:
        """The nodes that have room for the ask, or will have it once present victims have left."""
        nodes = self._watched.nodes
        return {node: None for slot in self._roomy if (node := nodes[slot]) is not None}

    @property
    def work_left(self) -> int:
        """An upper bound for the number of judgements that are left."""
        return STALE * len(self._stale) + self._unrefined

    @property
    def is_behind(self) -> bool:
        """Tells whether nodes have changed that were not sorted since."""
        return bool(self._stale or self._outlook.work_left)

    @property
    def bytes_held(self) -> int:
        """About the memory that the bounds take."""
        return _QUESTION_BYTES + _NODE_BYTES * len(self._places) + _LEAF_BYTES * sum(map(len, self._leaves.values()))

    def begin_attempt(self, laws: Terms, most_effort: int) -> NodeJudge:
        """Sorts the nodes that have changed, and returns the judge of this attempt, which may spend *most_effort* in
        all."""
        judge = NodeJudge(self._demand, self._unowed, laws, self._blocked, most_effort)
        judge.effort += self._outlook.look_again(laws, most_effort)
        # Changes are only noted when all nodes that are known to have changed are done.
        if not self._stale:
            self._note_changes()
        self._note_leaves(laws)
        if not self._outlook.work_left:
            self._sort_stale(judge)
            if not self._stale:
                self._note_changes()
                self._sort_stale(judge)
        self._judge_doubted(judge)
        return judge

    def in_order(self, judge: NodeJudge) -> Iterator[tuple[Cost, int, Node]]:
        """Yields the nodes where victims may make enough room, the most promising first, each with its fine bound.

        Raises :class:`Unprepared` if *judge* would have to spend more effort than it may.
        """
        # A bound is never less than a glimpse, nor a fine bound less than one before it, so a node only moves on, to
        # where the walk has not been yet.
        ahead = merge(self._unjudged(UNJUDGED, 1), self._unjudged(UNJUDGED_SEVERAL, 2))
        following = next(ahead, None)
        at = place = 0
        while following is not None or at < len(self._costs):
            cost = self._costs[at] if at < len(self._costs) else None
            slots = [] if cost is None else self._read_band(self._bands[cost])
            is_end = place >= len(slots)
            if following is not None and (
                cost is None or following[0] <= (cost, _LAST if is_end else self._places[slots[place]])
            ):
                self._judge_first(following[1], judge)
                following = next(ahead, None)
                continue
            assert cost is not None, "one of both is ahead"
            if is_end:
                if slots:
                    at += 1
                else:
                    self._drop_band(cost)
                place = 0
                continue
            slot = slots[place]
            if self._stages[slot] is not FINE:
                self._refine(slot, judge)
                continue
            here = self._places[slot]
            yield cost, here[0], self._node_in(slot)
            # Its bound may have been raised meanwhile, so that it stands further on, with others yet to come before it.
            if place < len(slots) and slots[place] == slot and self._places[slot] == here:
                place += 1

    def _unjudged(self, stage: int, least: int) -> Iterator[tuple[tuple[Cost, Position], int]]:
        """Yields the slots of the nodes of *stage*, where *least* victims are needed, in the order of what their
        glimpses promise."""
        in_order, glimpses = self._outlook.in_order, self._outlook.glimpses
        for slot in compress(in_order, map(stage.__eq__, map(self._stages.__getitem__, in_order))):
            glimpse = glimpses[slot]
            yield (glimpse.cost_of(least), glimpse.position), slot

    def _judge_first(self, slot: int, judge: NodeJudge) -> None:
        """Finds the first bound of the node in *slot*: a fine one, if one ordinary victim is enough."""
        if not judge.effort_left:
            raise Unprepared
        offer = self._watched.offer_of(slot)
        bound = judge.find_single(offer) if self._stages[slot] is UNJUDGED else None
        if bound is not None:
            self._replace_bound(slot, bound, FINE)
            return
        glimpse = self._outlook.glimpses[slot]
        cost = glimpse.cost_of(glimpse.count_victims(self._demand))
        # The lowest priority and the first age are not less for several.
        self._replace_bound(slot, (max(cost, (*SEVERAL_ORDINARY, cost[3])), glimpse.position[0]), SEVERAL)

    def _read_band(self, band: Band) -> list[int]:
        if not band.is_sorted:
            band.slots.sort(key=self._places.__getitem__)
            band.is_sorted = True
        return band.slots

    def _refine(self, slot: int, judge: NodeJudge) -> None:
        """Replaces the bound of the node in *slot*, which is the next one in order, by a fine one."""
        if not judge.effort_left:
            raise Unprepared
        self._replace_bound(slot, judge.find_several(self._watched.offer_of(slot)), FINE)

    def raise_bound(self, node: Node, bound: Bound, judge: NodeJudge) -> None:
        """Replaces the fine bound of *node* by *bound*, the cost of its solution, unless a guarantee bounds what some
        leaf may give up there: with more or less to give, the solution is another one."""
        slot = self._watched.slots[node]
        band = self._band_of[slot]
        if band is None or slot in self._stale or (band.cost, self._places[slot][0]) >= bound:
            return
        if not judge.is_bounded(self._watched.offer_of(slot).shares):
            self._replace_bound(slot, bound, FINE)

    def doubt_node(self, node: Node) -> None:
        """Makes the bound of *node*, where victims do not make enough room after all, be computed again before the next
        attempt."""
        self._doubted[self._watched.slots[node]] = None

    def drop_slot(self, slot: int) -> None:
        """Forgets the node that had *slot* and has gone."""
        self._stale.pop(slot, None)
        self._doubted.pop(slot, None)
        self._roomy.pop(slot, None)
        if slot < len(self._band_of):
            self._replace_bound(slot, None, FINE)

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

    def _note_leaves(self, laws: Terms) -> None:
        """Finds the leaves of which more may be taken by now, or at another price, than the bounds assume; the nodes
        where they run something are judged again."""
        known: dict[Rules, set[Queue]] = {}
        outdated: set[Queue] = set()
        for rules, leaves in laws.alike:
            known.setdefault(rules, set()).update(leaves)
        for rules, now in known.items():
            outdated |= now.difference(self._leaves.get(rules, ()))
        for leaf, shapes in list(self._blocked.items()):
            if leaf not in laws.open:
                del self._blocked[leaf]
            elif leaf in outdated or not all(isinstance(laws.effects_of(leaf, shape), str) for shape in shapes):
                outdated.add(leaf)
                del self._blocked[leaf]
        self._leaves = known
        self._stale.update(dict.fromkeys(self._watched.slots_with(outdated)))

    def _sort_stale(self, judge: NodeJudge) -> None:
        """Sorts nodes that have changed by their glimpses, until *judge* is tired."""
        band_of, roomy, stages = self._band_of, self._roomy, self._stages
        missing = len(self._watched.nodes) - len(band_of)
        band_of.extend([None] * missing)
        self._places.extend([(0, "")] * missing)
        stages.extend([FINE] * missing)
        changed = list(islice(self._stale, SORTED_AT_A_GLANCE * judge.effort_left))
        if not changed:
            return
        judge.effort += len(changed) // SORTED_AT_A_GLANCE
        for slot in compress(changed, map(band_of.__getitem__, changed)):
            self._replace_bound(slot, None, FINE)
        for slot in roomy.keys() & set(changed):
            del roomy[slot]
        holding, demand = self._outlook.filter_slots, self._demand
        single = holding(changed, PEAK, demand)
        several = holding(filterfalse(set(single).__contains__, changed), REACH, demand)
        roomy.update(dict.fromkeys(holding(single, ROOM, demand)))
        self._unrefined -= sum(map(stages.__getitem__, changed))
        for slot in changed:
            stages[slot] = FINE
            del self._stale[slot]
        for slot in filterfalse(roomy.__contains__, single):
            stages[slot] = UNJUDGED
        for slot in several:
            stages[slot] = UNJUDGED_SEVERAL
        self._unrefined += sum(map(stages.__getitem__, changed))

    def _judge_doubted(self, judge: NodeJudge) -> None:
        """Finds the fine bounds of doubted nodes. The same ones may be doubted in every attempt, so this costs no
        effort, which would be missing for the others."""
        spent = judge.effort
        for slot in self._doubted:
            if slot not in self._stale and self._band_of[slot] is not None:
                offer = self._watched.offer_of(slot)
                self._replace_bound(slot, judge.find_single(offer) or judge.find_several(offer), FINE)
        self._doubted.clear()
        judge.effort = spent

    def _set_stage(self, slot: int, stage: int) -> None:
        self._unrefined += stage - self._stages[slot]
        self._stages[slot] = stage

    def _replace_bound(self, slot: int, bound: Bound | None, stage: int) -> None:
        if stage is not self._stages[slot]:
            self._set_stage(slot, stage)
        before = self._band_of[slot]
        if before is not None:
            place = self._places[slot]
            if bound == (before.cost, place[0]):
                return
            if before.is_sorted:
                del before.slots[bisect_left(before.slots, place, key=self._places.__getitem__)]
            else:
                before.slots.remove(slot)
            self._band_of[slot] = None
        if bound is None:
            return
        cost, age = bound
        offer = self._watched.offers[slot]
        place = self._places[slot] = offer.positions.get(age) or offer.position_at(age)
        band = self._bands.get(cost)
        if band is None:
            band = self._bands[cost] = Band(cost)
            insort(self._costs, cost)
        self._band_of[slot] = band
        if band.is_sorted:
            band.slots.insert(bisect_left(band.slots, place, key=self._places.__getitem__), slot)
        else:
            band.slots.append(slot)

    def _drop_band(self, cost: Cost) -> None:
        """Drops the band of *cost*, which is empty."""
        del self._bands[cost]
        del self._costs[bisect_left(self._costs, cost)]

    def _node_in(self, slot: int) -> Node:
        node = self._watched.nodes[slot]
        assert node is not None, "nodes that have gone are dropped at once"
        return node


class Prospects:
    """The bounds for one question, as one attempt sees them."""

    def __init__(self, bounds: KeptBounds, judge: NodeJudge, *, keeps_solutions: bool) -> None:
        """*keeps_solutions*: whether the solutions of this attempt depend on nothing but the node and the laws."""
        self._bounds = bounds
        self._judge = judge
        self._keeps_solutions = keeps_solutions
        self._solved: set[Node] = set()
        self.roomy: Final = bounds.roomy
        self.doubt_node: Final = bounds.doubt_node
        self.count_verdicts: Final = bounds.count_verdicts

    def in_order(self) -> Iterator[tuple[Cost, int, Node]]:
        """Yields nodes with their bounds, as :meth:`KeptBounds.in_order` does, each once."""
        for cost, age, node in self._bounds.in_order(self._judge):
            if node not in self._solved:
                yield cost, age, node

    def note_solution(self, node: Node, key: SolutionKey) -> None:
        """Notes the *key* of the solution on *node* as its bound, if it stays the same until the node or the rules
        change."""
        if self._keeps_solutions:
            self._solved.add(node)
            self._bounds.raise_bound(node, (key[:4], key[4]), self._judge)


def _unowed_types(needs: Needs) -> frozenset[int]:
    """Returns the asked types that no guarantee covers; none if victims for other needs may free them as well."""
    if needs.needs_victims_everywhere():
        return frozenset()
    return frozenset(t for t, owed in zip(needs.types, needs.owed, strict=True) if not owed)
