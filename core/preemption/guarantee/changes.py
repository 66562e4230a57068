"""Finds the changes in a partition that could let a refused search for victims succeed now.

The result of a search can only change if the amounts of the ask's own queues change, if a node could offer more, or if
more may be taken from a leaf. Other changes do not matter: a placement in a leaf below its guarantee, an exit from a
node that is too small for the ask even without all its victims, or asks of other queues. The records are compared with
their former values; only a change that they do not show afterwards is noted when it happens, namely which leaves held
less in between (``PartitionState.moved``).

In doubt, the search is repeated: no change that may help is ever missed (``tests/properties/test_refusals.py`` repeats
it after every single change).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape, Vector

MOST_ALLOCATIONS: Final = 5_000
"""The most allocations that are examined for what they could free; if there are more, everything counts as changed."""

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
        self.willing = False
        """Tells whether some leaf may give up more than before, on any node."""
        self.holders: set[Allocation] = set()
        """The asks with a reservation on a changed node: only they can count on their room there."""
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
        self._versions: dict[Node, int] | None = None
        """The version of each node at the last look; ``None``: there was none."""
        self._net: dict[Queue, list[int]] = {}
        """The amounts that queues held net of victims at the last look. Queues that are missing count as changed."""
        self._rules = 0

    @property
    def watching(self) -> bool:
        """Tells whether there was a look since the last :meth:`stop_watching`."""
        return self._versions is not None

    def stop_watching(self) -> None:
        """Stops watching, because no refusal depends on changes for now."""
        self._versions = None
        self._net.clear()

    def find_changes(self, nodes: Mapping[str, Node], moved: Iterable[Queue], rules: int) -> Changes:
        """Returns what has changed since the last look.

        *moved*: leaves that held less for a moment, or that have more leaving or promised. *rules*: a number that
        changes with the bounds of queues and the rules for victims.
        """
        before, self._versions = self._versions, {node: node.version for node in nodes.values()}
        if before is None or rules != self._rules:
            self._rules = rules
            self._net.clear()
            return Changes(everything=True)
        changed = [node for node, version in self._versions.items() if before.get(node) != version]
        changes = Changes()
        fell = {queue for leaf in moved for queue in leaf.lineage()}
        grown = self._grown_queues(changed, fell)
        changes.moved = {queue for queue in (*fell, *grown) if _limits_something(queue)}
        dirty = dict.fromkeys(changed)
        looked_at = sum(len(node.allocations) for node in changed)
        for leaf in _leaves_below(queue for queue in grown if queue.guaranteed or queue.leaf):
            for application in leaf.applications.values():
                looked_at += len(application.allocations)
                if looked_at > MOST_ALLOCATIONS:
                    return Changes(everything=True)
                for allocation in application.allocations.values():
                    if allocation.node is not None and _may_go(allocation):
                        changes.willing = True
                        dirty[allocation.node] = None
        if looked_at + sum(len(node.allocations) for node in dirty) > MOST_ALLOCATIONS:
            return Changes(everything=True)
        changes.holders = {claim.ask for node in dirty for claim in node.reservations.values()}
        for node in dirty:
            if node.schedulable:
                changes.note_amounts(_most_of(node))
        return changes

    def _grown_queues(self, changed: Iterable[Node], fell: set[Queue]) -> list[Queue]:
        """Returns the queues that hold more now than at some moment since the last look, because an allocation of
        theirs arrived on a node.

        Such an allocation is on a changed node, or it has left again, and then its leaf is among those that *fell*.
        """
        arrived: dict[Queue, None] = {}
        for node in changed:
            for requests in (node.allocations, node.held):
                for request in requests.values():
                    arrived.update(dict.fromkeys(request.queue.lineage()))
        grown: list[Queue] = []
        for queue in arrived:
            net = _net_of(queue)
            before = self._net.get(queue)
            known = before is not None and len(before) == len(net)
            if not known or queue in fell or any(now > then for now, then in zip(net, before or (), strict=True)):
                grown.append(queue)
            self._net[queue] = net
        for queue in fell:
            if queue in self._net:
                self._net[queue] = _net_of(queue)
        return grown


def _limits_something(queue: Queue) -> bool:
    """Tells whether *queue* has a guarantee, or a max other than the size of the cluster."""
    return bool(queue.guaranteed or queue.ceilings)


def _net_of(queue: Queue) -> list[int]:
    return [used - leaving for used, leaving in zip(queue.used, queue.preempting, strict=True)]


def _leaves_below(queues: Iterable[Queue]) -> list[Queue]:
    found: dict[Queue, None] = {}
    stack = list(queues)
    while stack:
        queue = stack.pop()
        if queue.leaf:
            found[queue] = None
        else:
            stack.extend(queue.children.values())
    return list(found)


def _most_of(node: Node) -> Vector:
    """Returns what *node* could have free for an ask if all allocations left that are not protected from every ask."""
    amounts = list(node.beside)
    for allocation in node.allocations.values():
        if _may_go(allocation):
            for t, amount in allocation.shape.pairs:
                amounts[t] += amount
    return [min(pair) for pair in zip(amounts, node.capacity, strict=True)]


def _may_go(allocation: Allocation) -> bool:
    """Tells whether *allocation* might be a victim of some ask, judging by its state and its own leaf only."""
    if allocation.preempted or allocation.released or allocation.spec.required_node:
        return False
    leaf = allocation.queue
    if leaf.properties.preemption_policy is PreemptionPolicyKind.DISABLED:
        return False
    guaranteed = leaf.guaranteed
    if not guaranteed:
        return True
    used, leaving = leaf.used, leaf.preempting
    for t, amount in allocation.shape.pairs:
        if t in guaranteed and used[t] - leaving[t] - guaranteed[t] < amount:
            return False
    return True


def _is_within(pairs: Pairs, amounts: Vector) -> bool:
    """Tells whether *amounts*, by type index, hold *pairs*."""
    width = len(amounts)
    return all(t < width and amounts[t] >= amount for t, amount in pairs)
