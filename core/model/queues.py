"""Defines the queue tree: what each queue may use, uses and has claimed, and which of its children have asks to be
placed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kornel.core.domain.access import NOBODY, AccessList
from kornel.core.domain.priorities import NOTHING_WAITS, Rank, exposed_priority
from kornel.core.domain.settings import PriorityPolicy, QueueProperties
from kornel.core.model.orders.keyed_heap import KeyedHeap
from kornel.core.model.shapes import Pairs, Shape, Vector, widen_vector
from kornel.core.model.users import NO_LIMITS, Account, AccountKind, QueueLimits

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim
    from kornel.core.model.applications import Application
    from kornel.core.model.orders.waiting_rooms import WaitingRoom


@dataclass(frozen=True, slots=True)
class DynamicTerms:
    """The settings of dynamic queues below a managed parent: those of its child template, and what they inherit.

    Template amounts by type index; in ``max`` an absent type is unlimited. max_applications: 0 is unlimited.
    """

    parent_properties: QueueProperties
    leaf_properties: QueueProperties
    guaranteed: Mapping[int, int]
    max: Mapping[int, int]
    max_applications: int


class Queue:
    """A parent or leaf queue. Amounts cover the whole subtree, by type index.

    used       allocated, including victims that have not left yet
    pending    waiting asks
    preempting victims whose release is not confirmed yet
    claimed    asks that preempted and are not placed yet
    saved      asks for which room is saved on a node because they have waited long
    guaranteed declared amounts above 0; absent: no guarantee
    max        declared ceilings, including 0; absent: unlimited. At the root, the capacity of the nodes

    submit_acl, admin_acl  its own lists; ancestors may grant more
    max_applications       the most that run at once below; 0: unlimited
    dynamic_terms          the settings of new dynamic queues below; for a dynamic leaf, those with which it was made;
                           ``None`` for managed leaves and the recovery queue
    """

    __slots__ = (
        "_guaranteed_below", "_lineage", "_priorities", "_ranks", "accounts", "active_users", "admin_acl", "allocating",
        "applications", "ceilings", "children", "claimants", "claimed", "claims", "counted", "depth", "draining",
        "dynamic_terms", "fair_max", "fair_terms", "guaranteed", "held_back", "in_line", "leaf", "limits", "managed",
        "max", "max_applications", "name", "newcomers", "order", "parent", "parked", "path", "pending",
        "preempted_count", "preempted_total", "preempting", "priority", "properties", "rank", "rooms", "running",
        "saved", "saving", "set_back", "siblings", "starting", "submit_acl", "turns", "used", "waiting", "wasted",
        "with_due",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        parent: Queue | None,
        *,
        leaf: bool,
        properties: QueueProperties,
        width: int,
        order_key: Callable[[Any], Any],
    ) -> None:
        """Makes an empty queue. *order_key* orders the active children of a parent, or the active applications of a
        leaf."""
        self.name: Final = name
        self.parent: Final = parent
        self.path: Final[str] = name if parent is None else f"{parent.path}.{name}"
        self.depth: Final[int] = 0 if parent is None else parent.depth + 1
        self.leaf = leaf
        self.managed = True
        self.draining = False
        self.properties = properties
        self.submit_acl: AccessList = NOBODY
        self.admin_acl: AccessList = NOBODY
        self.max_applications = 0
        self.dynamic_terms: DynamicTerms | None = None
        self.children: dict[str, Queue] = {}
        self.applications: dict[str, Application] = {}
        self.guaranteed: dict[int, int] = {}
        self.max: dict[int, int] = {}
        self.ceilings: Pairs = ()
        """``max`` as pairs, for the scheduling loop. It is empty at the root, whose max is the size of the cluster and
        not a quota."""
        self.counted: dict[int, int] = {}
        """The guarantee with which it counts in the order of queues: its own, or for types of which it declares none,
        what its children count with together (scheduling.md 2.5)."""
        self._guaranteed_below: dict[int, int] = {}
        self.fair_max: Pairs = ()
        """The maximum that it has or inherits, as pairs; at the root, the size of the cluster."""
        self.fair_terms: Pairs = ()
        """The denominators of its fair share: ``counted``, otherwise ``fair_max``."""
        self.used: Vector = [0] * width
        self.pending: Vector = [0] * width
        self.preempting: Vector = [0] * width
        self.claimed: Vector = [0] * width
        self.saved: Vector = [0] * width
        self.claimants: dict[Allocation, None] = {}
        """The asks of a leaf that have preempted and are not placed yet."""
        self.claims = 0
        """The number of asks below that have preempted and are not placed yet."""
        self.waiting = 0
        """The number of pending asks below."""
        self.preempted_count = 0
        self.preempted_total: Vector = [0] * width
        """The number of allocations ever preempted from this queue."""
        self.wasted: Final[dict[str, dict[int, int]]] = {}
        """The work that tasks lost by preemption, in resource-seconds by kind and type."""
        self.order: KeyedHeap[Any] = KeyedHeap(order_key)
        """The active children (or applications) in order, the first one first."""
        self.siblings: Final[KeyedHeap[Any] | None] = parent.order if parent is not None else None
        """The order of its parent, in which it is while something below is active; ``None`` for the root."""
        self.rooms: dict[WaitingRoom, None] = {}
        """The waiting rooms in which somebody below it takes turns."""
        self.turns: dict[Allocation | AskGroup, tuple[Any, ...]] = {}
        """The asks of a leaf that depend on other placements and wait until the shim has judged them, and groups of
        such asks that found the line full. Each has its place in the order of the leaf, behind which nobody is placed
        meanwhile."""
        self.set_back = False
        """Tells whether nobody in a leaf is tried for now, because the first stands behind one of ``turns``."""
        self.newcomers: KeyedHeap[Application] | None = None
        """The applications of a leaf sorted ``stateaware`` that could start but have not started. Only one of them may
        start at a time."""
        self.starting: dict[Application, None] = {}
        """The applications of a leaf sorted ``stateaware`` of which only the originator runs so far."""
        self.parked: dict[Shape, WaitingRoom] = {}
        """The groups that this queue's max keeps back, by shape."""
        self.saving: LimitClaim | None = None
        """The claim that saves what comes free below its max."""
        self.max_applications = 0
        """The number of applications that may run below at once; 0: unlimited (scheduling.md 12)."""
        self.running = 0
        """The number of applications below in state Running, which has no limit of its own (S-22)."""
        self.allocating: dict[Application, None] = {}
        """The applications below that are not Running yet and have an allocation or a reservation."""
        self.held_back: dict[Queue, KeyedHeap[Application]] = {}
        """The accepted applications that ``max_applications`` keeps from starting, by leaf."""
        self.limits: QueueLimits = NO_LIMITS
        """The user and group limits that the configuration states for this queue."""
        self.accounts: dict[tuple[AccountKind, str], Account] = {}
        """The users and groups that a limit of this queue binds at present."""
        self.active_users = 0
        """The number of users with asks that wait in a leaf, where users share its capacity."""
        self.priority = NOTHING_WAITS
        """The priority that is shown for this queue (preemption.md G.1)."""
        self.rank: float = NOTHING_WAITS
        """The priority with which it is ordered among its siblings: that of asks below that are left to try."""
        self.with_due: dict[Application, None] = {}
        """At the root, all applications of which an attempt to preempt may be due, and perhaps others. A round looks at
        no others, because nearly all applications of a large cluster have none."""
        self.in_line: KeyedHeap[AskGroup] | None = None
        """At the root, the groups that no node has room for, in the line in which room is saved."""
        self._priorities: dict[int, int] = {}
        self._ranks: dict[float, int] = {}
        self._lineage: tuple[Queue, ...] = (self, *(parent.lineage() if parent is not None else ()))

    def __repr__(self) -> str:
        return f"Queue({self.path})"

    def __str__(self) -> str:
        return self.path

    def lineage(self) -> tuple[Queue, ...]:
        """Returns this queue and its ancestors, root last."""
        return self._lineage

    def dissolve(self) -> None:
        """Drops everything below the queue, and its own place in the tree. Nothing may be booked here any more.

        Otherwise the queue would never be freed, because its lineage and its applications refer to it.
        """
        self._lineage = ()
        self.children.clear()
        self.applications.clear()
        self.with_due.clear()
        self.parked.clear()
        self.rooms.clear()
        self.saving = None
        self.held_back.clear()
        self.allocating.clear()
        self.starting.clear()
        self.claimants.clear()
        self.turns.clear()
        for account in self.accounts.values():
            account.saving = None
        self.accounts.clear()
        self.order.clear()
        for order in (self.newcomers, self.in_line):
            if order is not None:
                order.clear()

    def admits(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* fit under this queue's own max, without regard to its ancestors."""
        if self.ceilings:
            ceilings, used = self.max, self.used
            for t, amount in pairs:
                if t in ceilings and used[t] + amount > ceilings[t]:
                    return False
            if self.claims:
                return self.admits_beside_claims(pairs)
        return True

    def has_room(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* fit under this queue's own max now, whatever is claimed. This is the check for an ask
        that has a claim itself."""
        used, ceilings = self.used, self.max
        return all(t not in ceilings or used[t] + amount <= ceilings[t] for t, amount in pairs)

    def could_hold(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* would fit under its own max if nobody held anything below."""
        return all(amount <= self.max.get(t, amount) for t, amount in pairs)

    def admits_beside_claims(self, pairs: Pairs) -> bool:
        """Tells whether *pairs* fit under this queue's own max once victims have left and their preemptors are placed.

        The room for which an ask has preempted is claimed; if another ask took it, the victims would leave in vain.
        """
        used, preempting, claimed = self.used, self.preempting, self.claimed
        for t, amount in pairs:
            if t in self.max and used[t] - preempting[t] + claimed[t] + amount > self.max[t]:
                return False
        return True

    def count_taken(self, t: int) -> int:
        """Returns how much of type *t* is used, or will be once victims have left and their preemptors are placed."""
        return max(self.used[t], self.used[t] - self.preempting[t] + self.claimed[t])

    def open(self) -> bool:
        """Tells whether this queue's own limit allows one more application to start below."""
        return not self.max_applications or self.running + len(self.allocating) < self.max_applications

    def set_limits(self, guaranteed: dict[int, int], maximum: dict[int, int]) -> None:
        """Replace the guaranteed amounts (of which 0 means none) and the max."""
        self.guaranteed = {t: amount for t, amount in guaranteed.items() if amount > 0}
        self.max = maximum
        self.ceilings = tuple(maximum.items()) if self.parent is not None else ()
        self._count_guarantees()

    def set_fair_max(self, fair_max: Mapping[int, int]) -> None:
        """Replace the maximum that it has or inherits, to which its usage is compared where nobody guarantees
        anything."""
        self.fair_max = tuple(sorted(fair_max.items()))
        self.fair_terms = tuple(sorted({**fair_max, **self.counted}.items()))

    def _count_guarantees(self) -> None:
        """Determine again the guarantee with which it counts, and that of its ancestors as far as it changes."""
        before, self.counted = self.counted, {**self._guaranteed_below, **self.guaranteed}
        parent = self.parent
        if self.counted == before or parent is None:
            return
        self.set_fair_max(dict(self.fair_max))
        self.mark_turn()
        sums = parent._guaranteed_below
        below = {t: sums.get(t, 0) - before.get(t, 0) + self.counted.get(t, 0) for t in {**sums, **self.counted}}
        parent._guaranteed_below = {t: amount for t, amount in below.items() if amount}
        parent._count_guarantees()

    def above_max(self) -> dict[int, int]:
        """Returns what the queue holds above its max, including victims that have not left yet."""
        used = self.used
        return {t: used[t] - most for t, most in self.max.items() if used[t] > most}

    def widen_amounts(self, width: int) -> None:
        """Extend all amounts to *width* types."""
        for vector in (
            self.used, self.pending, self.preempting, self.claimed, self.saved, self.preempted_total,
        ):  # fmt: skip
            widen_vector(vector, width)
        for account in self.accounts.values():
            widen_vector(account.used, width)
            widen_vector(account.claimed, width)
            widen_vector(account.saved, width)

    def mark_turn(self) -> None:
        """Note that its place among its siblings may have changed, where it is tried and where it waits."""
        parent = self.parent
        if parent is not None:
            parent.order.mark_changed(self)
            for room in self.rooms:
                room.mark_changed(self, parent)

    def update_shown(self, before: int, now: int) -> None:
        """Update the priority that a child (or application) shows from *before* to *now*, and the priorities above as
        far as they change."""
        # All asks pass here and below, nearly always with a priority that others have too: what occurs stays the same.
        counts = self._priorities
        if before == NOTHING_WAITS and now in counts:
            counts[now] += 1
        elif now == NOTHING_WAITS and counts.get(before, 0) > 1:
            counts[before] -= 1
        else:
            exchange_priority(counts, before, now)
            self._refresh_shown()

    def update_rank(self, before: float, now: float) -> None:
        """Update the rank of a child (or application) from *before* to *now*, and the ranks above as far as they
        change."""
        counts = self._ranks
        if before == NOTHING_WAITS and now in counts:
            counts[now] += 1
        elif now == NOTHING_WAITS and counts.get(before, 0) > 1:
            counts[before] -= 1
        else:
            exchange_priority(counts, before, now)
            self._refresh_rank()

    def step_back(self) -> None:
        """Rank the queues above without this leaf, because nobody in it may be tried for now."""
        self.set_back = True
        self._refresh_rank()

    def come_forward(self) -> None:
        """Rank the queues above with this leaf again."""
        self.set_back = False
        self._refresh_rank()

    def refresh_priorities(self) -> None:
        """Compute the priority that is shown and the rank again, and those of ancestors as far as they change."""
        self._refresh_shown()
        self._refresh_rank()
        for room in self.rooms:
            room.refresh_rank(self)

    def _refresh_shown(self) -> None:
        shown = self.expose_priority(self._priorities)
        if shown != self.priority:
            before, self.priority = self.priority, shown
            if self.parent is not None:
                self.parent.update_shown(before, shown)

    def _refresh_rank(self) -> None:
        rank = NOTHING_WAITS if self.set_back else self.expose_priority(self._ranks)
        if rank != self.rank:
            before, self.rank = self.rank, rank
            if self.parent is not None:
                self.parent.order.mark_changed(self)
                self.parent.update_rank(before, rank)

    def expose_priority(self, priorities: Iterable[Rank]) -> Rank:
        """Returns the priority or rank that others see of this queue if *priorities* are those below (preemption.md
        G)."""
        return exposed_priority(
            max(priorities, default=NOTHING_WAITS),
            self.properties.priority_offset,
            fenced=self.properties.priority_policy is PriorityPolicy.FENCE,
        )


Number = TypeVar("Number", int, float)


def exchange_priority(counts: dict[Number, int], before: Number, now: Number) -> None:
    """Replaces one *before* by one *now* in *counts*, in which nothing is not counted."""
    if now != NOTHING_WAITS:
        counts[now] = counts.get(now, 0) + 1
    if before != NOTHING_WAITS:
        left = counts[before] - 1
        if left:
            counts[before] = left
        else:
            del counts[before]
