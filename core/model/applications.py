"""Applications: their asks in order, their allocations, and their state."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from kornel.core.domain.application_states import AppState, StateEntry
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.orders.group_order import GroupOrder
from kornel.core.model.shapes import Shape, Vector, widen_vector
from kornel.core.model.task_groups import GroupMembers

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, AskGroup, Room, Together
    from kornel.core.model.orders.waiting_rooms import WaitingRoom
    from kornel.core.model.queues import Queue
    from kornel.core.model.task_groups import TaskGroup
    from kornel.core.model.users import Account

GroupKey: TypeAlias = (
    "Shape | tuple[Shape, str, bool, Together | str | None] | tuple[Shape, str, bool, Together | str | None, bool]"
)
"""Shape, required node, dependence and topology tell a group of asks from the others of its application. Most asks have
nothing but a shape, which takes no memory of its own."""

_RUNNING: Final = AppState.RUNNING
"""Kept as a constant, because reading a member from its class costs as much as a call."""
STARTS_WITHIN_NS: Final = 300 * 10**9
ASKS_WITHIN_NS: Final = 60 * 10**9
"""The longest time for which an application of which only the originator runs counts as starting, and how long it does
without an ask."""

STATES_KEPT: Final = 64
"""The most entries in the log of states, because an application may alternate between two states for ever."""


NO_REQUESTS: Final[dict[str, Allocation]] = {}
NO_GROUPS: Final[dict[GroupKey, AskGroup]] = {}
NO_TASK_GROUPS: Final[dict[str, TaskGroup]] = {}
NO_MEMBERS: Final[dict[str, GroupMembers]] = {}
NOTHING_LENT: Final[dict[int, int]] = {}
NO_SAVERS: Final[dict[Allocation, None]] = {}
NOTHING_SPENT: Final[dict[tuple[SpentKind, str], dict[int, int]]] = {}
NOBODY_WAITS: Final[Room] = {}
"""Empty containers, shared by all applications that have nothing to put into them, and never changed. Of a hundred
thousand applications, most wait for nothing, and containers of their own would take more memory than the rest of their
records. The code that adds the first entry makes a new container; the code that removes the last one may put the shared
one back."""


class SpentKind(StrEnum):
    """The kinds by which the usage of ended allocations is counted (rest.md 4.5, resourceHistory)."""

    REAL = "real"
    PREEMPTED = "preempted"
    PLACEHOLDER = "placeholder"


_REAL, _PREEMPTED, _PLACEHOLDER = SpentKind.REAL, SpentKind.PREEMPTED, SpentKind.PLACEHOLDER


@lru_cache(maxsize=256)
def _share_entry(now_ns: int, state: AppState) -> tuple[StateEntry]:
    return (StateEntry(now_ns, state),)


class Application:
    """An application in its leaf queue. ``real`` and ``placeholder`` are amounts held, ``pending`` is what it asks
    for."""

    __slots__ = (
        "_equals",
        "_group_numbers",
        "_lower",
        "accounts",
        "allocating",
        "allocations",
        "application_id",
        "asks",
        "asks_in_turn",
        "backoff_room",
        "backoff_until_ns",
        "entered",
        "groups",
        "held_at",
        "held_count",
        "held_groups",
        "leaves_whole",
        "limit_group",
        "members",
        "missing",
        "offered_by",
        "order",
        "peak",
        "pending",
        "placeholder",
        "placeholder_count",
        "placeholder_deadline_ns",
        "preempted_count",
        "priority",
        "queue",
        "rank",
        "real",
        "recorded_held_by_queue",
        "recorded_held_by_quota",
        "rooms",
        "savers",
        "set_back",
        "settled",
        "spec",
        "spent",
        "started_ns",
        "state",
        "submitted_ns",
        "task_groups",
        "timer_ns",
        "unschedulable",
        "user",
        "whole_ns",
    )  # fmt: skip

    def __init__(self, spec: ApplicationSpec, queue: Queue, user: str, now_ns: int, zeros: Vector) -> None:
        """Makes a new application. *zeros* has one for each type, and is shared by all that have held nothing yet."""
        self.spec: Final = spec
        self.application_id: Final = spec.application_id
        self.queue: Queue = queue
        self.user: Final = user
        self.state = AppState.NEW
        self.submitted_ns = now_ns
        """The earliest creation time of the application and its requests (scheduling.md 5.2)."""
        self.timer_ns: int | None = None
        """The time when the current state times out, or its start (``Queue.starting``); ``None``: never."""
        self.placeholder_deadline_ns: int | None = None
        """The time when its placeholders time out; ``None``: no such timer runs."""
        self.asks = NO_REQUESTS
        """The asks that are pending or are taking the place of a placeholder."""
        self.allocations = NO_REQUESTS
        self.placeholder_count = 0
        """The number of placeholders among ``allocations``."""
        self.task_groups = NO_TASK_GROUPS
        """The task groups that have had placeholders."""
        self.members = NO_MEMBERS
        """By task group, what is known of its members, whether they were asked for as placeholders or not."""
        self.missing = 0
        """The number of members that its task groups lack for their minimum since those were lost."""
        self.groups = NO_GROUPS
        self.order = GroupOrder()
        """The groups that are active."""
        self.rooms: tuple[WaitingRoom, ...] = ()
        """The waiting rooms in which groups of it take turns."""
        self.pending: Vector = zeros.copy()
        self.real = self.placeholder = self.peak = zeros
        """The most it held of each type before its last release; ``real`` and ``placeholder`` may be higher now.

        Real allocations and placeholders are counted apart, so that an ask that takes the place of a placeholder does
        not count twice. All three are one list, which is not its own, until it holds something
        (:meth:`own_amounts`).
        """
        self.priority = NOTHING_WAITS
        """The highest priority that its asks lend it, as it is shown (preemption.md G.1)."""
        self.rank: float = NOTHING_WAITS
        """The highest priority of its asks that are left to try, by which it is ordered among those that have some."""
        self.set_back = False
        """Tells whether none of its asks may be tried for now, so that it lends its queue no priority."""
        self.asks_in_turn = False
        """Tells whether some placeholder of it depends on other placements, so that they are placed one by one."""
        self.leaves_whole = False
        """Tells whether all members of a task group become victims once fewer than its minimum would be left."""
        self.whole_ns = 0
        """The time since when its gang has run with its minimum, or had once; 0: it has not yet."""
        self.preempted_count = 0
        self.unschedulable = 0
        """The number of asks that fitted on no node since the last back-off ended or the last ask was placed."""
        self.backoff_until_ns = 0
        """The time before which none of its asks is tried; 0: there is no back-off."""
        self.backoff_room = NOBODY_WAITS
        """The groups that wait for the end of the back-off."""
        self.held_count = 0
        """The number of asks that are held on a node while the shim is asked about them."""
        self.savers = NO_SAVERS
        """The asks of it that save room on nodes by age."""
        self.accounts: tuple[Account, ...] = ()
        """The accounts in which its usage is counted for limits of its user and group, the root's first."""
        self.limit_group: str | None = None
        """The group whose limits apply to it, chosen once (config.md 10.2); ``None``: none does."""
        self.allocating = False
        """Tells whether it is counted in ``Queue.allocating`` on its path."""
        self.held_at: Queue | Account | None = None
        """The limit on applications that keeps it from starting; ``None``: none does."""
        self.held_groups = NOBODY_WAITS
        """The waiting room of its groups while ``held_at`` is set."""
        self.offered_by: Queue | Account | None = None
        """The limit that kept it back and now offers it a slot; if it does not start, the next application gets the
        slot."""
        self.recorded_held_by_queue = False
        """Tells whether, according to the event history, a queue's limit on applications keeps it from starting."""
        self.recorded_held_by_quota = False
        """Tells whether, according to the event history, a limit of its user or group keeps it from starting."""
        self.entered: tuple[StateEntry, ...] = ()
        """The states that it entered, with the times: the last :data:`STATES_KEPT`."""
        self.started_ns = 0
        """The time when it first was Running; 0: never."""
        self.settled = False
        """Tells whether it is Running and does not count as starting (``Queue.starting``)."""
        self.spent = NOTHING_SPENT
        """The usage of its ended allocations, by kind and instance type, then resource type: amount times seconds."""
        self._equals = 0
        """The number of further ones that lend it ``priority``, apart from the first."""
        self._lower = NOTHING_LENT
        """The numbers of those that lend it lower priorities, by priority."""
        self._group_numbers = 0

    def enter_state(self, state: AppState, now_ns: int) -> None:
        """Set *state* and note the time."""
        self.state = state
        self.settled = state is _RUNNING
        # Many applications come at once, and do not keep an entry each.
        entry = _share_entry(now_ns, state)
        self.entered = (*self.entered[1 - STATES_KEPT :], *entry) if self.entered else entry
        if self.settled and not self.started_ns:
            self.started_ns = now_ns

    def start_ends_ns(self) -> int:
        """Returns the time from which it counts as started in any case: a driver that never asks is no driver."""
        return self.started_ns + (STARTS_WITHIN_NS if self.asks else ASKS_WITHIN_NS)

    def own_amounts(self) -> None:
        """Give it amounts of its own, because it holds something from now on."""
        self.real, self.placeholder, self.peak = self.real.copy(), self.real.copy(), self.real.copy()

    def next_group_number(self) -> int:
        """Returns a number that no earlier group of the application had."""
        self._group_numbers += 1
        return self._group_numbers

    def members_in(self, task_group: str) -> GroupMembers:
        """Returns the record of the members of *task_group*, which is made with the first of them."""
        found = self.members.get(task_group)
        if found is None:
            found = GroupMembers()
            self.members = {**self.members, task_group: found}
        return found

    @property
    def states_minimum(self) -> bool:
        """Tells whether one of its task groups is said to be of no use with a single member."""
        return any((group.stated_minimum or 1) > 1 for group in self.task_groups.values())

    def holds_any(self, *, placeholders: bool) -> bool:
        """Tells whether it holds an allocation of the given kind."""
        if placeholders:
            return self.placeholder_count > 0
        return len(self.allocations) > self.placeholder_count

    def confirmed_amounts(self) -> Vector:
        """Returns ``real`` without what is charged for asks while the shim is asked about them."""
        if not self.held_count:
            return self.real
        confirmed = list(self.real)
        for ask in self.asks.values():
            if ask.place is AskPlace.HELD and not ask.spec.placeholder:
                for t, amount in ask.shape.pairs:
                    confirmed[t] -= amount
        return confirmed

    def update_lent(self, before: int, now: int) -> None:
        """Update the priority that one of its groups (or asks outside of groups) lends it from *before* to *now*.

        The cost is constant unless the highest one is removed; then it is linear in the distinct priorities.
        """
        if now != NOTHING_WAITS:
            highest = self.priority
            if now > highest:
                if highest != NOTHING_WAITS:
                    self._count_lower(highest, 1 + self._equals)
                    self._equals = 0
                self._set_priority(now)
            elif now == highest:
                self._equals += 1
            else:
                self._count_lower(now, 1)
        if before != NOTHING_WAITS:
            if before != self.priority:
                self._count_lower(before, -1)
            elif self._equals:
                self._equals -= 1
            elif not self._lower:
                self._set_priority(NOTHING_WAITS)
            else:
                highest = max(self._lower)
                self._equals = self._lower[highest] - 1
                self._count_lower(highest, -self._lower[highest])
                self._set_priority(highest)

    def _count_lower(self, priority: int, more: int) -> None:
        if not self._lower:
            self._lower = {}
        count = self._lower.get(priority, 0) + more
        if count:
            self._lower[priority] = count
        else:
            del self._lower[priority]
            self._lower = self._lower or NOTHING_LENT

    def update_rank(self) -> None:
        """Determine the rank again, because other groups of it are active or begin with another ask than before."""
        first = self.order.first_group()
        rank = NOTHING_WAITS if first is None else first.first_ask().turn_priority
        if rank != self.rank:
            self.queue.order.mark_changed(self)
            self.set_rank(rank)
        for room in self.rooms:
            room.review_rank(self)

    def mark_turn(self) -> None:
        """Note that its place among the applications of its leaf may have changed, where it is tried and where it
        waits."""
        self.queue.order.mark_changed(self)
        for room in self.rooms:
            room.mark_changed(self, self.queue)

    def set_rank(self, rank: float) -> None:
        """Rank its leaf by *rank* from now on. Its own place there is marked by the caller, as it usually comes or goes
        at the same time."""
        before, self.rank = self.rank, rank
        self.queue.update_rank(before, rank)

    def _set_priority(self, priority: int) -> None:
        before, self.priority = self.priority, priority
        if not self.set_back:
            self.queue.update_shown(before, priority)

    def step_back(self) -> None:
        """Rank the queue without the application, because none of its asks may be tried for now."""
        if not self.set_back:
            self.set_back = True
            self.queue.update_shown(self.priority, NOTHING_WAITS)

    def come_forward(self) -> None:
        """Rank the queue with the application again, because its asks may be tried."""
        if self.set_back:
            self.set_back = False
            self.queue.update_shown(NOTHING_WAITS, self.priority)

    def note_end(self, allocation: Allocation, now_ns: int) -> None:
        """Adds what *allocation*, which is about to leave its node, has used there: its amounts times whole seconds
        (rest.md 4.5, resourceHistory)."""
        node, seconds = allocation.node, (now_ns - allocation.bound_ns) // 10**9
        if node is None or seconds <= 0:
            return
        kind = _PREEMPTED if allocation.preempted else _PLACEHOLDER if allocation.spec.placeholder else _REAL
        if not self.spent:
            self.spent = {}
        amounts = self.spent.setdefault((kind, node.instance_type), {})
        for t, amount in allocation.shape.pairs:
            amounts[t] = amounts.get(t, 0) + amount * seconds

    def most_held(self) -> Vector:
        """Returns the most it ever held of each type: the larger of what real allocations and placeholders held."""
        return list(map(max, self.confirmed_amounts(), self.placeholder, self.peak))

    def widen_amounts(self, width: int) -> None:
        """Extend all amounts to *width* types."""
        for vector in (self.pending, self.real, self.placeholder, self.peak):
            widen_vector(vector, width)

    def __repr__(self) -> str:
        return f"Application({self.application_id} in {self.queue.path}, {self.state})"
