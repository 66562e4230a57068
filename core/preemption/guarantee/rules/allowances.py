"""Determines what the laws allow an ask to take: which allocations of each leaf may be victims, and how much of them
together.

What the laws say depends only on the leaf, the victim's shape and its priority. Most of it is the same for all leaves
that are alike (:class:`.giving_queues.Alike`), and the rest is computed once per leaf and shape, so that a walk over
thousands of allocations only looks it up.

Law 2 is kept as *rooms*: one number per queue and guaranteed type, the amount that may leave the queue before it
falls below its guarantee. Taking a victim lowers the rooms on its path; none may become negative.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.priorities import Adjustment, adjust_within, adjustment_of
from kornel.core.preemption.run_times import guard_of
from kornel.core.preemption.walk import Effects
from kornel.core.state.records.giving_queues import Alike, describe_leaf
from kornel.core.state.records.victim_index import VictimIndex


class Rules(NamedTuple):
    """The rules for a leaf that hold whatever the victim's shape, and however much the leaf holds."""

    highest: int | None
    """The highest priority that law 6 does not protect; ``None``: it protects none."""
    adjusted: Adjustment
    """The adjustment of priorities on the path from the leaf to the fence."""
    declared: frozenset[int]
    """The asked types for which the leaf or a queue above it, below ``common``, has a guarantee."""
    bounded: bool
    """Tells whether a guarantee on the path of the leaf bounds what it may give up."""


class LeafTerms:
    """The rules for taking victims from one leaf, or from many that are alike."""

    __slots__ = ("adjusted", "blocked", "bounded", "branch", "declared", "effects", "highest", "rooms", "rules")

    def __init__(self, branch: Branch, rules: Rules, rooms: dict[int, tuple[int, ...]] | None) -> None:
        self.branch: Final = branch
        self.rules: Final = rules
        self.highest, self.adjusted, self.declared, self.bounded = rules
        self.rooms: Final = rooms
        """The rooms on the path of the leaf by type, its own first; ``None``: several leaves share these rules, and
        each gets its own, with rooms, when they are first asked for, because an attempt looks at few of them."""
        self.effects: dict[Shape, Effects] = {}
        self.blocked: dict[Shape, str] = {}
        """The shapes looked at so far that may not be taken from this leaf, each with the filter that protects it."""


class Branch:
    """The rules that are the same for all leaves directly below one queue, of which there may be thousands."""

    __slots__ = ("adjusted", "asked", "common", "declared", "guard", "inherited", "mine", "open", "rooms", "scopes")

    def __init__(self, common: Queue, guard: Queue | None, adjusted: Adjustment, mine: Adjustment, asked: int) -> None:
        self.common: Final = common
        """The lowest common ancestor of these leaves and the leaf of the ask."""
        self.guard: Final = guard
        """The queue whose minimum run time counts in these leaves; ``None``: in each, its own."""
        self.adjusted: Final = adjusted
        """The adjustment of priorities on the path from this queue to the fence."""
        self.mine: Final = mine
        """The adjustment of priorities on the path from this queue to ``common``."""
        self.asked: Final = asked
        """The adjusted priority of the ask at ``common``."""
        self.rooms: dict[int, tuple[int, ...]] = {}
        self.open: frozenset[int] = frozenset()
        """The asked types for which all rooms on the path have something left."""
        self.scopes: frozenset[Queue] = frozenset()
        """The queues above these leaves in which something has to be freed."""
        self.declared: frozenset[int] = frozenset()
        self.inherited = False
        """Tells whether the entitlement lies at or above ``common``; if so, a victim must use a type that is declared
        below."""


