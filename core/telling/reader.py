"""The only way to read the state of an engine: ``Reader(engine)[partition]`` answers every question about a partition.

The services of gRPC, REST, the metrics and, through them, the command line read the engine only through this module.
The engine does not know of it: values that are kept from one answer to the next are kept here, and dropped with their
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

from kornel.core.config.model import Configuration
from kornel.core.domain.commands import PreemptByHand
from kornel.core.domain.drains import OperatorDrain
from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.manager import RegisteredManager
from kornel.core.domain.names import bare_partition_name, full_partition_name
from kornel.core.policies.access import may_administer
from kornel.core.preemption.quota.by_hand import drive as by_hand
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.allocation_views import KeptViews
from kornel.core.telling.applications.application_views import (
    ApplicationParts,
    ApplicationSummary,
    ApplicationView,
    ApplicationViews,
)
from kornel.core.telling.claims.claim_views import ClaimView, claim_views, find_losers
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
from kornel.core.telling.configuration.partition_moment import moment_of
from kornel.core.telling.configuration.placement_answer import PlacementAnswer, find_placement
from kornel.core.telling.configuration.placement_rule_views import RuleView, rule_views
from kornel.core.telling.explain import Reading, Subject
from kornel.core.telling.name_search import FoundName, search_names
from kornel.core.telling.nodes.domain_views import DomainView, LevelView, domain_views, level_views
from kornel.core.telling.nodes.node_views import (
    NodeHeads,
    NodeSummary,
    NodeView,
    list_waiting,
    node_summary,
    node_view,
    nodes_by_id,
)
from kornel.core.telling.partitions.books_faults import Offender, find_faults
from kornel.core.telling.partitions.partition_gauges import PartitionGauges, look_at_gauges
from kornel.core.telling.partitions.partition_status import PartitionStatus, partition_status
from kornel.core.telling.partitions.partition_views import PartitionView, partition_view
from kornel.core.telling.preemption.outlook import ReadingIndex
from kornel.core.telling.queues.queue_views import QueueView, queue_views
from kornel.core.telling.users.user_views import GroupView, UserView, group_views, user_views
from kornel.core.telling.what_if.questions import suppose
from kornel.core.telling.what_if.supposition import Forecast, Supposition

A = TypeVar("A")
T = TypeVar("T")


class ReadableEngine(Protocol):
    """The part of an engine that a reader needs: :class:`kornel.core.engine.engine.Engine` has it."""

    @property
    def rm_id(self) -> str:
        """The registered resource manager; empty: none."""

    @property
    def manager(self) -> RegisteredManager | None:
        """The registered resource manager as it described itself; ``None``: none."""

    @property
    def checksum(self) -> str:
        """The checksum of the configuration in force; empty while nobody is registered."""

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force; ``None`` while nobody is registered."""

    @property
    def unrouted(self) -> int:
        """The number of unanswered entries that named an unknown partition."""

    def partition(self, name: str) -> PartitionState | None:
        """Returns the state of partition *name* (full form), to look at; ``None``: there is no such partition."""

    def partition_names(self) -> list[str]:
        """Returns the full names of all partitions, sorted."""


class UnknownPartition(KeyError):
    """There is no partition of that name."""


class _Kept:
    """The views of one partition that are kept from one answer to the next, only to save time."""

    def __init__(self, state: PartitionState) -> None:
        self.allocations = KeptViews(state)
        self.applications = ApplicationViews(state, self.allocations)
        self.nodes = NodeHeads()
        self.index = ReadingIndex()


