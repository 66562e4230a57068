"""Finds places for all members of a gang that preempts as a unit, with victims for some of them (preemption.md B.11).

The members get their places one after the other: first in room that is open for all of them together, then each by the
search for one ask, in the room that the members before it leave. The fence and the entitlement of the gang are those of
one ask with the size of all members. At the end, victims that later ones have made superfluous are dropped. If this
finds no plan, or only one with reluctant victims, and the gang is small, :mod:`.packing` walks for all members. Of
a plan of a small gang, victims that would not be needed if members stood elsewhere are dropped too.

If members require a domain, one way (:mod:`.domains`) after the other is tried until no other way can be better,
and the best one is used.

A search continues from slice to slice, one member at a time. Nothing of it is visible to others: the places found so
far are booked on :class:`Paper` only while the place of the next member is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import NOTHING
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.domains import Domain
from kornel.core.model.nodes import Node
from kornel.core.model.orders.node_order import NodeOrder
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.policies import gang_nodes
from kornel.core.policies.bound_groups import Bound, bind_groups
from kornel.core.policies.gang_nodes import Candidates, Members, take_places
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.entitlement import Entitlement, fence_root, find_entitlement
from kornel.core.preemption.gang_losses import find_whole_gangs
from kornel.core.preemption.guarantee.gangs.devices import want_devices
from kornel.core.preemption.guarantee.gangs.domains import NO_DOMAINS, Way, WayFinder
from kornel.core.preemption.guarantee.gangs.packing import Packing, is_small, key_of_plan
from kornel.core.preemption.guarantee.gangs.paper import Paper
from kornel.core.preemption.guarantee.gangs.reach import NODES_AT_ONCE, Reach
from kornel.core.preemption.guarantee.gangs.spare import Freed, drop_spare_victims
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.rules.candidates import Candidates as VictimCandidates
from kornel.core.preemption.guarantee.rules.candidates import full_order
from kornel.core.preemption.guarantee.rules.cost import COSTS
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.guarantee.search.planner import KIND, Within, plan_preemption
from kornel.core.preemption.guarantee.search.prospects import KnownProspects
from kornel.core.preemption.plan import GangPlan, PreemptionPlan, Refusal
from kornel.core.preemption.walk import Candidate, walk_over
from kornel.core.state.records.victim_index import VictimIndex, reluctance_of
from kornel.shared.readable_amounts import format_count

MOST_STEPS: Final = 20_000
"""More steps than a search takes."""

MOST_TIES: Final = 2
"""The most ways that are tried although they cannot have fewer victims than the best one."""

NO_DEVICES: Final = Refusal(Outcome.NO_NODE, "the devices are not left beside those of the other members")

Refused = Mapping[Allocation, frozenset[str]]
"""The nodes on which each member may not run."""


class Tools(NamedTuple):
    """The records of a partition that make a search cheaper without changing its result."""

    order: NodeOrder
    victims: VictimIndex
    known: KnownProspects | None


class GangSearch:
    """The search for places of *members*. *mends* says that the other members of their gang have places already."""

    def __init__(self, members: Sequence[Allocation], marks: tuple[int, ...], *, mends: bool, refused: Refused) -> None:
        self.marks: Final = marks
        """The marks of the partition when the search began."""
        self.mends: Final = mends
        self.steps_left = MOST_STEPS
        """The number of steps after which the search counts as one that stands still."""
        self._members: Final = tuple(members)
        self._refused: Final = refused
        self._whole: Final = _stand_for_all(members)
        self._least: Final = self._whole.priority
        self._found: list[PreemptionPlan] = []
        self._left: list[Allocation] = []
        self._open: dict[Allocation, Node] = {}
        """The nodes with open room for members, for all of these together."""
        self._fence: Queue | None = None
        self._bound: list[Bound] = []
        """The groups that require a domain."""
        self._finder: WayFinder | None = None
        self._ways: list[Way] = []
        """The ways that are not tried yet, the most promising last."""
        self._way: Way | None = None
        self._near = KnownProspects()
        """The prospects of the nodes of one domain of the present way."""
        self._near_in: Domain | None = None
        self._reach: Reach | None = None
        """The bounds of what ways can give, made when the first of them has been tried."""
        self._ties = MOST_TIES
        """The number of ways that are still tried although they have no fewer victims than the best one."""
        self._packing: Packing | None = None
        self._steps: Iterator[None] = iter(())
        """The steps of the walk for all members."""
        self._walked = False
        """Tells whether the walk for all members has begun."""
        self._cut_short = False
        self._anywhere = False
        """Tells whether victims on any node may help."""
        self._failure: Refusal | None = None
        self._closest = 0, ""
        """The most places that any way had, and the reason why it had no more."""
        self._greedy: GangPlan | None = None
        self._dropping: Iterator[Sequence[PreemptionPlan] | Refusal | None] | None = None
        """The search for victims that are not needed, while it is under way. Like ``_steps`` it does not refer to this
        search, so that a search that is dropped is freed at once."""

    def is_about(self, members: Sequence[Allocation], refused: Refused) -> bool:
        """Tells whether the search is for these *members*, unchanged, and the same refused nodes."""
        return tuple(members) == self._members and refused == self._refused

    def take_step(self, view: PartitionView, tools: Tools, now_ns: int) -> GangPlan | Refusal | None:
        """Takes one step. Returns the answer, or ``None`` if further steps are needed.

        Raises :class:`Unprepared` if the same step has to be taken again.
        """
        self.steps_left = max(0, self.steps_left - 1)
        if self._packing is not None:
            return self._advance_packing(view, tools.victims)
        if self._fence is None:
            refused = self._begin_search(view)
            if refused is not None:
                return refused
        if self._finder is not None:
            return self._look_around()
        if self._way is None and self._ways:
            if self._bound and not self._pass_over(view):
                return None
            if self._ways:
                self._begin_way(view, tools.order, self._ways.pop())
        if self._way is not None and self._seek_again():
            self._dropping = None
        if self._left and self._failure is None and self._way is not None:
            self._place_next(view, tools, now_ns)
            return None
        if self._way is not None and not self._end_way(view, tools.victims):
            return None
        if self._ways:
            return None
        # Members found one after the other may need somebody worse, or more victims, than all of them together do.
        if self._should_walk() or (self._greedy is not None and len(self._greedy.victims) > 1):
            if is_small(view, self._members):
                entitled = self._find_entitlement(view)
                if isinstance(entitled, Refusal):
                    return entitled  # Something has changed since the search began.
                assert self._fence is not None, "set when the search began"
                self._packing = Packing(
                    view, self._whole, self._members, self._fence, entitled, self._refused, tools.victims, self._bound
                )
                if self._greedy is None or find_whole_gangs(self._greedy.victims):
                    self._begin_walk(self._packing)
                else:
                    self._steps = self._packing.give_back_from(self._greedy.victims)
                return None
            self._cut_short = self._cut_short or self._should_walk()
        return self._give_answer()

    def _begin_search(self, view: PartitionView) -> Refusal | None:
        entitled = self._find_entitlement(view)
        if isinstance(entitled, Refusal):
            return entitled
        self._fence = fence_root(self._whole)
        if self._fence is self._whole.queue:
            return Refusal(Outcome.FENCED_AT_LEAF, f"no victim outside {self._fence.path} may help")
        self._anywhere = Needs(self._whole, self._fence, entitled).needs_victims_everywhere()
        bound = bind_groups(view.topology, self._members)
        if isinstance(bound, str):
            return Refusal(Outcome.GANG_INCOMPLETE, f"the topology has no level {bound}")
        if bound:
            assert view.topology is not None, "without levels no group is bound"
            self._bound, self._finder = bound, WayFinder(view.topology, bound)
        else:
            self._ways = [NO_DOMAINS]
        return None

    def _look_around(self) -> Refusal | None:
        """Counts the room of some domains. After the last of them the ways are known."""
        assert self._finder is not None, "the caller has looked"
        if not self._finder.look_around():
            return None
        self._ways = self._finder.list_ways()[::-1]
        self._cut_short, self._finder = self._finder.cut_short, None
        if self._ways:
            return None
        levels = " and ".join(dict.fromkeys(group.level for group in self._bound))
        return Refusal(Outcome.GANG_INCOMPLETE, f"no {levels} would hold its members, even if nothing ran there")

    def _begin_way(self, view: PartitionView, order: NodeOrder, way: Way) -> None:
        self._way, self._failure = way, None
        self._found = []
        self._left = sorted(self._members, key=_hardest_first)
        self._open = {}
        self._take_open_room(view, order)

    def _pass_over(self, view: PartitionView) -> bool:
        """Drops the next ways if their bounds say that trying them would not change the answer. Returns whether the
        bound of the next way is known, or none is left; if not, the caller has to call again."""
        if self._greedy is None and not self._closest[1]:
            return True
        if self._reach is None:
            assert self._fence is not None, "set when the search began"
            self._reach = Reach(view, self._whole, self._members, self._fence)
        total = len(self._members)
        looked = 0
        while self._ways and looked < NODES_AT_ONCE:
            looked += self._reach.look_at(self._ways[-1], NODES_AT_ONCE - looked)
            found = self._reach.bound
            if found is None:
                return False
            if found.most >= total and (self._greedy is None or found.key < _key_of(self._greedy)):
                return True
            if self._greedy is None and found.most > self._closest[0]:
                return True
            self._ways.pop()
            self._narrow_ways()
        return not self._ways

    def _end_way(self, view: PartitionView, index: VictimIndex) -> bool:
        """Keeps the result of the present way if it is the best so far. Returns whether that is done; if not, the
        caller has to call again."""
        places = self._drop_spare_victims(view, index) if self._failure is None else self._failure
        if places is None:
            return False
        self._dropping = None
        way, self._way = self._way, None
        if self._failure is None:
            if isinstance(places, Refusal):
                self._failure = places
                self._closest = self._closest[0], self._closest[1] or places.detail
            else:
                self._keep_better(tuple(places))
        elif len(self._found) >= self._closest[0]:
            assert way is not None, "the caller has looked"
            if len(self._found) > self._closest[0] or not self._closest[1]:
                self._closest = len(self._found), self._describe_failure(way, self._failure)
        self._narrow_ways()
        return True

    def _narrow_ways(self) -> None:
        """Drops the ways that cannot be better than the best so far, after one more has been tried."""
        if self._greedy is not None:
            best = _key_of(self._greedy)
            if best[:3] == (False, False, False):
                # The same number of victims elsewhere may be less important, so a few ways that are possibly better are
                # tried.
                ties = [other for other in self._ways if other.least == best[3]][-self._ties :] if self._ties else []
                self._ties = max(0, self._ties - 1)
                self._ways = [*ties, *(other for other in self._ways if other.least < best[3])]

    def _describe_failure(self, way: Way, failure: Refusal) -> str:
        total, placed = len(self._members), len(self._found)
        why = f"{failure.outcome}: {failure.detail}" if failure.detail else str(failure.outcome)
        where = way.name_domains()
        if where:
            return f"{where}: {placed} of {total}, {total - placed} short; {self._left[0].spec.key}: {why}"
        return f"{placed} of {format_count(total, 'place')}; {self._left[0].spec.key}: {why}"

    def _take_open_room(self, view: PartitionView, order: NodeOrder) -> None:
        """Notes a node with open room for each of as many members as fit together."""
        assert self._way is not None, "a way has begun"
        alike: dict[tuple[Shape, frozenset[str], Domain | None], list[Allocation]] = {}
        for ask in self._left:
            key = ask.shape, self._refused.get(ask, frozenset()), self._way.domains.get(ask)
            alike.setdefault(key, []).append(ask)
        everywhere, paper = Candidates(order, view.nodes), gang_nodes.Paper(order)
        for (shape, refused, domain), asks in alike.items():
            candidates = everywhere if domain is None else everywhere._replace(among=_open_nodes(domain))
            members = Members(shape.pairs, len(asks), refused=refused, devices=shape.devices)
            nodes = take_places(candidates, members, paper)
            self._open.update(zip(asks, nodes, strict=False))
        # Members with a node come first, because the others must not count on the room that these take.
        self._left.sort(key=lambda ask: ask not in self._open)

    def _find_entitlement(self, view: PartitionView) -> Entitlement | Refusal:
        return find_entitlement(self._whole, GuaranteeMode.STRICT, view.types.names)

    def _seek_again(self) -> bool:
        """Puts members back whose victims have gone, or leave for others, since a place was found for them, because a
        search may go on in spite of changes. Returns whether there are any."""
        stale = [place for place in self._found if any(v.node is None or v.preempted for v in place.victims)]
        if stale:
            self._found = [place for place in self._found if place not in stale]
            self._left += [place.ask for place in stale]
        return bool(stale)

    def _place_next(self, view: PartitionView, tools: Tools, now_ns: int) -> None:
        """Finds a place for the next member, in the room that the members before it leave."""
        ask = self._left[0]
        paper = Paper(view.given_up)
        try:
            for place in self._found:
                paper.put(place.ask, place.node, place.victims)
            found = self._find_place(view, ask, tools, now_ns)
            if isinstance(found, PreemptionPlan) and ask.shape.devices is not None:
                devices = paper.put(ask, found.node, found.victims)
                found = NO_DEVICES if devices is None else replace(found, devices=devices)
        finally:
            if tools.known is not None:
                tools.known.doubt_nodes(paper.nodes)
            self._near.doubt_nodes(paper.nodes)
            paper.tear_up()
        if isinstance(found, Refusal):
            self._failure = found
            self._cut_short = self._cut_short or found.cut_short
        else:
            self._found.append(found)
            del self._left[0]

    def _find_place(self, view: PartitionView, ask: Allocation, tools: Tools, now_ns: int) -> PreemptionPlan | Refusal:
        assert self._fence is not None, "set when the search began"
        asking = ask if ask.priority == self._least else _with_priority(ask, self._least)
        entitled = find_entitlement(asking, GuaranteeMode.STRICT, view.types.names)
        if isinstance(entitled, Refusal):
            return entitled
        allows = self._allowed_nodes(ask)
        if not Needs(asking, self._fence, entitled).needs_victims_everywhere():
            node = self._open.get(ask)
            if node is not None and node.has_room_for(ask.shape):
                return PreemptionPlan(KIND, ask, node, (), self._fence)
        assert self._way is not None, "a way has begun"
        domain = self._way.domains.get(ask)
        among = None if domain is None else tuple(domain.nodes)
        if domain is not self._near_in:
            self._near, self._near_in = KnownProspects(), domain
        within = Within(self._fence, allows, among, self._near, GuaranteeMode.STRICT)
        found = plan_preemption(view, asking, index=tools.victims, known=tools.known, now_ns=now_ns, within=within)
        return found if isinstance(found, Refusal) else replace(found, ask=ask)

    def _walk_nodes(
        self, view: PartitionView, index: VictimIndex, found: Sequence[PreemptionPlan]
    ) -> Sequence[PreemptionPlan]:
        """Returns the places *found* with the victims on each node chosen by one walk for all members there, where that
        ends with milder ones.

        Those for devices, for queues and guarantees, with their gangs and by prices stay as they were found.
        """
        entitled = self._find_entitlement(view)
        victims = {victim: place.node for place in found for victim in place.victims}
        odd = self._anywhere or want_devices(self._members) or COSTS[view.victim_order] is not None
        if odd or isinstance(entitled, Refusal) or self._fence is None or find_whole_gangs(list(victims)):
            return found
        needs = Needs(self._whole, self._fence, entitled)
        terms = Terms(self._whole, self._fence, entitled, needs)
        candidates = VictimCandidates(self._whole, self._fence, terms, index, now_ns=view.now_ns)
        pools = {node: list(chain.from_iterable(candidates.on_node(node))) for node in victims.values()}
        going = {node: [c for c in pool if victims.get(c[4]) is node] for node, pool in pools.items()}
        for node, pool in pools.items():
            places = [place for place in found if place.node is node]
            wanted = sum_amounts(place.ask for place in places)
            lacking = [wanted.get(t, 0) - node.beside[t] for t, _ in self._whole.shape.pairs]
            room = terms.room.copy()
            for other in (victim for there in going if there is not node for victim in going[there]):
                for r, amount in other[5].uses:
                    room[r] -= amount
            chosen = walk_over(lacking + needs.base[len(lacking) :], room, pool, all_served=all(needs.owed))
            if chosen is not None and _worst_first(chosen) < _worst_first(going[node]):
                going[node] = chosen
                gone = next(place for place in places if place.victims)
                order = tuple(candidates.adjusted_priority(victim[4]) for victim in chosen)
                moved = replace(gone, victims=tuple(victim[4] for victim in chosen), adjusted=order)
                kept = {place.ask: replace(place, victims=(), adjusted=()) for place in places} | {gone.ask: moved}
                found = [kept.get(place.ask, place) for place in found]
        return found

    def _allowed_nodes(self, ask: Allocation) -> Callable[[Node], bool]:
        refused = self._refused.get(ask, frozenset())
        return lambda node: node.node_id not in refused

    def _drop_spare_victims(self, view: PartitionView, index: VictimIndex) -> Sequence[PreemptionPlan] | Refusal | None:
        """Returns the places found, without the victims that are not needed, or why they do not stand; ``None``: the
        caller has to call again."""
        if self._dropping is None:
            self._found = list(self._walk_nodes(view, index, self._found))
            assert self._fence is not None, "set when the search began"
            entitled = self._find_entitlement(view)
            if isinstance(entitled, Refusal):
                return entitled  # Something has changed since the search began.
            ledger = Freed(self._whole, self._fence, entitled, self._found)
            self._dropping = drop_spare_victims(tuple(self._found), ledger, view.given_up)
        return next(self._dropping)

    def _keep_better(self, places: tuple[PreemptionPlan, ...]) -> None:
        assert self._fence is not None, "set when the search began"
        plan = GangPlan(KIND, self._whole.application, places, self._fence, self.mends, self._cut_short)
        if self._greedy is None or _key_of(plan) < _key_of(self._greedy):
            self._greedy = plan

    def _advance_packing(self, view: PartitionView, index: VictimIndex) -> GangPlan | Refusal | None:
        assert self._packing is not None, "the caller has looked"
        if not self._packing.take_steps(self._steps):
            return None
        other = self._packing.make_plan(mends=self.mends)
        if other is not None and (self._greedy is None or _key_of(other) < _key_of(self._greedy)):
            self._greedy = replace(other, places=tuple(self._walk_nodes(view, index, other.places)))
        if not self._walked and self._should_walk():
            self._begin_walk(self._packing)
            return None
        self._cut_short = not self._packing.exhaustive or (self._cut_short and not self._walked)
        return self._give_answer()

    def _should_walk(self) -> bool:
        """Tells whether one walk for all members may find a plan where none is known, or one of a milder class."""
        if self._greedy is None:
            return True
        victims = self._greedy.victims
        return any(map(reluctance_of, victims)) or bool(find_whole_gangs(victims))

    def _begin_walk(self, packing: Packing) -> None:
        self._walked = True
        self._steps = packing.walk()

    def _give_answer(self) -> GangPlan | Refusal:
        if self._greedy is not None:
            return replace(self._greedy, cut_short=self._cut_short)
        assert self._failure is not None, "a search without a plan has failed"
        detail = self._closest[1]
        if self._cut_short:
            detail += "; not all ways were tried"
        return Refusal(
            Outcome.GANG_INCOMPLETE, detail, anywhere=self._anywhere, cut_short=self._cut_short,
            protected=self._failure.protected,
        )  # fmt: skip


def _key_of(plan: GangPlan) -> tuple[bool, bool, bool, int, int]:
    """Returns the sort key of *plan*: plans without whole gangs come first, then the order of B.11 counts."""
    return (bool(find_whole_gangs(plan.victims)), *key_of_plan(plan))


def _worst_first(victims: Sequence[Candidate]) -> list[tuple[int, int, int, int, str]]:
    return sorted(map(full_order, victims), reverse=True)


def _open_nodes(domain: Domain) -> list[Node]:
    """Returns the nodes of *domain* that accept new allocations, in the order of the partition."""
    return sorted([node for node in domain.nodes if node.schedulable], key=lambda node: (node.score, node.node_id))


def _stand_for_all(members: Sequence[Allocation]) -> Allocation:
    """Returns an ask with the size of all *members* and the priority of the least important one; it belongs to no
    partition."""
    first = members[0]
    pairs = tuple(sorted(sum_amounts(members).items()))
    spec = first.spec._replace(priority=min(ask.priority for ask in members), topology=None)
    return Allocation(spec, first.application, Shape(NOTHING, pairs), first.created_ns, first.arrival)


def _with_priority(ask: Allocation, priority: int) -> Allocation:
    spec = ask.spec._replace(priority=priority)
    return Allocation(spec, ask.application, ask.shape, ask.created_ns, ask.arrival)


def _hardest_first(ask: Allocation) -> tuple[int, int, Pairs, tuple[int, int, int]]:
    """Returns the sort key for the order in which members get places: equal members one after the other, large ones
    first, and before them those that want many whole devices, or a large part of one."""
    wanted = ask.shape.devices
    whole, part = (0, 0) if wanted is None else (wanted.number, wanted.share or wanted.memory)
    return -whole, -part, tuple((t, -amount) for t, amount in ask.shape.pairs), ask.order
