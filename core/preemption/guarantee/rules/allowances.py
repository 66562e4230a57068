"""Determines what the laws allow an ask to take: which allocations of each leaf may be victims, and how much of them
together.

What the laws say depends only on the leaf, the victim's shape and its priority. So it is computed once per leaf and
shape, and a walk over thousands of allocations only looks it up.

Law 2 is kept as *rooms*: one number per queue and guaranteed type, the amount that may leave the queue before it
falls below its guarantee. Taking a victim lowers the rooms on its path; none may become negative.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.priorities import Adjustment, adjust_within, adjustment_of
from kornel.core.preemption.walk import Effects
from kornel.core.state.records.giving_queues import list_given
from kornel.core.state.records.victim_index import VictimIndex


class LeafTerms:
    """The rules for taking victims from one leaf."""

    __slots__ = (
        "adjusted", "blocked", "bounded", "common", "declared", "highest", "inherited", "kinds", "leaf", "rooms",
        "scopes",
    )  # fmt: skip

    def __init__(
        self,
        leaf: Queue,
        branch: _Branch,
        adjusted: Adjustment,
        highest: int | None,
        declared: frozenset[int],
    ) -> None:
        self.leaf: Final = leaf
        self.common: Final = branch.common
        """The lowest common ancestor of this leaf and the leaf of the ask."""
        self.adjusted: Final = adjusted
        """The adjustment of priorities on the path from the leaf to the fence."""
        self.highest: Final = highest
        """The highest priority that law 6 does not protect; ``None``: it protects none."""
        self.declared: Final = declared
        """The asked types for which the leaf or a queue above it, below ``common``, has a guarantee."""
        self.inherited: Final = branch.inherited
        """Tells whether the entitlement lies at or above ``common``; if so, a victim must use one of the types
        ``declared``."""
        self.bounded: Final = bool(leaf.guaranteed or branch.rooms)
        """Tells whether a guarantee on the path of the leaf bounds what it may give up."""
        self.rooms: dict[int, tuple[int, ...]] | None = None if leaf.guaranteed else branch.rooms
        """The rooms on the path of the leaf by type, its own first, once :meth:`Terms.rooms_of` was asked for them."""
        self.scopes: Final = branch.scopes
        """The queues above this leaf in which something has to be freed."""
        self.kinds: dict[Shape, Effects] = {}
        self.blocked: dict[Shape, str] = {}
        """The shapes looked at so far that may not be taken from this leaf, each with the filter that protects it."""


class _Branch:
    """The rules that are the same for all leaves directly below one queue, of which there may be thousands."""

    __slots__ = ("adjusted", "asked", "common", "declared", "inherited", "mine", "open", "rooms", "scopes")

    def __init__(self, common: Queue, adjusted: Adjustment, mine: Adjustment, asked: int) -> None:
        self.common: Final = common
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
        self.declared: frozenset[int] = frozenset()
        self.inherited = False


class Terms:
    """Applies the laws to the possible victims of one ask; ``room`` holds what law 2 leaves."""

    def __init__(self, ask: Allocation, fence: Queue, entitled: Entitlement, needs: Needs) -> None:
        self.room: list[int] = []
        self._room_depth: list[int] = []
        self._room_above: list[int | None] = []
        """By room, the next room of the same type further up the tree."""
        self._gains_of: dict[tuple[Shape, frozenset[Queue]], Pairs] = {}
        self._scopes = frozenset(scope for scope in needs.scopes if scope is not None)
        self._ask = ask
        self._fence = fence
        self._needs = needs
        self._demand = ask.shape.amounts
        self._path = set(ask.queue.lineage())
        self._entitling = tuple(dict.fromkeys(entitled.queues.values()))
        self._all_owed = all(needs.owed)
        self._rooms: dict[Queue, dict[int, int]] = {}
        self._branches: dict[Queue, _Branch] = {}
        self._leaves: list[LeafTerms] = []

    def terms_below(self, top: Queue, index: VictimIndex, spared: Collection[str]) -> dict[Queue, LeafTerms]:
        """Returns the rules for taking victims from each leaf below *top* that holds anything, except the ask's own and
        those that are protected as a whole. Their order does not matter. *spared*: the paths of queues that the
        governor spares.

        There may be thousands of leaves, of which most are within their guarantees, so these are not even looked at.
        """
        found: dict[Queue, LeafTerms] = {}
        parents = [top]
        while parents:
            parent = parents.pop()
            below = index.sort_below(parent)
            parents += below.parents
            branch = self._branches.get(parent) or self._new_branch(parent)
            for types, leaves in below.leaves.items():
                if branch.open.isdisjoint(types):
                    continue
                for leaf in leaves:
                    if leaf is not self._ask.queue and leaf.path not in spared:
                        terms = self._terms_on(leaf, branch)
                        if not isinstance(terms, str):
                            found[leaf] = terms
        return found

    def terms_of(self, leaf: Queue) -> LeafTerms | str:
        """Returns the rules for taking victims from *leaf*, which is not the ask's own, or the filter that protects all
        of it."""
        parent = leaf.parent
        assert parent is not None, "the ask's queue has the root above it, so the root is no leaf"
        branch = self._branches.get(parent) or self._new_branch(parent)
        disabled = leaf.properties.preemption_policy is PreemptionPolicyKind.DISABLED
        within = branch.open.isdisjoint(list_given(leaf))
        return "law 2" if within and not disabled else self._terms_on(leaf, branch)

    def _terms_on(self, leaf: Queue, branch: _Branch) -> LeafTerms | str:
        """Does what :meth:`terms_of` does for a *leaf* that may give something up of a type that is open on *branch*,
        that of the queue above it."""
        if leaf.properties.preemption_policy is PreemptionPolicyKind.DISABLED:
            return "disabled"
        adjusted = adjust_within(leaf, branch.adjusted)
        mine = adjusted if branch.common is self._fence else adjust_within(leaf, branch.mine)
        if mine.fixed is not None and mine.of(0) > branch.asked:
            return "law 6"
        declared = branch.declared
        if branch.inherited or not self._all_owed:
            if leaf.guaranteed:
                declared = declared.union(t for t in leaf.guaranteed if t in self._demand)
            if branch.inherited and not declared:
                return "inherited"
        highest = branch.asked - mine.offset if mine.fixed is None else None
        terms = LeafTerms(leaf, branch, adjusted, highest, declared)
        self._leaves.append(terms)
        return terms

    def kind_of(self, terms: LeafTerms, shape: Shape) -> Effects | str:
        """Returns the effects of taking an allocation of *shape* from the leaf of *terms*, or the filter that forbids
        it.

        The answer is kept in *terms*, where frequent callers look first.
        """
        known = terms.kinds.get(shape) or terms.blocked.get(shape)
        if known is not None:
            return known
        found = self._new_kind(terms, shape)
        if isinstance(found, str):
            terms.blocked[shape] = found
        else:
            terms.kinds[shape] = found
        return found

    def kind_of_member(self, kind: Effects, room: int) -> Effects:
        """Returns *kind* for members of one task group, each of which also takes 1 from *room*."""
        return Effects(kind.gains, (*kind.uses, (room, 1)), kind.serves, kind.depth)

    def kind_of_gang(
        self, terms: LeafTerms, here: Sequence[Shape], everywhere: Sequence[Shape], surplus: Pairs
    ) -> Effects | None:
        """Returns the effects of taking a whole gang, which holds the shapes *here* on the node in question and
        *everywhere* in all; ``None``: a law forbids it, or it is useless.

        *surplus*: the rooms that count members which may leave one by one; the whole gang takes all that is left there.
        """
        needs = self._needs
        gains: dict[int, int] = {}
        for shape in everywhere:
            for i, amount in self.gains_of(shape, terms.scopes):
                if needs.scopes[i] is not None:
                    gains[i] = gains.get(i, 0) + amount
        for shape in here:
            for i, amount in self.gains_of(shape, terms.scopes):
                if needs.scopes[i] is None:
                    gains[i] = gains.get(i, 0) + amount
        serves = tuple(i for i in gains if needs.owed[i] or needs.types[i] in terms.declared)
        if not serves or (
            terms.inherited and not all(any(t in terms.declared for t, _ in s.pairs) for s in everywhere)
        ):
            return None
        uses, rooms = dict(surplus), self.rooms_of(terms)
        for shape in everywhere:
            for t, amount in shape.pairs:
                for r in rooms.get(t, ()):
                    uses[r] = uses.get(r, 0) + amount
        if any(self.room[r] < amount for r, amount in uses.items()):
            return None
        return Effects(tuple(sorted(gains.items())), tuple(uses.items()), serves, terms.common.depth)

    def rooms_of(self, terms: LeafTerms) -> dict[int, tuple[int, ...]]:
        """Returns the rooms on the path of the leaf of *terms* by type, its own first.

        They are made when they are first asked for, because an attempt looks at few of the leaves.
        """
        if terms.rooms is not None:
            return terms.rooms
        leaf = terms.leaf
        assert leaf.parent is not None, "the root is no victim's leaf"
        rooms = terms.rooms = self._branches[leaf.parent].rooms.copy()
        for t, guaranteed in leaf.guaranteed.items():
            above = rooms.get(t, ())
            room = self._new_room(leaf, leaf.used[t] - leaf.preempting[t] - guaranteed)
            if above:
                self._room_above[room] = above[0]
            rooms[t] = (room, *above)
        return rooms

    def open_room(self, leaf: Queue, spare: int) -> int:
        """Returns the index of a new room of *leaf* that does not belong to a guarantee, in which *spare* is left."""
        return self._new_room(leaf, spare)

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
                for i, (t, scope) in enumerate(zip(self._needs.types, self._needs.scopes, strict=True))
                if t in amounts and (scope is None or scope in scopes)
            )
        return found

    def most_by_need(self, leaves: int | None = None) -> list[int]:
        """Returns, by need, an upper bound of what the first *leaves* looked at can contribute under law 2, or all of
        them."""
        return [
            self.sum_flows(
                (self.rooms_of(terms).get(t, ()), terms.leaf.used[t] - terms.leaf.preempting[t])
                for terms in self._leaves[:leaves]
                if scope is None or scope in terms.scopes
            )
            for t, scope in zip(self._needs.types, self._needs.scopes, strict=True)
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

    def _new_kind(self, terms: LeafTerms, shape: Shape) -> Effects | str:
        gains = self.gains_of(shape, terms.scopes)
        if not gains:
            return "type"
        if terms.inherited and not any(t in terms.declared for t, _ in shape.pairs):
            return "inherited"
        needs = self._needs
        serves = tuple(i for i, _ in gains if needs.owed[i] or needs.types[i] in terms.declared)
        if not serves:
            return "no guarantee"
        room, rooms = self.room, self.rooms_of(terms)
        uses: list[tuple[int, int]] = []
        for t, amount in shape.pairs:
            for r in rooms.get(t, ()):
                if room[r] < amount:
                    return "law 2"
                uses.append((r, amount))
        return Effects(gains, tuple(uses), serves, terms.common.depth)

    def _new_branch(self, parent: Queue) -> _Branch:
        lineage = parent.lineage()
        common = next(queue for queue in lineage if queue in self._path)
        adjusted, mine = adjustment_of(parent, self._fence), adjustment_of(parent, common)
        asked = adjustment_of(self._ask.queue, common).of(self._ask.priority)
        branch = self._branches[parent] = _Branch(common, adjusted, mine, asked)
        branch.rooms = rooms = self._lineage_rooms(lineage)
        branch.open = frozenset(t for t in self._demand if all(self.room[r] > 0 for r in rooms.get(t, ())))
        if self._scopes:
            branch.scopes = self._scopes.intersection(lineage)
        branch.inherited = not any(queue.depth > common.depth for queue in self._entitling)
        if branch.inherited or not self._all_owed:
            below = [queue for queue in lineage if queue.depth > common.depth]
            branch.declared = frozenset(t for t in self._demand if any(t in queue.guaranteed for queue in below))
        return branch

    def _new_room(self, queue: Queue, spare: int) -> int:
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
                rooms[t] = self._new_room(queue, spare)
        return rooms