class Reader:
    """Reads the partitions of *engine* between two of its turns, so that each answer is about one moment.

    *now_ns* returns the time of the engine. *absence* returns a sentence about a manager that is gone; empty: it is
    there, or none is registered. Partitions may be named in short or in full.
    """

    def __init__(
        self, engine: ReadableEngine, now_ns: Callable[[], int] = lambda: 0, absence: Callable[[], str] = lambda: ""
    ) -> None:
        self._engine = engine
        self._now_ns = now_ns
        self._absence = absence
        self._kept: WeakKeyDictionary[PartitionState, _Kept] = WeakKeyDictionary()
        self.shown_name: Callable[[str], str] = bare_partition_name
        """Turns the full name of a partition into the one that people know."""

    def __getitem__(self, partition: str) -> PartitionReader:
        """Reads one partition as it is now. Raises :class:`UnknownPartition`."""
        found = self.get(partition)
        if found is None:
            raise UnknownPartition(partition)
        return found

    def get(self, partition: str) -> PartitionReader | None:
        """Reads one partition as it is now; ``None``: there is no such partition."""
        engine = self._engine
        state = engine.partition(full_partition_name(engine.rm_id, partition))
        return self._reader_of(state) if state is not None else None

    def partitions(self) -> list[PartitionReader]:
        """Reads each partition as it is now, by name."""
        return [self._reader_of(state) for state in self.states()]

    @property
    def rm_id(self) -> str:
        """The registered resource manager; empty: none."""
        return self._engine.rm_id

    @property
    def manager(self) -> RegisteredManager | None:
        """The registered resource manager as it described itself; ``None``: none."""
        return self._engine.manager

    @property
    def checksum(self) -> str:
        """The checksum of the configuration in force; empty while nobody is registered."""
        return self._engine.checksum

    @property
    def unrouted(self) -> int:
        """The number of unanswered entries that named an unknown partition."""
        return self._engine.unrouted

    def states(self) -> list[PartitionState]:
        """Returns the records of each partition, by name."""
        engine = self._engine
        found = (engine.partition(name) for name in engine.partition_names())
        return [state for state in found if state is not None]

    def queue_of(self, application_id: str) -> str:
        """Returns the path of the queue of a live application, in whichever partition; empty: there is none."""
        found = (reader.queue_of(application_id) for reader in self.partitions())
        return next((path for path in found if path), "")

    def configuration_preview(
        self, watched: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> ConfigurationPreview:
        """Copies all that a configuration can change, for a preview. The cost is linear in queues and applications, and
        in the tasks of the queues *watched*, given as paths by partition."""
        engine = self._engine
        states = {name: engine.partition(name) for name in engine.partition_names()}
        now_ns = self._now_ns()
        moments = {
            name: moment_of(state, now_ns, watched.get(name, ())) for name, state in states.items() if state is not None
        }
        return ConfigurationPreview(engine.rm_id, engine.configuration, moments)

    def _reader_of(self, state: PartitionState) -> PartitionReader:
        kept = self._kept.get(state)
        if kept is None:
            kept = self._kept[state] = _Kept(state)
        return PartitionReader(state, kept, self._engine.rm_id, self._now_ns(), self._absence, self.shown_name)


class PartitionReader:
    """Reads one partition.

    Iterators are lazy, so that other tasks may run between two items. Each item shows the moment at which it is taken.
    """

    def __init__(
        self,
        state: PartitionState,
        kept: _Kept,
        rm_id: str,
        now_ns: int,
        absence: Callable[[], str],
        shown_name: Callable[[str], str] = bare_partition_name,
    ) -> None:
        self._state = state
        self._kept = kept
        self._rm_id = rm_id
        self._now_ns = now_ns
        self._absence = absence
        self._shown_name = shown_name

    @property
    def name(self) -> str:
        """The full name of the partition."""
        return self._state.name

    @property
    def shown_name(self) -> str:
        """The name by which people know the partition."""
        return self._shown_name(self._state.name)

    @property
    def rm_id(self) -> str:
        """The resource manager that the partition belongs to."""
        return self._rm_id

    @property
    def size(self) -> int:
        """The number of requests, nodes and applications."""
        state = self._state
        return len(state.requests) + len(state.nodes) + len(state.applications)

    @property
    def queue_count(self) -> int:
        """The number of queues."""
        return len(self._state.queues)

    @property
    def resolver(self) -> str:
        """The name of the resolver that is asked for the groups of users; empty: none."""
        return self._state.resolver

    def partition(self) -> PartitionView:
        """Shows the partition as a whole."""
        return partition_view(self._state, self._rm_id, self._now_ns)._replace(name=self.shown_name)

    def status(self, *, audited: bool = False) -> PartitionStatus:
        """Describes the partition for status calls. *audited*: check the books too, at a linear cost."""
        return partition_status(self._state, audited=audited, now_ns=self._now_ns)

    def gauges(self, most_queues: int) -> Iterator[PartitionGauges | None]:
        """Yields the gauges for metrics, with at most *most_queues* queues; ``None`` is a pause for other tasks."""
        return look_at_gauges(self._state, self._now_ns, most_queues)

    def find_faults(self) -> Iterator[Offender | None]:
        """Yields what does not add up in the books; ``None`` is a pause for other tasks."""
        return find_faults(self._state)

    def explain(self, subject: Subject[A]) -> A | None:
        """Explains *subject*: why it waits, what bounds it, or for whom it was preempted; ``None``: nothing is known of
        it."""
        reading = Reading(self._state, self._kept.index, self._now_ns, rm_id=self._rm_id, absence=self._absence())
        return subject.explain_from(reading)

    def foresee(self, order: PreemptByHand) -> PreemptionDecided:
        """Returns the decision that *order* would lead to now. Raises
        :class:`kornel.core.domain.commands.CommandRefused` if it would be refused."""
        return by_hand.foresee_order(self._state, order, self._now_ns)

    def suppose(self, question: Supposition) -> Forecast:
        """Forecasts the consequences of *question*, which it carries out: to be called in a copy of the process only.

        Raises :class:`kornel.core.domain.commands.CommandRefused` for a question that makes no sense.
        """
        return suppose(self._state, question, self._now_ns)

    def search_names(self, text: str) -> Iterator[FoundName | None]:
        """Yields everything whose name contains *text*, ignoring case; ``None`` is a pause for other tasks."""
        return search_names(self._state, text, self._now_ns)

    def find_placement(self, user: str, groups: Sequence[str], queue: str, tags: Mapping[str, str]) -> PlacementAnswer:
        """Returns the queue that an application of *user* would get if it were submitted now."""
        return find_placement(self._state, user, groups, queue, tags)

    def is_waiting(self, key: str) -> bool:
        """Tells whether *key* names an ask that has no node yet."""
        found = self._state.instances.get(key, {}).values() or [self._state.requests.get(key)]
        return any(request is not None and request.node is None for request in found)

    def queue_of(self, application_id: str) -> str:
        """Returns the path of the queue of a live application; empty: there is no such application."""
        application = self._state.applications.get(application_id)
        return application.queue.path if application is not None else ""

    def may_administer(self, path: str, user: str, groups: Sequence[str]) -> bool:
        """Tells whether *user* administers the queue at *path*; nobody administers one that does not exist."""
        queue = self._state.queues.get(path.lower())
        return queue is not None and may_administer(queue, user, groups)

    def rules(self) -> tuple[RuleView, ...]:
        """Shows the placement rules in force, in order."""
        return rule_views(self._state)

    def has_queue(self, path: str) -> bool:
        """Tells whether there is a queue at *path*, which is in lower case."""
        return path in self._state.queues

    def queues(self, path: str = "root", *, subtree: bool = True) -> Iterator[QueueView]:
        """Shows the queue at *path* and, with *subtree*, all below it, parents first, by name; nothing if there is no
        such queue."""
        return queue_views(self._state, path, subtree=subtree)

    def nodes(self) -> Iterator[NodeView]:
        """Shows all nodes by ID."""
        return self._tidy_after(
            node_view(self._state, node, self._kept.allocations) for node in nodes_by_id(self._state)
        )

    def node(self, node_id: str) -> NodeView | None:
        """Shows one node; ``None``: there is none."""
        node = self._state.nodes.get(node_id)
        return node_view(self._state, node, self._kept.allocations) if node is not None else None

    def has_node(self, node_id: str) -> bool:
        """Tells whether a node is registered."""
        return node_id in self._state.nodes

    def node_summaries(
        self,
        after: str = "",
        *,
        stranded: bool = False,
        attributes: Collection[tuple[str, str]] = (),
        node_ids: Collection[str] = (),
    ) -> Iterator[NodeSummary]:
        """Shows the nodes whose IDs come after *after*, by ID, without their allocations, and with what is *stranded*
        there: all, or only those with *attributes*, or of these *node_ids*."""
        waiting, wanted = list_waiting(self._state) if stranded else None, set(attributes)
        return (
            node_summary(self._state, node, waiting)
            for node in nodes_by_id(self._state, after, node_ids)
            if wanted.issubset(node.attributes)
        )

    def node_heads(self, render: Callable[[NodeView], bytes]) -> Iterator[tuple[bool, bytes]]:
        """Yields for each node, by ID, whether it is schedulable, and the result of *render* for the node without its
        allocations.

        *render* is called only for nodes that have changed, so its result must depend on its argument alone.
        """
        return self._kept.nodes.render_all(self._state, render)

    def topology_levels(self) -> list[LevelView]:
        """Shows the levels of the topology, the outermost first; none: the partition has no topology."""
        return level_views(self._state)

    def domains(self, level: str = "") -> Iterator[DomainView]:
        """Shows the domains of *level*, or of all levels if it is empty, outer domains before those within them, by
        name."""
        return domain_views(self._state, level)

    def claims(self) -> Iterator[ClaimView]:
        """Shows the room that is kept for asks which are not placed yet, by the key of the ask."""
        return claim_views(self._state, self._now_ns)

    def losers(self) -> list[tuple[str, int]]:
        """Returns the asks that lose again and again the room for which others leave, by key, and how often they have;
        see :func:`find_losers`."""
        return find_losers(self._state)

    def applications(self) -> Iterator[ApplicationView]:
        """Shows all live applications by ID."""
        return self._tidy_after(self._kept.applications.all_views())

    def application_parts(self, path: str, render: Callable[[ApplicationView], bytes]) -> Iterator[ApplicationParts]:
        """Shows the live applications in the queue at *path*, not below it, or all if *path* is empty, by ID and in
        parts.

        *render* gets each one without its asks and allocations, but only if it has changed since the last time, so the
        result must depend on the argument alone.
        """
        return self._tidy_after(self._kept.applications.render_parts(path, render))

    def applications_of(self, path: str) -> Iterator[ApplicationView]:
        """Shows the live applications in the queue at *path*, not below it, by ID; nothing if there is no such
        queue."""
        return self._tidy_after(self._kept.applications.of_queue(path))

    def application(self, application_id: str) -> ApplicationView | None:
        """Shows a live application; ``None``: there is none."""
        application = self._state.applications.get(application_id)
        return self._kept.applications.view_of(application) if application is not None else None

    def application_summaries(self, after: str = "") -> Iterator[ApplicationSummary]:
        """Shows the live applications whose IDs come after *after*, by ID, without their asks and allocations."""
        return self._kept.applications.list_summaries(after)

    def finished_applications(self) -> Iterator[ApplicationView]:
        """Shows the applications that completed, failed or were removed, the oldest first; an ID may occur several
        times."""
        return self._kept.applications.finished_views(self._now_ns)

    def rejected_applications(self) -> Iterator[ApplicationView]:
        """Shows the rejected applications, the oldest first."""
        return self._kept.applications.rejected_views(self._now_ns)

    def users(self, only: str = "") -> Iterator[UserView | None]:
        """Shows users that hold something or that a limit names, by name, or *only* one of them; ``None`` is a pause
        for other tasks."""
        return user_views(self._state, only)

    def groups(self, only: str = "") -> Iterator[GroupView | None]:
        """Shows groups that something counts for or that a limit names, by name, or *only* one of them; ``None`` is a
        pause for other tasks."""
        return group_views(self._state, only)

    def operator_drains(self) -> Mapping[str, OperatorDrain]:
        """Returns the drains of operators by node ID, also for nodes that are not registered."""
        return MappingProxyType(self._state.operator_drains)

    def _tidy_after(self, items: Iterator[T]) -> Iterator[T]:
        """Yields *items*, and in between drops some of the views kept for allocations that are gone."""
        for item in items:
            self._kept.allocations.forget_some()
            yield item
