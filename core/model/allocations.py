"""Defines the record of an ask, which is also the record of the allocation that the ask becomes."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar, overload

from kornel.core.domain.ask_places import AskPlace, WaitsFor
from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.priorities import NOTHING_WAITS, REPAIR
from kornel.core.domain.reasons import Outcome

if TYPE_CHECKING:
    from kornel.core.domain.topology import TopologyRequest
    from kornel.core.model.applications import Application, GroupKey
    from kornel.core.model.callbacks import Inquiry
    from kornel.core.model.claim_clocks import ClaimClock
    from kornel.core.model.nodes import Node
    from kornel.core.model.not_placed import Failures
    from kornel.core.model.orders.waiting_rooms import WaitingRoom
    from kornel.core.model.queues import Queue
    from kornel.core.model.recorded_events import RecordedEvents
    from kornel.core.model.shapes import Pairs, Shape
    from kornel.core.model.task_groups import TaskGroup
    from kornel.core.model.users import Account


SEPARATOR: Final = "\uffff"
"""A noncharacter, which no text in an exchange may contain, so that no accepted key has it."""


NO_VICTIMS: Final[dict[str, Allocation]] = {}
NONE_STUCK: Final[dict[str, str]] = {}
"""The empty mapping that all asks without stuck victims share; never changed."""

_NOWHERE: Final = AskPlace.NOWHERE
"""Kept as constants, this one and those below, because reading a member from its class costs as much as a call, and
every ask is tested."""
_WAITING: Final = AskPlace.WAITING
_POOLED: Final = AskPlace.POOLED
_HELD: Final = AskPlace.HELD
_REFUSED: Final = AskPlace.REFUSED
_REPLACING: Final = AskPlace.REPLACING
_PREEMPTED: Final = AskPlace.PREEMPTED
_RELEASED: Final = AskPlace.RELEASED
LEAVING: Final = (_PREEMPTED, _RELEASED)
"""The places of allocations that were asked to leave."""

_NOT_BY_PREEMPTION: Final = (WaitsFor.USER_LIMIT, WaitsFor.APPLICATION_SLOT, WaitsFor.TURN)

_NOT_DUE: Final[dict[Allocation, None]] = {}
"""The empty mapping that all groups without due asks share; never changed."""
_NO_ENTRIES: Final[list[tuple[int, int, int, Allocation]]] = []
"""The empty heap that all groups without asks share; never changed."""


class NodeRefusal(NamedTuple):
    """The shim's last no for an ask on a node, the ``times``-th in a row.

    ``of_start``: the ask had been placed there and could not be started, which is remembered until the request ends.
    The ``node`` is left out until ``until_ns`` or, from ``least_ns`` on, until it has other ``changes``: the number of
    those that may let the shim answer otherwise. ``moves``: the number of dependent placements and of their ends, on
    whatever node.
    """

    reason: str
    times: int
    of_start: bool
    least_ns: int
    until_ns: int
    node: Node | None
    changes: int
    moves: int = 0


NONE_REFUSED: Final[dict[str, NodeRefusal]] = {}
"""The empty mapping that all asks without such nodes share; never changed."""

V = TypeVar("V")


def identity_of(key: str, instance: int) -> str:
    """Returns the name under which a request is kept: its key, unless it shares that with others (protocol.md 3.4)."""
    return f"{key}{SEPARATOR}{instance}" if instance else key


BOUND: Final = 4
"""The bit in the class of a request with a required node, which is never a victim."""


def standing_of(spec: AllocationSpec) -> int:
    """Returns the rank among victims, apart from age, as one number: ``priority << 3 | class``.

    The classes are 0 ordinary, +1 opted out, +2 originator (law 1: a class is taken only after all before it), or
    :data:`BOUND`.
    """
    if spec.required_node:
        return spec.priority << 3 | BOUND
    return spec.priority << 3 | (2 if spec.originator else 0) | (0 if spec.allow_preempt_self else 1)


class _Extra(Generic[V]):
    """A field of :class:`Allocation` that has its default in most of them.

    There may be a million asks and allocations, and fields with defaults should cost them no memory. So these fields
    are in one dict, which is made when the first of them is set, and dropped when the last one has its default again.
    """

    __slots__ = ("_default", "_name")

    def __init__(self, default: V) -> None:
        self._default = default
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, ask: None, owner: type) -> Self: ...
    @overload
    def __get__(self, ask: Allocation, owner: type) -> V: ...
    def __get__(self, ask: Allocation | None, owner: type) -> V | Self:
        if ask is None:
            return self
        extras = ask.extras
        if extras is None:
            return self._default
        value: V = extras.get(self._name, self._default)
        return value

    def __set__(self, ask: Allocation, value: V) -> None:
        extras = ask.extras
        if value is not self._default:
            if extras is None:
                extras = ask.extras = {}
            extras[self._name] = value
        elif extras is not None and extras.pop(self._name, self) is not self and not extras:
            ask.extras = None


class Allocation:
    """A request of an application: pending (an *ask*) while ``node`` is ``None``, an *allocation* afterwards.

    A real ask that takes the place of a placeholder is in between until the shim confirms that the placeholder has
    left: ``place`` says so, and ``node`` is where it will run. It is no longer pending and does not count as used yet.

    ``created_ns`` gives the order and the age of asks; it comes from the shim's creation tag or is the time of arrival.
    ``arrival`` is a number that only grows within the partition. ``key`` is its name in all records, unique within the
    partition; the shim knows it as ``spec.key``, which several requests of an older shim may share (``spec.instance``).
    """

    __slots__ = (
        "application", "arrival", "bound_ns", "created_ns", "extras", "failures", "key", "missed", "node", "place",
        "refused", "reservation", "scale_up", "shape", "spec", "standing", "triggered", "version", "where",
    )  # fmt: skip

    preemptor: _Extra[Allocation | None] = _Extra(None)
    """The ask that a marked victim makes room for."""
    victims: _Extra[dict[str, Allocation]] = _Extra(NO_VICTIMS)
    """The victims of a triggered ask that are not yet confirmed gone."""
    stuck: _Extra[dict[str, str]] = _Extra(NONE_STUCK)
    """The victims of an ask that did not leave in time, by key, each with the node that is left out because of it."""
    rearm_ns: _Extra[int] = _Extra(0)
    """The time when a triggered ask may preempt again; 0 while victims remain."""
    rearms: _Extra[int] = _Extra(0)
    swaps_in: _Extra[tuple[Queue, ...]] = _Extra(())
    """The queues above their max in which a triggered ask takes the place of its victims."""
    attempt_due: _Extra[bool] = _Extra(False)
    """Tells whether the next attempt to preempt is due for an ask that waits in no group, where that would be noted."""
    outcome: _Extra[Outcome | None] = _Extra(None)
    """The outcome of the last attempt to preempt for this ask."""
    inquiry: _Extra[Inquiry | None] = _Extra(None)
    """The open question to the shim whether and where it may run."""
    proposed_placeholder: _Extra[Allocation | None] = _Extra(None)
    """The placeholder whose place a real ask takes if the shim agrees."""
    proposed_by: _Extra[Allocation | None] = _Extra(None)
    """The ask that a placeholder gives its place to if the shim agrees."""
    pause_until_ns: _Extra[int] = _Extra(0)
    """The time of the next look at whether the nodes that the shim refused are left out any longer."""
    tried_last: _Extra[dict[str, NodeRefusal]] = _Extra(NONE_REFUSED)
    """The nodes that the shim refused once and that are not left out any more: they come after all others."""
    dependent: _Extra[bool] = _Extra(False)
    """Tells whether other placements decide about its nodes, so that the shim is asked about it in turn."""
    reserve_after_ns: _Extra[int] = _Extra(0)
    """The time before which no node is reserved for it by age, because the shim is being asked."""
    limit_claim: _Extra[LimitClaim | None] = _Extra(None)
    """The amounts saved for it below limits that refuse it; for a gang, those of the member that stands for all."""
    lapsed_ns: _Extra[int] = _Extra(0)
    """The time when the last claim saved for it lapsed; 0: none has."""
    dialogue: _Extra[Any] = _Extra(None)
    """The shim's answers so far about victims for this ask."""
    recorded: _Extra[RecordedEvents | None] = _Extra(None)
    """The state of the ask according to the event history."""
    devices: _Extra[tuple[str, ...]] = _Extra(())
    """The IDs of the devices that it holds on its node."""
    placeholder_ns: _Extra[int] = _Extra(0)
    """The creation time of the placeholder that it replaced; 0: it replaced none."""

    def __init__(
        self, spec: AllocationSpec, application: Application, shape: Shape, created_ns: int, arrival: int
    ) -> None:
        self.spec = spec
        plain = spec.allow_preempt_self and not spec.originator and not spec.required_node
        self.standing = spec.priority << 3 if plain else standing_of(spec)
        self.key: Final = identity_of(spec.key, spec.instance) if spec.instance else spec.key
        self.application: Final = application
        self.shape = shape
        self.created_ns: Final = created_ns
        self.arrival: Final = arrival
        self.node: Node | None = None
        self.bound_ns = 0
        self.extras: dict[str, Any] | None = None
        """The values of the fields above, except those that have their defaults."""
        self.place: AskPlace = _NOWHERE
        """The place that it is in. Only :func:`kornel.core.state.waiting.places.move_ask` changes it."""
        self.where: Any = None
        """The record that belongs to the place: its :class:`AskGroup`, the node that it is held on, the nodes that were
        refused, or the other half of a pair of placeholder and replacement."""
        self.reservation: Reservation | None = None
        self.triggered = False
        """Set when the ask has preempted and waits for its victims to leave."""
        self.refused: dict[str, NodeRefusal] | None = None
        """The nodes that are left out for it because the shim refused them."""
        self.failures: Failures = ()
        """The reasons why the ask has not been placed. The first ask of whoever waits has some."""
        self.scale_up = False
        """Tells whether the shim was notified that no node has room for it."""
        self.version = arrival
        """A number that stands for what is shown of it as an allocation. It changes when that changes or when the
        allocation ends, and is unique in the partition."""
        self.missed = 0
        """The number of times in a row that it was a candidate and was not placed (preemption.md F8)."""

    def clear_search(self) -> None:
        """Clears what was noted during the search for its node, except where it could not be started."""
        self.missed = 0
        if self.extras is not None:
            self.dialogue = None
            self.attempt_due = False
        if self.refused is not None or self.tried_last is not NONE_REFUSED:
            known = {**self.tried_last, **(self.refused or {})}
            failed = {node_id: refusal for node_id, refusal in known.items() if refusal.of_start}
            self.tried_last = failed or NONE_REFUSED
            self.refused = None

    @property
    def priority(self) -> int:
        """The priority of the request."""
        return self.spec.priority

    @property
    def turn_priority(self) -> float:
        """The priority that decides when its turn is: that of the request, and a part of 1 more if its gang has lost
        members and runs below its minimum (scheduling.md 10.8)."""
        priority = self.spec.priority
        if not self.application.missing:
            return priority
        members = self.application.members.get(self.spec.task_group)
        return priority if members is None or not members.short else priority + REPAIR

    @property
    def pending(self) -> bool:
        """Tells whether it is an ask without a node."""
        return self.node is None

    @property
    def queue(self) -> Queue:
        """The leaf queue of its application."""
        return self.application.queue

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The accounts of its application in which it is counted, the root's first."""
        accounts = self.application.accounts
        # That of originators is the last one.
        return accounts if not accounts or accounts[-1].counts_ask(self) else accounts[:-1]

    @property
    def group(self) -> AskGroup | None:
        """The group of equal asks in which it waits; ``None``: it waits in none."""
        return self.where if self.place is _WAITING else None

    @property
    def pool(self) -> TaskGroup | None:
        """The task group in which it waits for a placeholder; ``None``: it waits in none."""
        return self.application.task_groups[self.spec.task_group] if self.place is _POOLED else None

    @property
    def group_key(self) -> GroupKey:
        """The key of the group of equal asks to which it belongs while it waits."""
        spec, dependent = self.spec, self.extras is not None and self.dependent
        if spec.originator and self.application.queue.properties.originator_max is not None:
            return (self.shape, spec.required_node, dependent, together_of(spec), True)
        if spec.required_node or dependent or spec.topology is not None:
            return (self.shape, spec.required_node, dependent, together_of(spec))
        return self.shape

    @property
    def held_on(self) -> Node | None:
        """The node on which it is charged while the shim is asked whether it may run there; until then it is shown as
        pending."""
        return self.where if self.place is _HELD else None

    @property
    def refused_on(self) -> frozenset[str] | None:
        """The nodes that were refused, if it waits for another one with room."""
        return self.where if self.place is _REFUSED else None

    @property
    def replaces(self) -> Allocation | None:
        """The placeholder whose place a real ask takes once the shim confirms."""
        return self.where if self.place is _REPLACING else None

    @property
    def replaced_by(self) -> Allocation | None:
        """The real ask that takes the place of this placeholder."""
        return self.where if self.place is _RELEASED else None

    @property
    def preempted(self) -> bool:
        """Tells whether it is a victim that has not left yet."""
        return self.place is _PREEMPTED

    @property
    def released(self) -> bool:
        """Tells whether the shim was asked to end it for another reason than preemption."""
        return self.place is _RELEASED

    @property
    def waits_since_ns(self) -> int:
        """The time from which its wait counts: when it came, or when its last claim lapsed."""
        return max(self.created_ns, self.lapsed_ns)

    @property
    def order(self) -> tuple[int, int, int]:
        """The sort key among the asks of its application: priority, then age, then arrival (scheduling.md 5.3)."""
        return (-self.spec.priority, self.created_ns, self.arrival)

    def __repr__(self) -> str:
        where = self.node.node_id if self.node is not None else "pending"
        return f"Allocation({self.key} of {self.application.application_id}, {where})"


