"""The changes in a partition that could let a refused search for victims succeed now.

A search that found nobody could end otherwise when the ask's own queues stand otherwise, when some node has more to
offer, or when more may be taken of some leaf. Everything else leaves the answer as it is: what is placed in a leaf
below its guarantee, what leaves a node that is too small for the ask even without all its victims, what other queues
ask for. Who looks compares the records themselves with what they were, as prospects do; only what cannot be seen in
them afterwards is noted when it happens: which leaves came to hold less in between (``PartitionState.moved``).

All of it errs on the side of asking again: a change that may help is never overlooked
(``tests/properties/test_refusals.py`` asks again after every single change).
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
"""The number of allocations that are looked at for what they could free: with more in question, everything counts as
changed."""

Standing = tuple[tuple[int, ...], ...]
"""The amounts that queues on a path hold net of victims, and that are claimed there, where they guarantee or limit
something."""


def standing_of(leaf: Queue) -> Standing:
    """Returns what an ask in *leaf* finds on its own path: all that its guarantees, fences and quotas depend on."""
    found: list[tuple[int, ...]] = []
    for queue in leaf.lineage():
        if not _limits_something(queue):
            continue
        types = sorted({*queue.guaranteed, *(t for t, _ in queue.ceilings)})
        found.append(tuple([queue.used[t] - queue.preempting[t] for t in types]))
        found.append(tuple([queue.claimed[t] for t in types]))
    return tuple(found)


class Changes:
    """The differences between two looks. ``everything``: nothing is known to be as it was."""

    def __init__(self, *, everything: bool = False) -> None:
        self.everything = everything
        self.moved: set[Queue] = set()
        """Queues that guarantee or limit something and hold, lose or have promised other amounts than before."""
        self.willing = False
        """Some leaf may have more to give than before, wherever its allocations run."""
        self.holders: set[Allocation] = set()
        """Asks that hold room on a node that is not as it was: they can count on it there, and nobody else can."""
        self._offers: list[Vector] = []
        self._largest: Vector = []
        self._fits: dict[Shape, bool] = {}
        self._standings: dict[Queue, Standing | None] = {}

    def note_amounts(self, amounts: Vector) -> None:
        """Note that a node which is not as it was has *amounts* at the very most, all its victims gone."""
        self._offers.append(amounts)
        largest = self._largest
        self._largest = [max(pair) for pair in zip(largest, amounts, strict=True)] if largest else amounts

    def new_standing(self, leaf: Queue) -> Standing | None:
        """Returns what an ask in *leaf* finds on its path now; ``None``: what it found before."""
        if not self.moved:
            return None
        if leaf not in self._standings:
            moved = not self.moved.isdisjoint(leaf.lineage())
            self._standings[leaf] = standing_of(leaf) if moved else None
        return self._standings[leaf]

    def has_node_for(self, shape: Shape) -> bool:
        """Tells whether a node that is not as it was could make room for *shape* at all."""
        known = self._fits.get(shape)
        if known is None:
            pairs = shape.pairs
            known = _is_within(pairs, self._largest) and any(_is_within(pairs, amounts) for amounts in self._offers)
            self._fits[shape] = known
        return known


class ChangeWatch:
    """Finds out what changed since it was last asked. One belongs to one partition."""

    def __init__(self) -> None:
        self._versions: dict[Node, int] | None = None
        """The state of each node at the last look; ``None``: there was none."""
        self._net: dict[Queue, list[int]] = {}
        """The amounts that queues held net of victims at the last look. Some are missing: those count as changed."""
        self._rules = 0

    @property
    def watching(self) -> bool:
        """Tells whether anybody looked since the last :meth:`stop_watching`."""
        return self._versions is not None

    def stop_watching(self) -> None:
        """Stop watching: nobody needs to know until further notice."""
        self._versions = None
        self._net.clear()

    def find_changes(self, nodes: Mapping[str, Node], moved: Iterable[Queue], rules: int) -> Changes:
        """Returns what changed since the last look.

        *moved*: leaves that held less for a moment, or of which more is leaving or promised. *rules*: counts changes
        of what bounds queues and tells victims apart.
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
        """Returns the queues that hold more than at some moment since the last look: something of theirs arrived on a
        node.

        That is to be found on a node that changed, or has left again, and then its leaf is among those that *fell*.
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
    """Tells whether *queue* has a guarantee, or a max that is a quota."""
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
    """Returns what *node* could have free for an ask if everybody left whom no law protects from all asks alike."""
    amounts = list(node.beside)
    for allocation in node.allocations.values():
        if _may_go(allocation):
            for t, amount in allocation.shape.pairs:
                amounts[t] += amount
    return [min(pair) for pair in zip(amounts, node.capacity, strict=True)]


def _may_go(allocation: Allocation) -> bool:
    """Tells whether some ask might have *allocation* leave, as far as the state and its own leaf say."""
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
