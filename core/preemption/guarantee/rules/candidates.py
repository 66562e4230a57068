"""Finds the candidates for an ask: all allocations below the fence that neither a law nor their state protects
(preemption.md B.4, B.5).

Each leaf keeps its allocations in order (:mod:`kornel.core.state.records.victim_index`). They are merged into one order
per class, only as far as the caller reads, because the first few usually decide. Which solution is the best is decided
by an order, too (B.6). Both orders are total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.gang_losses import GangLosses
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.rules.cost import Checkpoints, Pricing
from kornel.core.preemption.plan import NOBODY_SPARED, Spared
from kornel.core.preemption.run_times import last_end
from kornel.core.preemption.walk import Candidate, Effects
from kornel.core.state.records.victim_index import CLASSES, InOrder, RankedLeaf, VictimIndex, age_of, reluctance_of

_REPLACING: Final = AskPlace.REPLACING
"""Kept as constants, this one and those below, because reading a member from its class costs as much as a call, and
every allocation on a node is tested."""
_PREEMPTED: Final = AskPlace.PREEMPTED
_RELEASED: Final = AskPlace.RELEASED

LATE: Final = len(CLASSES)
"""The class of those who have not run for their minimum run time, where that keeps nobody back."""


class Ranking:
    """The candidates of one class in the order of preemption.md B.5. It may be iterated any number of times and is
    computed once."""

    __slots__ = ("_known", "_more")

    def __init__(self, candidates: Iterator[Candidate]) -> None:
        self._known: list[Candidate] = []
        self._more = candidates

    def __iter__(self) -> Iterator[Candidate]:
        known = self._known
        at = 0
        while True:
            if at == len(known):
                following = next(self._more, None)
                if following is None:
                    return
                known.append(following)
            yield known[at]
            at += 1


class Candidates:
    """The candidates for one ask, and the number of allocations that each filter has kept back so far."""

    def __init__(
        self,
        ask: Allocation,
        fence: Queue,
        terms: Terms,
        index: VictimIndex,
        spared: Spared = NOBODY_SPARED,
        *,
        now_ns: int,
        late: bool = False,
    ) -> None:
        """With *late*, minimum run times keep nobody back: whoever would be protected comes in a class of his own, the
        last one, and whoever has least time left comes first."""
        self._ask = ask
        self._fence = fence
        self._terms = terms
        self._own_application = ask.application.application_id
        self._spared = spared
        self._index = index
        self._ranked: list[tuple[Queue, LeafTerms, RankedLeaf]] | None = None
        terms.open_leaves(fence, index, spared.queues)
        self.open_leaves: Final[Mapping[Queue, LeafTerms]] = terms.open
        """The leaves that are not protected as a whole, with their rules."""
        self.dropped: Counter[str] = Counter()
        """Without the allocations of leaves that are protected as a whole, which :meth:`count_closed_leaves` adds."""
        self.found = 0
        self._prices: Mapping[Allocation, int] | None = None
        self._losses = GangLosses()
        self._now_ns = now_ns
        self.levels: Final = (*CLASSES, LATE) if late else CLASSES
        """The classes that may leave, the mildest first."""
        self._late: dict[Allocation, Candidate] = {}
        self.ends_ns = 0
        """The first end of a minimum run time that keeps somebody back who may leave otherwise; 0: it keeps nobody."""
        self._effects_of_members: dict[tuple[Application, str, Effects], Effects] = {}
        self._gang_rooms: dict[tuple[Application, str], int] = {}
        """By task group of an application, the room that counts how many of its members may still leave one by one."""

    def order_by_price(self, pricing: Pricing, now_ns: int, checkpoints: Checkpoints) -> None:
        """Puts the cheapest candidates first within each class. It has to be called before any candidate is read."""
        everybody = [
            a for leaf, _, _ in self._leaves for app in leaf.applications.values() for a in app.allocations.values()
        ]
        self._prices = pricing(everybody, self._ask, now_ns, checkpoints)

    def rank_classes(self) -> tuple[Ranking, ...]:
        """Returns the candidates by class, each class in order.

        The caller keeps them: the part that has not been iterated yet refers to this object, so this object must not
        refer to it, or each attempt would leave a reference cycle behind.
        """
        in_order = self._merge_by_age if self._prices is None else self._merge_by_price
        late = (Ranking(self._list_late()),) if self.is_late else ()
        return (*(Ranking(in_order(c)) for c in CLASSES), *late)

    def adjusted_priority(self, victim: Allocation) -> int:
        """Returns the priority of the candidate *victim* as adjusted at the fence."""
        return self.open_leaves[victim.queue].adjusted.of(victim.priority)

    def count_closed_leaves(self) -> None:
        """Counts the allocations of leaves that are protected as a whole, which only a refusal tells."""
        for leaf in leaves_below(self._fence):
            if leaf not in self.open_leaves and leaf is not self._ask.queue:
                self.dropped[self._why_closed(leaf)] += _allocations_of(leaf)

    def _why_closed(self, leaf: Queue) -> str:
        """Returns what protects *leaf* as a whole."""
        if leaf is self._ask.queue or self._fence not in leaf.lineage():
            return "law 3" if leaf is self._ask.queue else "law 7"
        if leaf.path in self._spared.queues:
            return "governor"
        why = self._terms.terms_of(leaf)
        # It is asked only for leaves that were closed when the search began, and nothing changes meanwhile.
        assert isinstance(why, str), "open leaves are known"
        return why

    @property
    def _leaves(self) -> list[tuple[Queue, LeafTerms, RankedLeaf]]:
        """The leaves, with their allocations in order, that are protected neither as a whole nor for every size that
        occurs in them."""
        if self._ranked is None:
            self._ranked = []
            for leaf in self.open_leaves:
                ranked = self._index.rank_leaf(leaf)
                self.dropped["required node"] += ranked.required
                leaf_terms = self._terms.own_terms(leaf)
                if not self._all_blocked(leaf, leaf_terms, ranked):
                    self._ranked.append((leaf, leaf_terms, ranked))
        return self._ranked

    def _all_blocked(self, leaf: Queue, leaf_terms: LeafTerms, ranked: RankedLeaf) -> bool:
        """Tells whether filters keep back every size that occurs in the leaf, so that its allocations need not be
        looked at one by one."""
        highest = leaf_terms.highest
        if highest is not None and ranked.highest > highest:
            return False
        laws = self._find_laws(leaf, ranked)
        for shape, count in ranked.sizes.items() if laws else ():
            self.dropped[laws[shape]] += count
        return bool(laws) or not ranked.sizes

    def _find_laws(self, leaf: Queue, ranked: RankedLeaf) -> dict[Shape, str]:
        """Returns what keeps back each size that occurs in the leaf; empty: nothing keeps back one of them."""
        laws: dict[Shape, str] = {}
        for shape in ranked.sizes:
            law = self._terms.effects_of(leaf, shape)
            if not isinstance(law, str):
                return {}
            laws[shape] = law
        return laws

    @property
    def is_late(self) -> bool:
        """Tells whether minimum run times keep nobody back."""
        return self.levels is not CLASSES

    def _list_late(self) -> Iterator[Candidate]:
        """Yields those whom their minimum run time would protect, once all other classes have been read."""
        yield from sorted(self._late.values())

    def last_end(self, victims: Iterable[Candidate]) -> int:
        """Returns the last end of a minimum run time among *victims*; 0: all of them have run for theirs."""
        return max([victim[0] for victim in victims if victim[4] in self._late], default=0)

    def on_node(self, node: Node, level: int = CLASSES[-1]) -> list[list[Candidate]]:
        """Returns the candidates on *node* up to the class *level*, by class, in order."""
        pool: list[list[Candidate]] = [[] for _ in range(level + 1 + self.is_late)]
        uncounted: Counter[str] = Counter()
        for allocation in node.allocations.values():
            leaf_terms = self.open_leaves.get(allocation.queue)
            if leaf_terms is None or allocation.spec.required_node or allocation.place is _REPLACING:
                continue
            c = reluctance_of(allocation)
            if c > level or (leaf_terms.highest is not None and allocation.priority > leaf_terms.highest):
                continue
            prices = self._prices
            order = leaf_terms.adjusted.of(allocation.priority) if prices is None else prices.get(allocation, 0)
            candidate = self._make_candidate(leaf_terms, allocation, order, uncounted)
            if candidate is not None:
                pool[-1 if allocation in self._late else c].append(candidate)
        for part in pool:
            part.sort()
        return pool

    def any_on(self, nodes: Iterable[Node]) -> bool:
        """Tells whether there is at least one candidate on *nodes*; the first few usually decide."""
        return any(any(self.on_node(node)) for node in nodes)

    def may_give(self) -> bool:
        """Tells whether filters admit a size that occurs in some leaf."""
        ranked = ((leaf, self._index.rank_leaf(leaf)) for leaf in self.open_leaves)
        return any(each.sizes and not self._find_laws(leaf, each) for leaf, each in ranked)

    def count_kept_back(self, nodes: Iterable[Node]) -> Counter[str]:
        """Returns how many allocations on *nodes* may not leave, by what protects them."""
        found: Counter[str] = Counter()
        for allocation in (allocation for node in nodes for allocation in node.allocations.values()):
            leaf_terms = self.open_leaves.get(allocation.queue)
            if leaf_terms is None:
                found[self._why_closed(allocation.queue)] += 1
            elif allocation.spec.required_node:
                found["required node"] += 1
            elif leaf_terms.highest is not None and allocation.priority > leaf_terms.highest:
                found["law 6"] += 1
            else:
                self._make_candidate(leaf_terms, allocation, 0, found)
        return found

    def count_outside(self, root: Queue) -> int:
        """Returns how many allocations law 7 protects, because they are outside the fence."""
        inside = set(leaves_below(self._fence))
        return sum(
            _allocations_of(leaf) for leaf in leaves_below(root) if leaf not in inside and leaf is not self._ask.queue
        )

    def _merge_by_age(self, c: int) -> Iterator[Candidate]:
        """Yields the candidates of class *c* of all leaves. Only candidates of equal priority and age have to be sorted
        further."""
        sources: list[tuple[LeafTerms, InOrder]] = []
        heap: list[tuple[int, int, int, int]] = []
        for _, leaf_terms, ranked in self._leaves:
            adjusted = leaf_terms.adjusted
            entries = self._admitted_of(ranked, c, leaf_terms.highest, by_age=adjusted.fixed is not None)
            if entries:
                heap.append((adjusted.of(entries[0][0]), entries[0][1], len(sources), 0))
                sources.append((leaf_terms, entries))
        heapify(heap)
        while heap:
            priority, age = heap[0][:2]
            equals: list[Candidate] = []
            while heap and heap[0][0] == priority and heap[0][1] == age:
                _, _, number, at = heap[0]
                leaf_terms, entries = sources[number]
                candidate = self._make_candidate(leaf_terms, entries[at][3], priority, self.dropped)
                if candidate is not None and candidate[4] not in self._late:
                    equals.append(candidate)
                at += 1
                if at < len(entries):
                    following = entries[at]
                    heapreplace(heap, (leaf_terms.adjusted.of(following[0]), following[1], number, at))
                else:
                    heappop(heap)
            equals.sort()
            self.found += len(equals)
            yield from equals

    def _merge_by_price(self, c: int) -> Iterator[Candidate]:
        """Yields the candidates of class *c* of all leaves, the cheapest first."""
        assert self._prices is not None, "priced before anybody looks"
        found: list[Candidate] = []
        for _, leaf_terms, ranked in self._leaves:
            for entry in self._admitted_of(ranked, c, leaf_terms.highest):
                candidate = self._make_candidate(leaf_terms, entry[3], self._prices[entry[3]], self.dropped)
                if candidate is not None and candidate[4] not in self._late:
                    found.append(candidate)
        found.sort(key=lambda candidate: candidate[:4])
        self.found += len(found)
        yield from found

    def _admitted_of(self, ranked: RankedLeaf, c: int, highest: int | None, *, by_age: bool = False) -> InOrder:
        """Returns the allocations of class *c* up to the priority *highest*; law 6 protects the others."""
        admitted = ranked.in_order(c, highest, by_age=by_age)
        protected = ranked.count_class(c) - len(admitted)
        if protected:
            self.dropped["law 6"] += protected
        return admitted

    def _make_candidate(
        self, leaf_terms: LeafTerms, allocation: Allocation, order: int, dropped: Counter[str]
    ) -> Candidate | None:
        """Returns *allocation* as a candidate. If a filter keeps it back, returns ``None`` and counts that in
        *dropped*."""
        effects = leaf_terms.effects.get(allocation.shape)
        if effects is None:
            shape = allocation.shape
            first_look = leaf_terms.blocked.get(shape) or self._terms.effects_of(allocation.queue, shape)
            if isinstance(first_look, str):
                dropped[first_look] += 1
                return None
            effects = first_look
        application = allocation.application
        if allocation.place is _PREEMPTED or allocation.place is _RELEASED:
            dropped["preempted" if allocation.place is _PREEMPTED else "released"] += 1
            return None
        if application.application_id == self._own_application:
            dropped["law 3"] += 1
            return None
        if self._spared is not NOBODY_SPARED and self._is_spared(allocation):
            dropped["governor"] += 1
            return None
        late_ns = 0
        guard = leaf_terms.branch.guard or application.queue
        if guard.properties.min_runtime_most_ns:
            late_ns = self.protected_until(guard, (allocation,))
            if late_ns and not self.is_late:
                dropped["min-runtime"] += 1
                return None
        if application.leaves_whole and allocation.spec.task_group:
            own_effects = self._effects_of_member(allocation, effects)
            if own_effects is None:
                dropped["gang"] += 1
                return None
            effects = own_effects
        candidate = (
            late_ns or order, age_of(allocation), application.preempted_count, allocation.key, allocation, effects,
        )  # fmt: skip
        if late_ns:
            self._late[allocation] = candidate
        return candidate

    def _effects_of_member(self, member: Allocation, effects: Effects) -> Effects | None:
        """Returns the effects of *member*, a member of a gang that also counts against the surplus of its task group;
        ``None``: there is no surplus."""
        surplus = self._losses.surplus_of(member)
        if surplus <= 0:
            return None
        group = member.application, member.spec.task_group
        known = self._effects_of_members.get((*group, effects))
        if known is None:
            room = self._gang_rooms.get(group)
            if room is None:
                room = self._gang_rooms[group] = self._terms.open_room(member.queue, surplus)
            known = self._effects_of_members[(*group, effects)] = self._terms.effects_of_member(effects, room)
        return known

    def surplus_rooms(self, application: Application) -> Pairs:
        """Returns the rooms that count which members of *application* may leave one by one, each with what is left in
        it."""
        rooms = [room for (owner, _), room in self._gang_rooms.items() if owner is application]
        return tuple((room, self._terms.room[room]) for room in rooms)

    def may_lose(self, application: Application) -> bool:
        """Tells whether *application* may lose anything: law 3 protects the ask's own application, and the governor may
        spare others."""
        name = application.application_id
        return name != self._own_application and name not in self._spared.applications

    def protected_until(self, guard: Queue, tasks: Sequence[Allocation]) -> int:
        """Returns the time until which one of *tasks*, which leave together, has not run for the minimum run time of
        *guard*, and notes it; 0: all have."""
        until_ns = last_end(tasks, guard)
        if until_ns <= self._now_ns:
            return 0
        for task in tasks:
            self._index.note_protected(task, until_ns)
        self.ends_ns = min(until_ns, self.ends_ns or until_ns)
        return until_ns

    @property
    def has_prices(self) -> bool:
        """Tells whether victims are chosen in the order of their prices."""
        return self._prices is not None

    def order_of(self, leaf_terms: LeafTerms, allocation: Allocation) -> int:
        """Returns the price of *allocation*, or its adjusted priority if victims have no prices."""
        prices = self._prices
        return leaf_terms.adjusted.of(allocation.priority) if prices is None else prices.get(allocation, 0)

    def _is_spared(self, allocation: Allocation) -> bool:
        node = allocation.node
        return allocation.application.application_id in self._spared.applications or (
            node is not None and node.node_id in self._spared.nodes
        )


def leaves_below(top: Queue) -> Iterator[Queue]:
    """Yields the leaves below *top*, or *top* itself, that hold anything; their order does not matter."""
    stack = [top]
    while stack:
        queue = stack.pop()
        if any(queue.used):
            if queue.leaf:
                yield queue
            else:
                stack.extend(queue.children.values())


def _allocations_of(leaf: Queue) -> int:
    found = 0
    for application in leaf.applications.values():
        found += len(application.allocations)
    return found


SolutionKey = tuple[bool, bool, int, int, int, int, str]
"""(any originator, any opted out, victims, highest adjusted priority, -created of the oldest, -depth of the shallowest
lowest common ancestor, node ID): the smallest is the best."""


def solution_key(victims: Sequence[Candidate], node_id: str) -> SolutionKey:
    """Returns the key of the solution that takes *victims* on *node_id*; the solution without victims has the
    smallest."""
    if not victims:
        return (False, False, 0, 0, 0, 0, node_id)
    return (
        any(victim[4].spec.originator for victim in victims),
        any(not victim[4].spec.allow_preempt_self for victim in victims),
        len(victims),
        max(victim[0] for victim in victims),
        max(victim[1] for victim in victims),
        -min(victim[5].depth for victim in victims),
        node_id,
    )


class Solution(NamedTuple):
    """Victims, in the order of preemption.md B.5, that make room on a node; the smallest key is the best."""

    key: SolutionKey
    node: Node
    victims: tuple[Candidate, ...]

    @property
    def level(self) -> int:
        """The class of the victim that is taken last."""
        return max((reluctance_of(victim[4]) for victim in self.victims), default=0)

    @classmethod
    def of(cls, node: Node, victims: Sequence[Candidate]) -> Solution:
        """Returns the solution that takes *victims* on *node*, with its key."""
        return cls(solution_key(victims, node.node_id), node, tuple(victims))

    @classmethod
    def in_order(cls, node: Node, victims: Iterable[Candidate]) -> Solution:
        """Returns the solution that takes *victims*, which stand in any order, on *node*."""
        return cls.of(node, sorted(victims, key=full_order))


def full_order(victim: Candidate) -> tuple[int, int, int, int, str]:
    """Returns the whole sort key of preemption.md B.5, with the class in front."""
    return (reluctance_of(victim[4]), *victim[:4])