def sum_amounts(allocations: Iterable[Allocation]) -> dict[int, int]:
    """Returns the amounts of all *allocations* together, by type."""
    total: dict[int, int] = {}
    for allocation in allocations:
        for t, amount in allocation.shape.pairs:
            total[t] = total.get(t, 0) + amount
    return total


class Reservation:
    """The amount that one pending ask needs, held for it on a node since ``made_ns``."""

    __slots__ = (
        "ask", "by_age", "clock", "comes_last", "least", "made_ns", "node", "pairs", "parked_at",
    )  # fmt: skip

    def __init__(
        self, ask: Allocation, node: Node, made_ns: int, *, by_age: bool = False, least: Allocation | None = None
    ) -> None:
        self.ask: Final = ask
        self.node: Final = node
        self.made_ns: Final = made_ns
        self.by_age: Final = by_age
        """Tells whether it was made because the ask had waited, and not because the ask preempted or requires the node;
        if so, it counts as promised on its path."""
        self.least: Final = least
        """The least important member of the gang that saves this room together with its other places; ``None``: the
        ask waits for itself."""
        self.comes_last = by_age or bool(ask.spec.required_node)
        """Tells whether claims of asks that preempt come before it: always for a reservation by age, and for an ask
        that requires the node as long as it has no victims, because otherwise its claim would keep others from
        preempting there."""
        self.pairs: Pairs = ask.shape.pairs
        """The amounts held, which are those of the ask."""
        self.parked_at: Room | WaitingRoom | None = None
        """The waiting room that it is in, as for an :class:`AskGroup`. Room on its own node wakes it in any waiting
        room."""
        self.clock: ClaimClock | None = None
        """The clock of a claim by age, but not of one for a member of a gang, whose claims have a common clock."""

    @property
    def waiter(self) -> Allocation:
        """The ask by whose importance the claim is judged: of a gang that saves room, its least important member."""
        return self.ask if self.least is None else self.least

    @property
    def rank(self) -> int:
        """The rank among claims; the smallest comes first.

        An ask that requires the node and has victims comes first, then one that has preempted, then one that requires
        the node and has no victims, then a reservation by age.
        """
        if self.ask.spec.required_node:
            return 2 if self.comes_last else 0
        return 3 if self.by_age else 1


