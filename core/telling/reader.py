"""What the engine shows, by partition: the way from names to the views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from core.domain.drains import OperatorDrain
from core.domain.views import (
    AllocationView,
    ApplicationParts,
    ApplicationSummary,
    ApplicationView,
    GroupView,
    NodeSummary,
    NodeView,
    PartitionView,
    QueueView,
    RuleView,
    UserView,
)
from core.partition.state import PartitionState
from core.telling.applications import application_views as applications
from core.telling.configuration import placement_rule_views as rules
from core.telling.nodes import node_views as nodes
from core.telling.partitions import books_faults as books
from core.telling.partitions import partition_gauges as gauges
from core.telling.partitions import partition_views as partitions
from core.telling.partitions.gauge_records import PartitionGauges
from core.telling.queues import queue_views as queues
from core.telling.users import user_views as users


class PartitionViews:
    """One partition, for those who only look.

    Iterators are lazy: take some items, let others have a turn, and go on. Each item is as of when it is taken.
    """

    def __init__(self, state: PartitionState, rm_id: str, now_ns: int) -> None:
        self._state = state
        self._rm_id = rm_id
        self._now_ns = now_ns

    @property
    def size(self) -> int:
        """How many requests, nodes and applications there are."""
        state = self._state
        return len(state.requests) + len(state.nodes) + len(state.applications)

    def partition(self) -> PartitionView:
        """The partition as a whole."""
        return partitions.view(self._state, self._rm_id, self._now_ns)

    def gauges(self, most_queues: int) -> Iterator[PartitionGauges | None]:
        """What metrics tell of it, with at most so many queues; ``None``: a moment to let others have a turn."""
        return gauges.look(self._state, self._now_ns, most_queues)

    def waits(self, key: str) -> bool:
        """Whether *key* names an ask that has no node yet."""
        found = self._state.instances.get(key, {}).values() or [self._state.requests.get(key)]
        return any(request is not None and request.node is None for request in found)

    def queue_of(self, application_id: str) -> str:
        """Path of the queue of a live application; empty: there is no such application."""
        application = self._state.applications.get(application_id)
        return application.queue.path if application is not None else ""

    def rules(self) -> tuple[RuleView, ...]:
        """The placement rules in force, in order."""
        return rules.views(self._state)

    def has_queue(self, path: str) -> bool:
        """Whether there is a queue at *path*, which is in lower case."""
        return path in self._state.queues

    def queues(self, path: str = "root", *, subtree: bool = True) -> Iterator[QueueView]:
        """The queue at *path* and, with *subtree*, all below it, parents first, by name; nothing if there is none."""
        return queues.views(self._state, path, subtree=subtree)

    def nodes(self) -> Iterator[NodeView]:
        """All nodes by ID."""
        return nodes.views(self._state)

    def node(self, node_id: str) -> NodeView | None:
        """One node; ``None``: there is none."""
        node = self._state.nodes.get(node_id)
        return nodes.view(self._state, node) if node is not None else None

    def allocations(self) -> Iterator[tuple[AllocationView, ...]]:
        """All allocations, node by node."""
        return nodes.allocations(self._state)

    def node_summaries(self, after: str = "") -> Iterator[NodeSummary]:
        """All nodes by ID without what runs there, those whose ID comes after *after*."""
        return nodes.summaries(self._state, after)

    def applications(self) -> Iterator[ApplicationView]:
        """All live applications by ID."""
        return applications.views(self._state)

    def application_parts(self, path: str, render: Callable[[ApplicationView], bytes]) -> Iterator[ApplicationParts]:
        """The live applications of the very queue at *path* by ID, or of all where it is empty, in parts.

        *render* gets each without its asks and allocations, unless nothing of it has changed since it was given last:
        what it makes of the same must always be the same.
        """
        return applications.parts(self._state, path, render)

    def keep_applications(self, render: Callable[[ApplicationView], bytes]) -> Iterator[None]:
        """Each step has *render* make ahead what :meth:`application_parts` would have it make of one application."""
        return applications.keep(self._state, render)

    def applications_of(self, path: str) -> Iterator[ApplicationView]:
        """The live applications of the very queue at *path* by ID; nothing if there is none."""
        return applications.of_queue(self._state, path)

    def application(self, application_id: str) -> ApplicationView | None:
        """A live application; ``None``: there is none."""
        application = self._state.applications.get(application_id)
        return applications.view(self._state, application) if application is not None else None

    def application_summaries(self, after: str = "") -> Iterator[ApplicationSummary]:
        """All live applications by ID without what they ask for and hold, those whose ID comes after *after*."""
        return applications.summaries(self._state, after)

    def finished(self) -> Iterator[ApplicationView]:
        """Applications that completed, failed or were removed, the oldest first; an ID may come up several times."""
        return iter(self._state.past.all_finished(self._now_ns))

    def rejected(self) -> Iterator[ApplicationView]:
        """Applications that were not taken, the oldest first."""
        return iter(self._state.past.all_rejected(self._now_ns))

    def users(self) -> Iterator[UserView | None]:
        """Users that hold something or that a limit names, by name; ``None``: a moment to let others have a turn."""
        return users.users(self._state)

    def user(self, name: str) -> Iterator[UserView | None]:
        """The one called *name*, if it is one of them, after moments to let others have a turn."""
        return users.user(self._state, name)

    def groups(self) -> Iterator[GroupView | None]:
        """Groups that something counts for or that a limit names, by name; ``None``: a moment to let others go on."""
        return users.groups(self._state)

    def group(self, name: str) -> Iterator[GroupView | None]:
        """The one called *name*, if it is one of them, after moments to let others have a turn."""
        return users.group(self._state, name)

    def operator_drains(self) -> Mapping[str, OperatorDrain]:
        """Nodes that operators keep out of scheduling, by ID, registered or not."""
        return MappingProxyType(self._state.operator_drains)

    def faults(self) -> Iterator[books.Offender | None]:
        """What does not add up in the books; ``None``: a moment to let others have a turn."""
        return books.faults(self._state)
