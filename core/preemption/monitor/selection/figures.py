"""Takes one picture of the queues for a whole round: what they are guaranteed, use and want before anything is decided.

Usage leaves out victims that are leaving and includes what asks have claimed. Demand is what preemption may serve: it
leaves out asks that may not preempt, have preempted already, require a node, wait for a placeholder of their own, are
kept back by a limit of their user, join a gang that leaves as a whole, are larger than every node, or are refused by
law 4. A guarantee that a level does not declare is derived from the levels around it. Rule: preemption.md E.3 (G, Mx,
U, P), E.8, H.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final, Protocol

from kornel.core.domain.priorities import NOTHING_WAITS, exposed_priority
from kornel.core.domain.settings import PreemptionPolicyKind, PriorityPolicy
from kornel.core.domain.topology import Wish
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, Shape
from kornel.core.model.users import Account
from kornel.core.policies.guarantees import HeldBy, project_usage
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.entitlement import Entitlement, find_entitlement
from kornel.core.preemption.gang_losses import is_leaving_whole

Amounts = dict[int, int]
"""Amounts by type index."""

_APPLICATIONS_A_PIECE: Final = 200
_NODES_A_PIECE: Final = 1_000
_MEMBERS_A_LOOK: Final = 10
"""The number of asks that can be checked for whether they may preempt in the time of one look at an allocation."""


class MonitorView(PartitionView, Protocol):
    """The records that the periodic policy looks at besides the queues and nodes."""

    @property
    def requests(self) -> Mapping[str, Allocation]:
        """Every ask and allocation by its key."""
        ...

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """The reservations of the partition, by the key of their ask."""

    @property
    def refused(self) -> Mapping[Shape, Mapping[frozenset[str], Mapping[Allocation, None]]]:
        """Asks that the shim refuses on every node with room for now."""
        ...


class QueueFigures:
    """The figures of one queue in a round."""

    __slots__ = (
        "capped", "ceilings", "children", "coming", "counted", "demand", "disabled", "fenced", "going", "guaranteed",
        "leaf", "lineage", "net", "parent", "queue", "reserved", "shown", "unentitled", "used",
    )  # fmt: skip

    def __init__(self, queue: Queue, parent: QueueFigures | None) -> None:
        properties = queue.properties
        self.queue: Final = queue
        self.parent: Final = parent
        self.leaf: Final = queue.leaf
        self.guaranteed: Final[Amounts] = dict(queue.guaranteed)
        """The guarantees by type, declared or, for types that this queue does not declare, derived
        (:func:`derive_guarantees`)."""
        self.ceilings: Final[Amounts] = {} if parent is None else dict(parent.ceilings)
        """By type, the least of its own max and those of its ancestors, without the root."""
        if parent is not None:
            for t, most in queue.max.items():
                self.ceilings[t] = min(most, self.ceilings.get(t, most))
        self.net: Final = [used - leaving for used, leaving in zip(queue.used, queue.preempting, strict=True)]
        """The amounts used once present victims have left."""
        self.used: Final = [net + claimed for net, claimed in zip(self.net, queue.claimed, strict=True)]
        """The amounts used once present victims have left and their preemptors have started."""
        self.demand: Final[Amounts] = {}
        self.unentitled: Final[Amounts] = {}
        """The demand of asks that law 4 refuses by the declared guarantees; it only counts for balance."""
        self.reserved: Final[Amounts] = {}
        """The part of ``demand`` for which a node is kept free."""
        self.disabled: Final = properties.preemption_policy is PreemptionPolicyKind.DISABLED
        self.fenced: Final = properties.preemption_policy is PreemptionPolicyKind.FENCE
        self.shown = queue.priority
        """The priority that it shows its parent, including asks with a reservation by age and asks that are refused
        everywhere."""
        self.children: Final[list[QueueFigures]] = []
        self.lineage: Final[tuple[QueueFigures, ...]] = (self, *(parent.lineage if parent is not None else ()))
        """This queue and its ancestors, the root last."""
        self.capped: Final = tuple(figures for figures in self.lineage[:-1] if figures.queue.max)
        """The queues in ``lineage``, without the root, that have a max of their own."""
        self.counted: tuple[QueueFigures, ...] = ()
        """The queues in ``lineage``, without the root, that have a guarantee or a max, so that changes of their usage
        matter."""
        self.coming: Final[Amounts] = {}
        """The amounts, by type, of asks in and below this queue that have a place in this round."""
        self.going: Final[Amounts] = {}
        """The amounts, by type, of tasks in and below this queue that are to leave in this round."""

    def projected(self, t: int) -> int:
        """Returns what is used of type *t* once the places of this round are taken."""
        return self.used[t] + self.coming.get(t, 0) - self.going.get(t, 0)

    @property
    def priority(self) -> int:
        """The priority that it shows its parent; if nothing waits, as if its tasks had priority 0."""
        return self.queue.properties.priority_offset if self.shown == NOTHING_WAITS else self.shown


class Picture:
    """All queues of a partition at one moment, parents before their children."""

    __slots__ = ("_leaves", "cluster", "of", "queues", "root")

    def __init__(self, root: Queue) -> None:
        self.cluster: Final[Amounts] = dict(root.max)
        self.root: Final = QueueFigures(root, None)
        self.queues: Final[list[QueueFigures]] = [self.root]
        for figures in self.queues:
            for name in sorted(figures.queue.children):
                child = QueueFigures(figures.queue.children[name], figures)
                figures.children.append(child)
                self.queues.append(child)
        self.of: Final = {figures.queue: figures for figures in self.queues}
        leaves = (figures for figures in self.queues if figures.leaf)
        self._leaves: Final = sorted(leaves, key=lambda figures: figures.queue.path)

    def leaves_by_path(self) -> list[QueueFigures]:
        """Returns the leaves, sorted by path."""
        return self._leaves


def draw_picture(view: MonitorView) -> Generator[int, None, Picture]:
    """Computes the figures of the queues of *view* in pieces of work, and returns them. Usage is that of the first
    step."""
    found = Picture(view.root)
    yield len(found.queues)
    largest = yield from _find_largest(view)
    taken: dict[Account, Amounts] = {}
    for figures in found.queues:
        if figures.leaf and figures.queue.waiting:
            yield from _count_demand(view, figures, largest, taken)
    for reservation in list(view.reservations.values()):
        ask = reservation.ask
        if reservation.by_age and waits_for_room(ask):
            _count_wanted(view, found, ask, largest, reserved=True)
    for rooms in list(view.refused.values()):
        for ask in [ask for room in rooms.values() for ask in room if ask.reservation is None and waits_for_room(ask)]:
            _count_wanted(view, found, ask, largest)
    for figures in reversed(found.queues):
        above = figures.parent
        if above is not None:
            for t, amount in figures.demand.items():
                above.demand[t] = above.demand.get(t, 0) + amount
            for t, amount in figures.reserved.items():
                above.reserved[t] = above.reserved.get(t, 0) + amount
            for t, amount in figures.unentitled.items():
                above.unentitled[t] = above.unentitled.get(t, 0) + amount
    derive_guarantees(found)
    for figures in found.queues:
        figures.counted = tuple(above for above in figures.lineage[:-1] if above.guaranteed or above.queue.max)
    yield len(found.queues) * 2
    return found


def waits_for_room(ask: Allocation) -> bool:
    """Tells whether the monitor may make room for *ask* alone: it may preempt, has not preempted yet, requires neither
    a node nor a domain, saves no room as a member of a gang, and joins none that leaves as a whole."""
    spec, claim = ask.spec, ask.reservation
    in_domain = spec.topology is not None and spec.topology.wish == Wish.REQUIRED
    in_gang = claim is not None and claim.least is not None
    barred = ask.triggered or spec.required_node or in_domain or in_gang
    return spec.allow_preempt_other and not barred and not is_leaving_whole(ask.application)


def derive_guarantees(found: Picture) -> None:
    """Derives guarantees of types that a queue does not declare itself, from the levels around it.

    A queue has at least the sum of the guarantees of its children. It also has a share of the part of its parent's
    guarantee that no child declares: as much as it uses and wants, but no more than an equal part while other children
    want more.
    """
    for figures in reversed(found.queues):
        if figures.parent is None:
            continue
        owed: Amounts = {}
        for child in figures.children:
            for t, amount in child.guaranteed.items():
                owed[t] = owed.get(t, 0) + amount
        for t, amount in owed.items():
            figures.guaranteed.setdefault(t, amount)
    for figures in found.queues:
        if figures.parent is None:
            continue
        for t, amount in figures.guaranteed.items():
            sharing = [child for child in figures.children if t not in child.queue.guaranteed]
            if sharing:
                _share_out(sharing, t, amount - sum(child.guaranteed.get(t, 0) for child in figures.children))


def _share_out(sharing: list[QueueFigures], t: int, left: int) -> None:
    """Splits what is *left* of the parent's guarantee among the queues *sharing*, in addition to the guarantees of
    their own children."""
    if left <= 0:
        return
    caps = [(child.used[t] + child.demand.get(t, 0) - child.guaranteed.get(t, 0), child) for child in sharing]
    wanting = sorted(((cap, child) for cap, child in caps if cap > 0), key=lambda pair: (pair[0], pair[1].queue.name))
    for at, (cap, child) in enumerate(wanting):
        part = min(cap, left // (len(wanting) - at))
        left -= part
        if part:
            child.guaranteed[t] = child.guaranteed.get(t, 0) + part


def _find_largest(view: MonitorView) -> Generator[int, None, Amounts]:
    """Computes, by type, the largest capacity of a schedulable node."""
    largest: Amounts = {}
    for looked_at, node in enumerate(list(view.nodes.values()), 1):
        if node.schedulable:
            for t, amount in enumerate(node.capacity):
                if amount > largest.get(t, 0):
                    largest[t] = amount
        if looked_at % _NODES_A_PIECE == 0:
            yield _NODES_A_PIECE // 2
    return largest


def entitlement_of(view: MonitorView, ask: Allocation, held_by: HeldBy = project_usage) -> Entitlement | None:
    """Returns what the declared guarantees entitle *ask* to (law 4); ``None``: to nothing. *held_by* returns what a
    queue holds of a type."""
    found = find_entitlement(ask, view.guarantee_mode, view.types.names, held_by)
    return found if isinstance(found, Entitlement) else None


def _count_demand(
    view: MonitorView, figures: QueueFigures, largest: Amounts, taken: dict[Account, Amounts]
) -> Generator[int, None, None]:
    """Counts the demand of waiting asks in a leaf. *taken*: what was counted so far against each limit of a user or
    group."""
    looked_at = 0
    for application in list(figures.queue.applications.values()):
        for group in [] if is_leaving_whole(application) else list(application.groups.values()):
            looked_at += 1
            if not group.size or group.kept_back or group.required_node or not _could_run(group.shape.pairs, largest):
                continue
            members = group.unordered_asks()
            looked_at += len(members) // _MEMBERS_A_LOOK
            unwilling = {ask for ask in members if not ask.spec.allow_preempt_other}
            count = _within_limits(group.first_ask(), group.size - len(unwilling), taken)
            if count:
                _add(figures, group.shape.pairs, count, entitled=entitlement_of(view, group.first_ask()) is not None)
            if looked_at >= _APPLICATIONS_A_PIECE:
                yield looked_at
                looked_at = 0
        looked_at += 1
        if looked_at >= _APPLICATIONS_A_PIECE:
            yield looked_at
            looked_at = 0
    yield looked_at


def _within_limits(ask: Allocation, count: int, taken: dict[Account, Amounts]) -> int:
    """Returns how many of *count* asks such as *ask* fit under the limits of its user and group, and adds these to
    *taken*."""
    pairs = ask.shape.pairs
    for account in ask.accounts:
        count = account.count_fitting(pairs, count, taken.get(account, {}))
    for account in ask.accounts:
        used = taken.setdefault(account, {})
        for t, amount in pairs:
            used[t] = used.get(t, 0) + amount * count
    return count


def _could_run(pairs: Pairs, largest: Amounts) -> bool:
    return all(amount <= largest.get(t, 0) for t, amount in pairs)


def _count_wanted(
    view: MonitorView, found: Picture, ask: Allocation, largest: Amounts, *, reserved: bool = False
) -> None:
    figures = found.of.get(ask.queue)
    if figures is not None and _could_run(ask.shape.pairs, largest):
        _add(figures, ask.shape.pairs, 1, entitled=entitlement_of(view, ask) is not None, reserved=reserved)
        _show(figures, ask.priority)


def _show(leaf: QueueFigures, priority: int) -> None:
    """Raises the priorities that *leaf* and the queues above it show, as if an ask of *priority* lent it to them."""
    shown = priority
    for figures in leaf.lineage:
        shown = shown_by(figures.queue, shown)
        if shown <= figures.shown:
            return
        figures.shown = shown


def shown_by(queue: Queue, priority: int) -> int:
    """Returns the priority that *queue* shows its parent for *priority* below it."""
    properties = queue.properties
    return exposed_priority(
        priority, properties.priority_offset, fenced=properties.priority_policy is PriorityPolicy.FENCE
    )


def _add(figures: QueueFigures, pairs: Pairs, count: int, *, entitled: bool, reserved: bool = False) -> None:
    counted = figures.demand if entitled else figures.unentitled
    for t, amount in pairs:
        counted[t] = counted.get(t, 0) + amount * count
        if reserved:
            figures.reserved[t] = figures.reserved.get(t, 0) + amount