class LimitClaim:
    """The amounts that one waiter, an ask or a gang as a unit, saves below ``limits`` that refuse it: what comes free
    there is kept for it until there is enough (preemption.md B.7)."""

    __slots__ = ("ask", "clock", "limits", "made_ns", "pairs")

    def __init__(
        self, ask: Allocation, pairs: Pairs, limits: tuple[Queue | Account, ...], made_ns: int, clock: ClaimClock
    ) -> None:
        self.ask: Final = ask
        """The ask that waits, or the least important member of the gang."""
        self.pairs: Final = pairs
        """The amounts that the waiter asks for, of a gang those of all its members."""
        self.limits: Final = limits
        """The queues, users and groups at which it is the one that saves."""
        self.made_ns: Final = made_ns
        self.clock: Final = clock

    @property
    def waiter(self) -> Allocation:
        """The ask by whose importance the claim is judged."""
        return self.ask


Together = tuple[str, "TopologyRequest"]
"""The name of a task group, and its request about the topology."""


def together_of(spec: AllocationSpec) -> Together | None:
    """Returns the task group of a request of *spec* with its request about the topology; ``None``: it has none."""
    return None if spec.topology is None else (spec.task_group, spec.topology)


def stand_together(spec: AllocationSpec, other: AllocationSpec) -> bool:
    """Tells whether requests of *spec* and *other*, of one application, belong to the same group with regard to the
    topology.

    They do if they have the same task group and the same topology tags. Real asks of a task group need not repeat the
    tags of its placeholders.
    """
    if spec.task_group != other.task_group:
        return False
    repeats = spec.topology == other.topology
    return repeats or (bool(spec.task_group) and not (spec.placeholder and other.placeholder))


