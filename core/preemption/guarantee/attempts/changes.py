"""Finds the changes in a partition that could let a refused search for victims succeed now.

The result of a search can only change if the amounts of the ask's own queues change, if a node could offer more, or if
more may be taken from a queue. Other changes do not matter: a placement in a leaf below its guarantee, an exit from a
node that is too small for the ask even without all its victims, or asks of other queues. The books note which leaves
and nodes change (``PartitionState.moved`` and ``touched``), so a look costs what has changed.

In doubt, the search is repeated: no change that may help is ever missed (``tests/properties/test_refusals.py`` repeats
it after every single change).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape, Vector

Standing = tuple[tuple[int, ...], ...]
"""The amounts of each queue on a path that has a guarantee or a max: what it holds net of victims, and what is claimed
in it."""


def standing_of(leaf: Queue) -> Standing:
    """Returns the amounts on the path of *leaf* on which the guarantees, fences and quotas of its asks depend."""
    found: list[tuple[int, ...]] = []
    for queue in leaf.lineage():
        if not _limits_something(queue):
            continue
        types = sorted({*queue.guaranteed, *(t for t, _ in queue.ceilings)})
        found.append(tuple([queue.used[t] - queue.preempting[t] for t in types]))
        found.append(tuple([queue.claimed[t] for t in types]))
    return tuple(found)


class Changes:
    """The changes between two looks. ``everything``: anything may have changed."""

    def __init__(self, *, everything: bool = False) -> None:
        self.everything = everything
        self.moved: set[Queue] = set()
        """The queues with a guarantee or a max whose amounts held, leaving or promised have changed."""
        self.grown: list[Queue] = []
        """The queues with a guarantee that may give up more than before, on any node."""
        self.willing = False
        """Tells whether somebody on a changed node may leave."""
        self.holders: set[Allocation] = set()
        """The asks with a reservation on a changed node that now could be large enough for them, as only they can count
        on their room there."""
        self._offers: list[Vector] = []
        self._largest: Vector = []
        self._fits: dict[Shape, bool] = {}
        self._standings: dict[Queue, Standing | None] = {}

    def note_amounts(self, amounts: Vector) -> None:
        """Notes that a changed node can have *amounts* free at most, if all its possible victims leave."""
        self._offers.append(amounts)
        largest = self._largest
        self._largest = [max(pair) for pair in zip(largest, amounts, strict=True)] if largest else amounts

    def new_standing(self, leaf: Queue) -> Standing | None:
        """Returns the amounts that now determine what an ask in *leaf* may preempt for; ``None``: they have not
        changed."""
        if not self.moved:
            return None
        if leaf not in self._standings:
            moved = not self.moved.isdisjoint(leaf.lineage())
            self._standings[leaf] = standing_of(leaf) if moved else None
        return self._standings[leaf]

    def has_grown_beside(self, leaf: Queue) -> bool:
        """Tells whether a queue other than *leaf* may give up more than before."""
        return any(queue is not leaf for queue in self.grown)

    def has_node_for(self, shape: Shape) -> bool:
        """Tells whether a changed node could make room for *shape* at all."""
        known = self._fits.get(shape)
        if known is None:
            pairs = shape.pairs
            known = _is_within(pairs, self._largest) and any(_is_within(pairs, amounts) for amounts in self._offers)
            self._fits[shape] = known
        return known


class ChangeWatch:
    """Finds out what has changed in one partition since the last look."""

    def __init__(self) -> None:
        self._marks: dict[Queue, dict[int, int]] = {}
        """By queue and guaranteed type, the amount above the guarantee up to which refusals hold."""
        self._rules_seen: int | None = None
        """The number of the rules at the last look; ``None``: there was no look."""

    @property
    def watching(self) -> bool:
        """Tells whether there was a look since the last :meth:`stop_watching`."""
        return self._rules_seen is not None

    def stop_watching(self) -> None:
        """Stops watching, because no refusal depends on changes for now."""
        self._rules_seen = None
        self._marks = {}

    def find_changes(
        self, queues: Iterable[Queue], moved: Collection[Queue], touched: Iterable[Node], rules: int
    ) -> Changes:
        """Returns what has changed since the last look.

        *queues*: all queues. *moved*: the leaves whose amounts have changed; *touched*: the nodes that have. *rules*: a
        number that changes with the bounds of queues and the rules for victims.
        """
        if rules != self._rules_seen:
            self._rules_seen = rules
            self._marks = {queue: _marks_of(queue) for queue in queues if queue.guaranteed}
            return Changes(everything=True)
        changes = Changes()
        paths = dict.fromkeys(queue for leaf in moved for queue in leaf.lineage())
        changes.moved = {queue for queue in paths if _limits_something(queue)}
        changes.grown = [queue for queue in paths if queue.guaranteed and self._has_grown(queue)]
        for node in touched:
            if node.schedulable:
                self._note_amounts(node, changes)
        return changes

    def _has_grown(self, queue: Queue) -> bool:
        """Tells whether *queue* may give up more of a type than its mark says, and moves its marks."""
        known, now = self._marks.get(queue), _marks_of(queue)
        if known is None or known.keys() != now.keys():
            self._marks[queue] = now
            return True
        grown = False
        for t, mark in now.items():
            if mark > known[t]:
                grown = True
                known[t] = mark
            elif 4 * mark <= known[t]:
                known[t] = mark
        return grown

    def _note_amounts(self, node: Node, changes: Changes) -> None:
        """Notes in *changes* what *node* could have free for an ask if all allocations left that are not protected from
        every ask."""
        sums: dict[Queue, dict[int, int]] = {}
        for allocation in node.allocations.values():
            leaf = allocation.application.queue
            if self._may_go(allocation, leaf):
                found = sums.get(leaf)
                if found is None:
                    found = sums[leaf] = {}
                for t, amount in allocation.shape.pairs:
                    found[t] = found.get(t, 0) + amount
        changes.willing = changes.willing or bool(sums)
        freed = [0] * len(node.capacity)
        for leaf, found in sums.items():
            marks = self._marks.get(leaf, {})
            for t, amount in found.items():
                freed[t] += min(amount, marks.get(t, amount))
        changes.note_amounts(_sum_within(node.capacity, node.beside, freed))
        for claim in node.reservations.values():
            ask = claim.ask
            # The members of a gang count on what all of them hold together.
            in_unit = ask.group is not None and ask.group.is_unit
            own = _sum_within(node.capacity, node.room_without(claim), freed)
            if in_unit or _is_within(ask.shape.pairs, own):
                changes.holders.add(ask)

    def _may_go(self, allocation: Allocation, leaf: Queue) -> bool:
        """Tells whether *allocation* might be a victim of some ask, judging by its state and *leaf*, its own, only."""
        if allocation.preempted or allocation.released or allocation.spec.required_node:
            return False
        if leaf.properties.preemption_policy is PreemptionPolicyKind.DISABLED:
            return False
        marks = self._marks.get(leaf)
        return not marks or all(marks.get(t, amount) >= amount for t, amount in allocation.shape.pairs)


def _marks_of(queue: Queue) -> dict[int, int]:
    """Returns, by guaranteed type, what *queue* holds above its guarantee, raised to a power of two; 0: nothing.

    As what a queue holds goes up and down with every task, refusals are found to hold for a little more.
    """
    used, leaving = queue.used, queue.preempting
    above = {t: used[t] - leaving[t] - amount for t, amount in queue.guaranteed.items()}
    return {t: 1 << (amount - 1).bit_length() if amount > 0 else 0 for t, amount in above.items()}


def _limits_something(queue: Queue) -> bool:
    """Tells whether *queue* has a guarantee, or a max other than the size of the cluster."""
    return bool(queue.guaranteed or queue.ceilings)


def _sum_within(most: Vector, one: Vector, other: Vector) -> Vector:
    return [min(m, a + b) for m, a, b in zip(most, one, other, strict=True)]


def _is_within(pairs: Pairs, amounts: Vector) -> bool:
    """Tells whether *amounts*, by type index, hold *pairs*."""
    width = len(amounts)
    return all(t < width and amounts[t] >= amount for t, amount in pairs)
