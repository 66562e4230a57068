"""An ask, and the allocation it becomes once a node is bound to it: one record for both lives."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from core.domain.commands import AllocationSpec
from core.domain.reasons import Outcome

if TYPE_CHECKING:
    from core.domain.views import AllocationView
    from core.model.applications import Application
    from core.model.callbacks import Inquiry
    from core.model.failures import FailureLog
    from core.model.nodes import Node
    from core.model.queues import Queue
    from core.model.shapes import Shape
    from core.model.task_groups import TaskGroup
    from core.model.told import Told


SEPARATOR: Final = "\uffff"
"""Stands in no key that is taken: a noncharacter, which no text that is exchanged contains."""


NONE_STUCK: Final[dict[str, str]] = {}
"""Shared by all asks without; never changed."""


def identity(key: str, instance: int) -> str:
    """Under which name a request is kept: its key, unless it shares that with others (protocol.md 3.4)."""
    return f"{key}{SEPARATOR}{instance}" if instance else key


class Allocation:
    """A request of an application: pending (an *ask*) while ``node`` is ``None``, an *allocation* afterwards.

    In between is a real ask that takes the place of a placeholder, until the shim confirms that it left: ``replaces``
    is set, ``node`` is where it will run. It is pending no more and does not count as used yet.

    ``created_ns`` orders asks and ages them; it comes from the shim's creation tag or is the time of arrival.
    ``arrival`` is a number that only grows within the partition. ``key`` is its name in all records, unique within the
    partition; the shim knows it as ``spec.key``, which older ones let several share (``spec.instance``).
    """

    __slots__ = (
        "application", "arrival", "attempt_due", "bound_ns", "courted_by", "courts", "created_ns", "dialogue",
        "failures", "group", "held_on", "inquiry", "key", "last_attempt_ns", "missed", "node", "outcome",
        "pause_until_ns", "placeholder_ns", "pool", "preempted", "preemptor", "rearm_ns", "rearms", "refusals",
        "refused", "refused_on", "released", "replaced_by", "replaces", "reservation", "reserve_after_ns",
        "scale_up", "shape", "spec", "stuck", "told", "triggered", "victims", "view",
    )  # fmt: skip

    def __init__(
        self, spec: AllocationSpec, application: Application, shape: Shape, created_ns: int, arrival: int
    ) -> None:
        self.spec = spec
        self.key: Final = identity(spec.key, spec.instance)
        self.application: Final = application
        self.shape = shape
        self.created_ns: Final = created_ns
        self.arrival: Final = arrival
        self.node: Node | None = None
        self.bound_ns = 0
        self.refused_on: frozenset[str] | None = None
        """The nodes on which it was refused, while it waits for another one with room."""
        self.group: AskGroup | None = None
        """Where it waits with its equals; ``None`` once placed, reserved, withdrawn, or while in a ``pool``."""
        self.pool: TaskGroup | None = None
        """Set while it waits for a placeholder of its task group."""
        self.replaces: Allocation | None = None
        """As a real ask: the placeholder whose place it takes once the shim confirms."""
        self.replaced_by: Allocation | None = None
        """As a placeholder: the real ask that takes its place."""
        self.reservation: Reservation | None = None
        self.released = False
        """Its release was announced to the shim for another reason than preemption."""
        self.preempted = False
        """Marked as a victim; stays booked until its exit is confirmed."""
        self.preemptor: Allocation | None = None
        """For a marked victim: the ask it makes room for."""
        self.triggered = False
        """As an ask: it has preempted and waits for its victims to leave."""
        self.victims: dict[str, Allocation] = {}
        """As a triggered ask: victims not yet confirmed gone."""
        self.stuck: dict[str, str] = NONE_STUCK
        """As an ask: victims that did not leave in time, by key, with the node that it looks past because of them."""
        self.rearm_ns = 0
        """As a triggered ask: when it may preempt again; 0 while victims remain."""
        self.rearms = 0
        self.last_attempt_ns: int | None = None
        self.attempt_due = False
        """Its next attempt to preempt is due, and it waits in no group, which would know."""
        self.outcome: Outcome | None = None
        """How the last attempt to preempt for this ask ended."""
        self.held_on: Node | None = None
        """Where its amount is charged while the shim is asked whether it may run there; still pending to everybody."""
        self.inquiry: Inquiry | None = None
        """The open question whether and where it may run."""
        self.courts: Allocation | None = None
        """As a real ask: the placeholder whose place it takes if the shim agrees."""
        self.courted_by: Allocation | None = None
        """As a placeholder: the ask that it waits for in the same way."""
        self.refused: dict[str, str] | None = None
        """Nodes the shim refused for it lately, with the reason."""
        self.refusals = 0
        """How often in a row it was refused everywhere: the pause before the next try grows with it."""
        self.pause_until_ns = 0
        """Refused everywhere, it is not tried before then unless another node gains room."""
        self.reserve_after_ns = 0
        """No node is reserved for it because of its age before then: the shim is being asked, or has refused one."""
        self.dialogue: Any = None
        """As an ask that looks for victims: what the shim has said about them so far."""
        self.scale_up = False
        """The shim was told that no node has room for it."""
        self.failures: FailureLog | None = None
        """Why it has not been placed."""
        self.told: Told | None = None
        """What the event history says of it at present."""
        self.placeholder_ns = 0
        """When the placeholder was made whose place it took; 0: it took none."""
        self.view: AllocationView | None = None
        """What was last shown of it, to be shown again while that is still so."""
        self.missed = 0
        """How often in a row it was a candidate and was not placed (preemption.md F8)."""

    @property
    def priority(self) -> int:
        return self.spec.priority

    @property
    def pending(self) -> bool:
        return self.node is None

    @property
    def queue(self) -> Queue:
        return self.application.queue

    @property
    def order(self) -> tuple[int, int, int]:
        """Place among the asks of its application: priority, then age, then arrival (scheduling.md 5.3)."""
        return (-self.spec.priority, self.created_ns, self.arrival)

    def __repr__(self) -> str:
        where = self.node.node_id if self.node is not None else "pending"
        return f"Allocation({self.key} of {self.application.application_id}, {where})"


class Reservation:
    """A node kept free for one pending ask since ``made_ns``."""

    __slots__ = ("ask", "by_age", "made_ns", "node", "parked_at")

    def __init__(self, ask: Allocation, node: Node, made_ns: int, *, by_age: bool = False) -> None:
        self.ask: Final = ask
        self.node: Final = node
        self.made_ns: Final = made_ns
        self.by_age: Final = by_age
        """Because the ask had waited, not because it preempted or must run here: counts as promised on its path."""
        self.parked_at: Room | None = None
        """As for an :class:`AskGroup`; room on its own node wakes it wherever it waits."""


class AskGroup:
    """The pending asks of one application that placement cannot tell apart: same shape, same required node."""

    __slots__ = (
        "_heap", "application", "due", "kept_back", "number", "parked_at", "required_node", "scale_ups", "shape",
        "size",
    )  # fmt: skip

    def __init__(self, application: Application, shape: Shape, required_node: str, number: int) -> None:
        self.application: Final = application
        self.shape: Final = shape
        self.required_node: Final = required_node
        self.number: Final = number
        self._heap: list[tuple[tuple[int, int, int], Allocation]] = []
        self.size = 0
        self.scale_ups = 0
        """How many of the asks the shim was told about as reasons to add nodes."""
        self.parked_at: Room | None = None
        """The waiting room this group sits in while nothing that could make it fit has changed; else ``None``."""
        self.kept_back = False
        """It sits in a waiting room that no preemption can open: a limit of its user, group or of applications."""
        self.due: dict[Allocation, None] = {}
        """Asks whose next attempt to preempt is due."""

    def add(self, ask: Allocation) -> None:
        heappush(self._heap, (ask.order, ask))
        ask.group = self
        self.size += 1
        if ask.scale_up:
            self.scale_ups += 1
        if ask.attempt_due:
            ask.attempt_due = False
            self.due[ask] = None

    def remove(self, ask: Allocation) -> None:
        """Take out *ask*; its heap entry is dropped when it surfaces, or when most entries are such."""
        ask.group = None
        if ask in self.due:
            del self.due[ask]
            ask.attempt_due = True
        self.size -= 1
        if ask.scale_up:
            self.scale_ups -= 1
        if not self.size:
            self._heap.clear()
        elif len(self._heap) > 64 and len(self._heap) > 4 * self.size:
            self._heap = [(waiting.order, waiting) for waiting in self.asks()]

    def head(self) -> Allocation:
        """The ask whose turn is first; the group must not be empty."""
        heap = self._heap
        while heap[0][1].group is not self:
            heappop(heap)
        return heap[0][1]

    def head_order(self) -> tuple[int, int, int]:
        """The ``order`` of :meth:`head`."""
        self.head()
        return self._heap[0][0]

    def asks(self) -> list[Allocation]:
        """All asks, in order. For reports; the hot path asks for :meth:`head` only."""
        return list(dict.fromkeys(ask for _, ask in sorted(self._heap, key=lambda e: e[0]) if ask.group is self))


Room = dict[AskGroup | Reservation, None]
"""A waiting room: who waits for the same thing, in order of arrival."""