class AskGroup:
    """The pending asks of one application that placement cannot tell apart. They have the same shape and required node,
    all or none of them depend on other placements, and if they ask for a topology, they ask for the same one and belong
    to one task group; where originators have a limit, all or none of them are originators."""

    __slots__ = (
        "_due_sorted", "_heap", "_mixed", "_oldest_ns", "application", "due", "key", "lent", "number", "parked_at",
        "scale_ups", "shape", "size", "waits_for",
    )  # fmt: skip

    def __init__(self, application: Application, key: GroupKey, number: int) -> None:
        self.application: Final = application
        self.key: Final = key
        """The key of the group among those of its application, which each of its asks has."""
        self.shape: Final[Shape] = key[0] if isinstance(key, tuple) else key
        self.number: Final = number
        self._heap: list[tuple[int, int, int, Allocation]] = _NO_ENTRIES
        """A heap of (negative priority, creation, arrival, ask). No two entries are equal in the first three."""
        self._oldest_ns: int | None = None
        """The answer of :meth:`oldest_ns`, while it is known."""
        self._mixed = False
        """Tells whether it has had asks of several priorities since it was last empty."""
        self.size = 0
        self.scale_ups = 0
        """The number of asks that the shim was notified of as reasons to add nodes."""
        self.lent = NOTHING_WAITS
        """The priority that it lends its application: that of its first ask, unless none of its asks can be placed
        now."""
        self.parked_at: Room | WaitingRoom | None = None
        """The waiting room in which the group is parked; ``None``: it is not parked."""
        self.waits_for: WaitsFor | None = None
        """The thing that it lacks while it is parked."""
        self._due_sorted = False
        self.due: dict[Allocation, None] = _NOT_DUE
        """The asks whose next attempt to preempt is due."""

    is_unit = False
    """Tells whether its asks are members of a gang that are placed together or not at all."""

    @property
    def required_node(self) -> str:
        """The node that its asks require; empty: none."""
        return self.key[1] if isinstance(self.key, tuple) else ""

    @property
    def kept_back(self) -> bool:
        """Tells whether it waits for something that preemption cannot provide: room under a limit of its user or group,
        an application slot, or its turn to be asked about."""
        return self.waits_for in _NOT_BY_PREEMPTION

    def add(self, ask: Allocation) -> bool:
        """Adds *ask*. Returns whether it comes before all others."""
        entry = (-ask.spec.priority, ask.created_ns, ask.arrival, ask)
        if self._heap:
            self._mixed = self._mixed or entry[0] != self._heap[0][0]
            heappush(self._heap, entry)
        else:
            self._heap = [entry]
        ask.where = self
        self.size += 1
        if self._oldest_ns is not None and ask.created_ns < self._oldest_ns:
            self._oldest_ns = ask.created_ns
        if ask.scale_up:
            self.scale_ups += 1
        if ask.extras is not None and ask.attempt_due:
            ask.attempt_due = False
            self.attempt_is_due(ask)
        return self._heap[0][3] is ask

    def remove(self, ask: Allocation) -> None:
        """Removes *ask*. Its heap entry is dropped when it comes to the top, or when most entries are out of date."""
        ask.where = None
        if self.due and self.attempt_is_over(ask):
            ask.attempt_due = True
        self.size -= 1
        if ask.created_ns == self._oldest_ns:
            self._oldest_ns = None
        if ask.scale_up:
            self.scale_ups -= 1
        heap = self._heap
        if not self.size:
            self._heap, self._mixed = _NO_ENTRIES, False
        elif heap[0][3] is ask:
            heappop(heap)
        elif len(heap) > 64 and len(heap) > 4 * self.size:
            self._heap = [(*waiting.order, waiting) for waiting in self.asks()]

    def attempt_is_due(self, ask: Allocation) -> None:
        """Notes that the next attempt to preempt for *ask* may be made."""
        if self.due is _NOT_DUE:
            self.due = {}
        self.due[ask] = None
        self.application.queue.lineage()[-1].with_due[self.application] = None
        self._due_sorted = False

    def next_due(self) -> list[Allocation]:
        """Returns the asks whose next attempt is due, in order. They are sorted again only after one was added."""
        if not self._due_sorted:
            self.due = dict.fromkeys(sorted(self.due, key=lambda ask: ask.order))
            self._due_sorted = True
        return list(self.due)

    def attempt_is_over(self, ask: Allocation) -> bool:
        """Notes that no attempt of *ask* is due any more. Returns whether one was due."""
        if ask not in self.due:
            return False
        del self.due[ask]
        return True

    def no_attempt_is_due(self) -> None:
        """Notes that no attempt of any ask is due any more."""
        self.due = _NOT_DUE

    def oldest_ns(self) -> int:
        """Returns the creation time of the oldest ask. It is kept until that ask leaves; finding the next one is linear
        in the number of asks."""
        if self._oldest_ns is None:
            self._oldest_ns = min([created_ns for _, created_ns, _, ask in self._heap if ask.where is self])
        return self._oldest_ns

    def first_ask(self) -> Allocation:
        """Returns the ask whose turn is first; the group must not be empty."""
        heap = self._heap
        while heap[0][3].where is not self:
            heappop(heap)
        return heap[0][3]

    def list_longest(self) -> list[Allocation]:
        """Returns the asks of which one has waited longest: the first alone, unless that has lapsed or others are less
        important and older."""
        first, oldest_ns = self.first_ask(), self._oldest_ns  # Only looked at, since what is shown may ask this.
        older = self._mixed and (oldest_ns is None or oldest_ns < first.created_ns)
        return self.unordered_asks() if first.lapsed_ns or older else [first]

    def head_order(self) -> tuple[int, int, int]:
        """Returns the ``order`` of :meth:`first_ask`."""
        return self.first_ask().order

    def unordered_asks(self) -> list[Allocation]:
        """Returns all asks in no particular order, which is cheapest. An ask that left and came back may occur
        twice."""
        return [entry[3] for entry in self._heap if entry[3].where is self]

    def asks(self) -> list[Allocation]:
        """Returns all asks, in order. This is for reports; the scheduling loop only calls :meth:`first_ask`."""
        return list(
            dict.fromkeys(entry[3] for entry in sorted(self._heap, key=lambda e: e[:3]) if entry[3].where is self)
        )


Room = dict[AskGroup | Reservation, None]
"""A waiting room: the groups and reservations that wait for the same thing, in order of arrival."""
