"""Explains every subject from the present state, in plain values. Nothing is changed.

Everything that can be asked about is a :class:`Subject`, which knows how to explain itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from kornel.core.model.shapes import Shape
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.ask_report import ask_standing, explain_work
from kornel.core.telling.allocations.blockers import find_first_blocker
from kornel.core.telling.allocations.explanation import AskReport, Blocker, Report, absence_blocker, add_absence
from kornel.core.telling.nodes.node_reports import AskOnNode, NodeReport, explain_ask_on_node, explain_node
from kornel.core.telling.preemption.outlook import ReadingIndex
from kornel.core.telling.queues.headroom import QueueExplanation, explain_queue
from kornel.core.telling.users.limits_of_user import UserExplanation, explain_user

A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that an explanation reads, at one moment. *index* only saves time.

    *absence*: a sentence about the manager *rm_id* if it is gone; empty: it is there.
    """

    state: PartitionState
    index: ReadingIndex
    now_ns: int
    rm_id: str = ""
    absence: str = ""


class Subject(Protocol[A_co]):
    """A subject that can be asked about and can explain itself."""

    def explain_from(self, reading: Reading) -> A_co | None:
        """Explains the subject; ``None``: the partition does not know it."""


@dataclass(frozen=True, slots=True)
class Named(Subject[Report]):
    """An ask or allocation by its key; otherwise an application by its ID; otherwise a recent victim by its key."""

    name: str

    def explain_from(self, reading: Reading) -> Report | None:
        """Explains what keeps it waiting, which asks come first, and what preemption could do, or for whom it was
        preempted."""
        found = explain_work(reading.state, reading.index, self.name, reading.now_ns)
        return add_absence(found, reading.rm_id, reading.absence) if found is not None and reading.absence else found


@dataclass(frozen=True, slots=True)
class FirstBlockers(Subject[tuple[Blocker | None, ...]]):
    """Asks by their keys."""

    keys: tuple[str, ...]

    def explain_from(self, reading: Reading) -> tuple[Blocker | None, ...]:
        """Explains what keeps each from being placed first of all; ``None``: nothing does. A manager that is gone,
        which is in everybody's way, comes last."""
        state, on_nodes = reading.state, dict[Shape, tuple[Blocker, ...]]()
        absent = absence_blocker(reading.rm_id, reading.absence) if reading.absence else None
        asks = [state.requests.get(key) for key in self.keys]
        return tuple(
            (find_first_blocker(state, ask, on_nodes) or absent) if ask is not None and ask.pending else None
            for ask in asks
        )


@dataclass(frozen=True, slots=True)
class AskStanding(Subject[AskReport]):
    """An ask or allocation by its key."""

    key: str

    def explain_from(self, reading: Reading) -> AskReport | None:
        """Explains where it waits and why its last attempt failed, at constant cost, without a search for blockers."""
        ask = reading.state.requests.get(self.key)
        return ask_standing(ask) if ask is not None else None


@dataclass(frozen=True, slots=True)
class NamedOnNode(Subject[AskOnNode]):
    """An ask or allocation by its key, or else the first waiting ask of an application, together with a registered
    node."""

    name: str
    node_id: str

    def explain_from(self, reading: Reading) -> AskOnNode | None:
        """Explains why the ask is not on that node."""
        state = reading.state
        node, ask = state.nodes.get(self.node_id), state.requests.get(self.name)
        if ask is None and self.name in state.applications:
            asks = (ask for ask in state.applications[self.name].asks.values() if ask.pending)
            ask = min(asks, key=lambda ask: ask.order, default=None)
        if ask is None or node is None:
            return None
        return explain_ask_on_node(state, ask, node, ask_standing(ask).state)


@dataclass(frozen=True, slots=True)
class NodeUse(Subject[NodeReport]):
    """A registered node, with the asks that wait."""

    node_id: str

    def explain_from(self, reading: Reading) -> NodeReport | None:
        """Explains why the node is used as it is, and what keeps waiting asks from it."""
        node = reading.state.nodes.get(self.node_id)
        return explain_node(reading.state, node) if node is not None else None


@dataclass(frozen=True, slots=True)
class QueueAt(Subject[QueueExplanation]):
    """The queue at a path; case does not matter."""

    path: str

    def explain_from(self, reading: Reading) -> QueueExplanation | None:
        """Explains what the queue may still take, and what bounds it, level by level."""
        queue = reading.state.queues.get(self.path.lower())
        return explain_queue(reading.state, queue) if queue is not None else None


@dataclass(frozen=True, slots=True)
class UserNamed(Subject[UserExplanation]):
    """A user that has applications, or that a limit names."""

    name: str

    def explain_from(self, reading: Reading) -> UserExplanation | None:
        """Explains the usage of the user, and the limits that apply to it."""
        return explain_user(reading.state, self.name)