class Terms:
    """Applies the laws to the possible victims of one ask; ``room`` holds what law 2 leaves."""

    def __init__(self, ask: Allocation, fence: Queue, entitled: Entitlement, needs: Needs) -> None:
        self.room: list[int] = []
        self._room_depth: list[int] = []
        self._room_above: list[int | None] = []
        """By room, the next room of the same type further up the tree."""
        self._gains_of: dict[tuple[Shape, frozenset[Queue]], Pairs] = {}
        self._scopes = frozenset(scope for scope in needs.scopes if isinstance(scope, Queue))
        self._ask = ask
        self.fence: Final = fence
        self.needs: Final = needs
        self._demand = ask.shape.amounts
        self._path = set(ask.queue.lineage())
        self.shared = True
        """Tells whether an answer is the same for asks of other users."""
        self._entitling = tuple(dict.fromkeys(entitled.queues.values()))
        self._all_owed = all(needs.owed)
        self._rooms: dict[Queue, dict[int, int]] = {}
        self._branches: dict[Queue, Branch] = {}
        self.open: Final[dict[Queue, LeafTerms]] = {}
        """The leaves that are not protected as a whole, with their rules. Their order does not matter."""
        self.alike: Final[list[tuple[Rules, Collection[Queue]]]] = []
        """The same leaves by groups that share their rules."""

    def open_leaves(self, top: Queue, index: VictimIndex, spared: Collection[str]) -> None:
        """Finds the rules for taking victims from each leaf below *top* that holds anything, except the ask's own and
        those that are protected as a whole. *spared*: the paths of queues that the governor spares.

        There may be thousands of leaves, so no step of the interpreter is spent on each.
        """
        parents = [top]
        while parents:
            parent = parents.pop()
            below = index.sort_below(parent)
            parents += below.parents
            branch = self._branches.get(parent) or self._new_branch(parent)
            for alike, group in below.leaves.items():
                if branch.open.isdisjoint(alike.given):
                    continue
                terms = self._terms_on(alike, branch)
                if isinstance(terms, str):
                    continue
                leaves: Collection[Queue] = group.keys()
                if self._ask.queue in group:
                    leaves = group.keys() - {self._ask.queue}
                if spared:
                    leaves = [leaf for leaf in leaves if leaf.path not in spared]
                if leaves:
                    self.open.update(dict.fromkeys(leaves, terms))
                    self.alike.append((terms.rules, leaves))

    def terms_of(self, leaf: Queue) -> LeafTerms | str:
        """Returns the rules for taking victims from *leaf*, which is not the ask's own, or the filter that protects all
        of it. From then on, it counts among those that are open."""
        parent = leaf.parent
        assert parent is not None, "the ask's queue has the root above it, so the root is no leaf"
        branch = self._branches.get(parent) or self._new_branch(parent)
        alike = describe_leaf(leaf)
        within = branch.open.isdisjoint(alike.given)
        if within and alike.preemption_policy is not PreemptionPolicyKind.DISABLED:
            return "law 2"
        terms = self._terms_on(alike, branch)
        if not isinstance(terms, str):
            self.open[leaf] = terms
        return terms

    def _terms_on(self, alike: Alike, branch: Branch) -> LeafTerms | str:
        """Does what :meth:`terms_of` does for leaves that are *alike* and may give something up of a type that is open
        on *branch*, that of the queue above them."""
        if alike.preemption_policy is PreemptionPolicyKind.DISABLED:
            return "disabled"
        adjusted = adjust_within(alike, branch.adjusted)
        mine = adjusted if branch.common is self.fence else adjust_within(alike, branch.mine)
        if mine.fixed is not None and mine.of(0) > branch.asked:
            return "law 6"
        declared = branch.declared
        if branch.inherited or not self._all_owed:
            if alike.guaranteed:
                declared = declared.union(t for t in alike.guaranteed if t in self._demand)
            if branch.inherited and not declared:
                return "inherited"
        highest = branch.asked - mine.offset if mine.fixed is None else None
        rules = Rules(highest, adjusted, declared, bool(alike.guaranteed or branch.rooms))
        return LeafTerms(branch, rules, None if alike.guaranteed else branch.rooms)

    def own_terms(self, leaf: Queue) -> LeafTerms:
        """Returns the rules for the open *leaf* with rooms, which it shares if it has no guarantee of its own."""
        terms = self.open[leaf]
        if terms.rooms is not None:
            return terms
        assert leaf.parent is not None, "the root is no victim's leaf"
        branch = self._branches[leaf.parent]
        rooms = branch.rooms.copy()
        for t, guaranteed in leaf.guaranteed.items():
            above = rooms.get(t, ())
            room = self.open_room(leaf, leaf.used[t] - leaf.preempting[t] - guaranteed)
            if above:
                self._room_above[room] = above[0]
            rooms[t] = (room, *above)
        terms = self.open[leaf] = LeafTerms(branch, terms.rules, rooms)
        return terms

    def effects_of(self, leaf: Queue, shape: Shape) -> Effects | str:
        """Returns the effects of taking an allocation of *shape* from *leaf*, or the filter that forbids it.

        The answer is kept in the rules for the leaf, where frequent callers look first.
        """
        terms = self.own_terms(leaf)
        known = terms.effects.get(shape) or terms.blocked.get(shape)
        if known is not None:
            return known
        found = self._find_effects(terms, shape)
        if isinstance(found, str):
            terms.blocked[shape] = found
        else:
            terms.effects[shape] = found
        return found

    def effects_below(self, _tasks: Sequence[Allocation], effects: Effects) -> Effects:
        """Returns *effects* with what tasks free besides because of whose they are."""
        return effects

    def effects_of_member(self, effects: Effects, room: int) -> Effects:
        """Returns *effects* for members of one task group, each of which also takes 1 from *room*."""
        return Effects(effects.gains, (*effects.uses, (room, 1)), effects.serves, effects.depth)

    def effects_of_gang(
        self, leaf: Queue, here: Sequence[Shape], everywhere: Sequence[Shape], surplus: Pairs
    ) -> Effects | None:
        """Returns the effects of taking a whole gang, which holds the shapes *here* on the node in question and
        *everywhere* in all; ``None``: a law forbids it, or it is useless.

        *surplus*: the rooms that count members which may leave one by one; the whole gang takes all that is left there.
        """
        needs, terms = self.needs, self.own_terms(leaf)
        gains: dict[int, int] = {}
        for shape in everywhere:
            for i, amount in self.gains_of(shape, terms.branch.scopes):
                if needs.scopes[i] is not None:
                    gains[i] = gains.get(i, 0) + amount
        for shape in here:
            for i, amount in self.gains_of(shape, terms.branch.scopes):
                if needs.scopes[i] is None:
                    gains[i] = gains.get(i, 0) + amount
        serves = tuple(i for i in gains if needs.owed[i] or needs.types[i] in terms.declared)
        if not serves or (
            terms.branch.inherited and not all(any(t in terms.declared for t, _ in s.pairs) for s in everywhere)
        ):
            return None
        uses, rooms = dict(surplus), terms.rooms or {}
        for shape in everywhere:
            for t, amount in shape.pairs:
                for r in rooms.get(t, ()):
                    uses[r] = uses.get(r, 0) + amount
        if any(self.room[r] < amount for r, amount in uses.items()):
            return None
        return Effects(tuple(sorted(gains.items())), tuple(uses.items()), serves, terms.branch.common.depth)

    def rooms_for(self, leaf: Queue, t: int) -> tuple[int, ...]:
        """Returns the rooms of type *t* on the path of the open *leaf*, its own first."""
        return (self.own_terms(leaf).rooms or {}).get(t, ())

    def gains_of(self, shape: Shape, scopes: frozenset[Queue] | None = None) -> Pairs:
        """Returns what *shape* contributes from a leaf below *scopes*, as (need, amount); empty if it has no asked
        type.

        Without *scopes*, returns the most that it contributes from any leaf.
        """
        scopes = self._scopes if scopes is None else scopes
        found = self._gains_of.get((shape, scopes))
        if found is None:
            amounts = shape.amounts
            found = self._gains_of[shape, scopes] = tuple(
                (i, amounts[t])
                for i, (t, scope) in enumerate(zip(self.needs.types, self.needs.scopes, strict=True))
                if t in amounts and (scope is None or scope in scopes)
            )
        return found

    def most_by_need(self, leaves: int | None = None) -> list[int]:
        """Returns, by need, an upper bound of what the first *leaves* looked at can contribute under law 2, or all of
        them."""
        return [
            self.sum_flows(
                (self.rooms_for(leaf, t), leaf.used[t] - leaf.preempting[t])
                for leaf in islice(self.open, leaves)
                if scope is None or scope in self.open[leaf].branch.scopes
            )
            for t, scope in zip(self.needs.types, self.needs.scopes, strict=True)
        ]

    def sum_flows(self, sources: Iterable[tuple[tuple[int, ...], int]]) -> int:
        """Returns how much arrives at the top if each source sends its amount up through its rooms, and each room
        passes on no more than it has left."""
        total = 0
        inflow: dict[int, int] = {}
        for rooms, amount in sources:
            if rooms:
                inflow[rooms[0]] = inflow.get(rooms[0], 0) + amount
            else:
                total += amount
        waiting = [(-self._room_depth[room], room) for room in inflow]
        heapify(waiting)
        while waiting:
            room = heappop(waiting)[1]
            amount = min(inflow[room], max(0, self.room[room]))
            above = self._room_above[room]
            if above is None:
                total += amount
            elif above in inflow:
                inflow[above] += amount
            else:
                inflow[above] = amount
                heappush(waiting, (-self._room_depth[above], above))
        return total

    def _find_effects(self, terms: LeafTerms, shape: Shape) -> Effects | str:
        gains = self.gains_of(shape, terms.branch.scopes)
        if not gains:
            return "type"
        if terms.branch.inherited and not any(t in terms.declared for t, _ in shape.pairs):
            return "inherited"
        needs = self.needs
        serves = tuple(i for i, _ in gains if needs.owed[i] or needs.types[i] in terms.declared)
        if not serves:
            return "no guarantee"
        room, rooms = self.room, terms.rooms or {}
        uses: list[tuple[int, int]] = []
        for t, amount in shape.pairs:
            for r in rooms.get(t, ()):
                if room[r] < amount:
                    return "law 2"
                uses.append((r, amount))
        return Effects(gains, tuple(uses), serves, terms.branch.common.depth)

    def _new_branch(self, parent: Queue) -> Branch:
        lineage = parent.lineage()
        common = next(queue for queue in lineage if queue in self._path)
        adjusted, mine = adjustment_of(parent, self.fence), adjustment_of(parent, common)
        asked = adjustment_of(self._ask.queue, common).of(self._ask.priority)
        guard = None if parent is common else guard_of(parent, common)
        branch = self._branches[parent] = Branch(common, guard, adjusted, mine, asked)
        branch.rooms = rooms = self._lineage_rooms(lineage)
        branch.open = frozenset(t for t in self._demand if all(self.room[r] > 0 for r in rooms.get(t, ())))
        if self._scopes:
            branch.scopes = self._scopes.intersection(lineage)
        branch.inherited = not any(queue.depth > common.depth for queue in self._entitling)
        if branch.inherited or not self._all_owed:
            below = [queue for queue in lineage if queue.depth > common.depth]
            branch.declared = frozenset(t for t in self._demand if any(t in queue.guaranteed for queue in below))
        return branch

    def open_room(self, queue: Queue, spare: int) -> int:
        """Returns the index of a new room of *queue* in which *spare* is left."""
        self.room.append(spare)
        self._room_depth.append(queue.depth)
        self._room_above.append(None)
        return len(self.room) - 1

    def _lineage_rooms(self, lineage: tuple[Queue, ...]) -> dict[int, tuple[int, ...]]:
        """Returns the rooms of the queues on a path, by type."""
        rooms: dict[int, tuple[int, ...]] = {}
        for queue in lineage:
            for t, room in self._queue_rooms(queue).items():
                below = rooms.get(t, ())
                if below:
                    self._room_above[below[-1]] = room
                rooms[t] = (*below, room)
        return rooms

    def _queue_rooms(self, queue: Queue) -> dict[int, int]:
        """Returns the index of the room of each type that *queue* guarantees.

        In the common ancestor and above, the amounts of the ask take the place of its victims', and a queue that is
        below its guarantee may stay at its present amount (law 2).
        """
        rooms = self._rooms.get(queue)
        if rooms is None:
            rooms = self._rooms[queue] = {}
            for t, guaranteed in queue.guaranteed.items():
                net = queue.used[t] - queue.preempting[t]
                shared = queue in self._path
                spare = net + self._demand.get(t, 0) - min(guaranteed, net) if shared else net - guaranteed
                rooms[t] = self.open_room(queue, spare)
        return rooms
