"""An ask, and the allocation it becomes once a node is bound to it: one record for both lives."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from core.domain.commands import AllocationSpec
from core.domain.reasons import Outcome

if TYPE_CHECKING:
    from core.model.applications import Application
    from core.model.nodes import Node
    from core.model.queues import Queue
    from core.model.shapes import Shape


SEPARATOR: Final = "\uffff"
"""Stands in no key that is taken: a noncharacter, which no text that is exchanged contains."""


def identity(key: str, instance: int) -> str:
    """Under which name a request is kept: its key, unless it shares that with others (protocol.md 3.4)."""
    return f"{key}{SEPARATOR}{instance}" if instance else key


class Allocation:
    """A request of an application: pending (an *ask*) while ``node`` is ``None``, an *allocation* afterwards.

    ``created_ns`` orders asks and ages them; it comes from the shim's creation tag or is the time of arrival.
    ``arrival`` is a number that only grows within the partition. ``key`` is its name in all records, unique within the
    partition; the shim knows it as ``spec.key``, which older ones let several share (``spec.instance``).
    """

    __slots__ = (
        "application", "arrival", "bound_ns", "created_ns", "group", "key", "last_attempt_ns", "missed",
        "node", "outcome", "preempted", "preemptor", "rearm_ns", "rearms", "released", "reservation",
        "shape", "spec", "triggered", "victims",
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
        self.group: AskGroup | None = None
        """Where it waits with its equals; ``None`` once placed, reserved or withdrawn."""
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
        self.rearm_ns = 0
        """As a triggered ask: when it may preempt again; 0 while victims remain."""
        self.rearms = 0
        self.last_attempt_ns: int | None = None
        self.outcome: Outcome | None = None
        """How the last attempt to preempt for this ask ended."""
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
    """A node held for one pending ask since ``made_ns``."""

    __slots__ = ("ask", "made_ns", "node")

    def __init__(self, ask: Allocation, node: Node, made_ns: int) -> None:
        self.ask: Final = ask
        self.node: Final = node
        self.made_ns: Final = made_ns


class AskGroup:
    """The pending asks of one application that placement cannot tell apart: same shape, same required node."""

    __slots__ = ("_heap", "application", "due", "number", "parked_at", "required_node", "shape", "size")

    def __init__(self, application: Application, shape: Shape, required_node: str, number: int) -> None:
        self.application: Final = application
        self.shape: Final = shape
        self.required_node: Final = required_node
        self.number: Final = number
        self._heap: list[tuple[tuple[int, int, int], Allocation]] = []
        self.size = 0
        self.parked_at: dict[AskGroup, None] | None = None
        """The waiting room this group sits in while nothing that could make it fit has changed; else ``None``."""
        self.due: dict[Allocation, None] = {}
        """Asks whose next attempt to preempt is due."""

    def add(self, ask: Allocation) -> None:
        heappush(self._heap, (ask.order, ask))
        ask.group = self
        self.size += 1

    def remove(self, ask: Allocation) -> None:
        """Take out *ask*; its heap entry is dropped when it surfaces."""
        ask.group = None
        self.due.pop(ask, None)
        self.size -= 1
        if not self.size:
            self._heap.clear()

    def head(self) -> Allocation:
        """The ask whose turn is first; the group must not be empty."""
        heap = self._heap
        while heap[0][1].group is not self:
            heappop(heap)
        return heap[0][1]

    def asks(self) -> list[Allocation]:
        """All asks, in order. For reports; the hot path asks for :meth:`head` only."""
        return list(dict.fromkeys(ask for _, ask in sorted(self._heap, key=lambda e: e[0]) if ask.group is self))
