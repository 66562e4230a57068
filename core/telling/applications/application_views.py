"""Shows applications: live ones as they are, and what is kept of those that have ended."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.application_states import AppState, StateEntry
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.names import bare_partition_name
from kornel.core.domain.priorities import PRIORITY_MIN, as_reported
from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.model.applications import Application, SpentKind
from kornel.core.policies.owners import groups_of
from kornel.core.state.history.past import EndedApplication
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.allocation_views import (
    AllocationView,
    AskView,
    KeptViews,
    Tags,
    ask_view,
    most_kept,
)


class PlaceholderView(NamedTuple):
    """The placeholders of one task group: how many there were, and how they ended."""

    task_group: str
    made: int
    resources: Resources
    replaced: int
    timed_out: int


class ShortfallView(NamedTuple):
    """A task group that runs below its minimum because members were lost: how many run, and how many have to."""

    task_group: str
    running: int
    needed: int


Spent = Mapping[str, Mapping[str, int]]
"""The usage as amount times seconds, by instance type and resource type."""


class SpentView(NamedTuple):
    """The amounts that ended allocations have used: real ones, those that were preempted, and placeholders."""

    real: Spent
    preempted: Spent
    placeholder: Spent


NOTHING_SPENT = SpentView({}, {}, {})


class ApplicationView(NamedTuple):
    """One application, live or remembered."""

    application_id: str
    partition: str
    queue: str
    state: AppState
    user: str
    groups: tuple[str, ...]
    used: Resources
    """The amounts that its real allocations use, not its placeholders."""
    placeholder: Resources
    max_used: Resources
    """The most of each type that its real allocations, or its placeholders, ever held, whichever is more."""
    pending: Resources
    submitted_ns: int
    started_ns: int
    """The time when it was first Running."""
    finished_ns: int
    asks: tuple[AskView, ...]
    allocations: tuple[AllocationView, ...]
    rejected: str
    """The reason for which it was rejected; empty: it was not."""
    states: tuple[StateEntry, ...]
    placeholders: tuple[PlaceholderView, ...]
    reservations: tuple[str, ...]
    """The keys of the asks that have a reservation."""
    priority: int
    """The highest priority that its asks lend it; ``PRIORITY_MIN`` if none does."""
    spent: SpentView
    backoff_until_ns: int
    tags: Tags = ()
    shortfalls: tuple[ShortfallView, ...] = ()


class ApplicationParts(NamedTuple):
    """A live application that is shown in parts, because it may have very many asks and allocations.

    ``head``: its encoded form without asks and allocations.
    """

    head: bytes
    asks: Iterator[Sequence[AskView]]
    allocations: Iterator[Sequence[AllocationView]]


class ApplicationSummary(NamedTuple):
    """One application in a long list, which is cheap to make."""

    application_id: str
    queue: str
    user: str
    state: AppState
    submitted_ns: int
    finished_ns: int
    used: Resources
    placeholder: Resources
    pending: Resources
    allocations: int
    asks: int
    oldest_ask_ns: int
    oldest_ask: str
    """The key of the pending ask that has waited longest; empty: none waits."""


_PIECE: Final = 256
"""The number of asks or allocations in one piece."""

Render = Callable[[ApplicationView], bytes]
"""A function that encodes an application without its asks and allocations. Equal views must give equal bytes."""


class ApplicationViews:
    """Shows the applications of one partition, and keeps the views and encoded forms for the next reader.

    Those of a live application are shown again until the application changes. No record is kept alive.
    """

    def __init__(self, state: PartitionState, allocations: KeptViews) -> None:
        self._past, self._live = state.past, state.applications
        self._types, self._partition = state.types, bare_partition_name(state.name)
        self._queues = state.queues
        self._allocations = allocations
        self._heads: dict[str, tuple[object, bytes]] = {}
        """The last encoded form of each live application by ID, with a stamp of the state from which it was made."""
        self._ended: dict[EndedApplication, ApplicationView] = {}

    def all_views(self) -> Iterator[ApplicationView]:
        """Shows all live applications, by ID."""
        return map(self.view_of, self._by_id())

    def of_queue(self, path: str) -> Iterator[ApplicationView]:
        """Shows the live applications in the queue at *path*, not below it, by ID."""
        return map(self.view_of, self._in_queue(path))

    def view_of(self, application: Application) -> ApplicationView:
        """Shows one live application with everything it asks for and holds."""
        asks = [view for piece in _asks(application) for view in piece] if application.asks else []
        reserved = tuple([ask.spec.key for ask in asks if ask.reserved_node])
        return self._make_view(application, tuple(asks), tuple(self._allocations.of_application(application)), reserved)

    def render_parts(self, path: str, render: Render) -> Iterator[ApplicationParts]:
        """Shows the live applications in the queue at *path*, not below it, or all if *path* is empty, by ID and in
        parts."""
        for application in self._in_queue(path) if path else self._by_id():
            head = self._render_head(application, render, _stamp_of(application, render))
            yield ApplicationParts(head, _asks(application), self._placed_views(application))

    def list_summaries(self, after: str) -> Iterator[ApplicationSummary]:
        """Shows summaries of all live applications whose IDs come after *after*, by ID."""
        return map(self._make_summary, self._by_id(after))

    def finished_views(self, now_ns: int) -> Iterator[ApplicationView]:
        """Shows the applications that have completed, failed or were removed, the oldest first."""
        return map(self._ended_view, self._past.finished_applications(now_ns))

    def rejected_views(self, now_ns: int) -> Iterator[ApplicationView]:
        """Shows the rejected applications, the oldest first."""
        return map(self._ended_view, self._past.rejected_applications(now_ns))

    def _by_id(self, after: str = "") -> Iterator[Application]:
        ids = sorted(self._live)
        for application_id in ids[bisect_right(ids, after) :] if after else ids:
            application = self._live.get(application_id)
            if application is not None:
                yield application

    def _in_queue(self, path: str) -> Iterator[Application]:
        queue = self._queues.get(path)
        for application_id in sorted(queue.applications if queue is not None else ()):
            application = self._live.get(application_id)
            if application is not None and application.queue is queue:
                yield application

    def _render_head(self, application: Application, render: Render, stamp: object) -> bytes:
        name = application.application_id
        kept = self._heads.get(name) if stamp is not None else None
        if kept is not None and kept[0] == stamp:
            return kept[1]
        asks = application.asks.items()
        reserved = sorted((key, ask.spec.key) for key, ask in asks if ask.reservation is not None)
        head = render(self._make_view(application, (), (), tuple([key for _, key in reserved])))
        if stamp is not None:
            if len(self._heads) >= most_kept(len(self._live)):
                self._heads = {key: value for key, value in self._heads.items() if key in self._live}
            self._heads[name] = stamp, head
        return head

    def _placed_views(self, application: Application) -> Iterator[list[AllocationView]]:
        if len(application.allocations) > _PIECE:
            return self._allocations.in_pieces(application, _PIECE)
        return iter([self._allocations.of_application(application)] if application.allocations else ())

    def _make_view(
        self,
        application: Application,
        asks: tuple[AskView, ...],
        allocations: tuple[AllocationView, ...],
        reserved: tuple[str, ...],
    ) -> ApplicationView:
        resources = self._types.to_resources
        return ApplicationView(
            application_id=application.application_id,
            partition=self._partition,
            queue=application.queue.path,
            state=application.state,
            user=application.user,
            groups=groups_of(application.spec),
            used=resources(application.confirmed_amounts()),
            placeholder=resources(application.placeholder),
            max_used=resources(application.most_held()),
            pending=resources(_pending_amounts(application)),
            submitted_ns=application.submitted_ns,
            started_ns=application.started_ns,
            finished_ns=0,
            asks=asks,
            allocations=allocations,
            rejected="",
            states=tuple(application.entered),
            placeholders=_view_placeholders(application),
            shortfalls=_view_shortfalls(application),
            reservations=reserved,
            priority=as_reported(application.priority),
            spent=self._view_spent(application),
            backoff_until_ns=application.backoff_until_ns or 0,
            tags=application.spec.tags,
        )

    def _view_spent(self, application: Application) -> SpentView:
        spent = application.spent
        return _spent_view({kind: self._types.to_resources(spent[kind]) for kind in sorted(spent)})

    def _make_summary(self, application: Application) -> ApplicationSummary:
        resources = self._types.to_resources
        waiting = [ask for ask in application.asks.values() if ask.place is not AskPlace.REPLACING]
        oldest = min(waiting, key=lambda ask: ask.created_ns, default=None)
        return ApplicationSummary(
            application.application_id,
            application.queue.path,
            application.user,
            application.state,
            application.submitted_ns,
            0,
            resources(application.confirmed_amounts()),
            resources(application.placeholder),
            resources(_pending_amounts(application)),
            len(application.allocations),
            len(waiting),
            oldest.created_ns if oldest is not None else 0,
            oldest.spec.key if oldest is not None else "",
        )

    def _ended_view(self, ended: EndedApplication) -> ApplicationView:
        view = self._ended.get(ended)
        if view is None:
            if len(self._ended) >= most_kept(2 * self._past.most):
                remembered = {*self._past.finished_applications(0), *self._past.rejected_applications(0)}
                self._ended = {known: shown for known, shown in self._ended.items() if known in remembered}
            view = self._ended[ended] = _ended_view(ended, self._partition)
        return view


def _ended_view(ended: EndedApplication, partition: str) -> ApplicationView:
    """Shows an application that has ended or was rejected, and so neither asks for nor holds anything."""
    return ApplicationView(
        application_id=ended.spec.application_id,
        partition=partition,
        queue=ended.queue,
        state=ended.state,
        user=ended.user,
        groups=groups_of(ended.spec),
        used=NOTHING,
        placeholder=NOTHING,
        max_used=ended.most_used,
        pending=NOTHING,
        submitted_ns=ended.submitted_ns,
        started_ns=ended.started_ns,
        finished_ns=ended.ended_ns,
        asks=(),
        allocations=(),
        rejected=ended.reason,
        states=ended.states,
        placeholders=tuple(
            [PlaceholderView(g.name, g.made, g.resources, g.replaced, g.timed_out) for g in ended.groups]
        ),
        reservations=(),
        priority=PRIORITY_MIN,
        spent=_spent_view(ended.spent),
        backoff_until_ns=0,
        tags=ended.spec.tags,
    )


def _stamp_of(application: Application, render: Render) -> object:
    """Returns a value that stays equal as long as the view of *application* does; ``None`` if making the value would
    cost more than making the view.

    An application without asks has neither pending amounts nor a priority.
    """
    if application.asks or application.task_groups:
        return None
    return (
        render,
        application.state,
        application.spec,
        application.queue.path,
        application.user,
        tuple(application.entered),
        application.submitted_ns,
        application.started_ns,
        application.backoff_until_ns,
        _view_shortfalls(application),
        *application.real,
        *application.peak,
        *application.placeholder,
        tuple([(kind, *amounts.items()) for kind, amounts in application.spent.items()]),
    )


def _asks(application: Application) -> Iterator[list[AskView]]:
    """Shows the asks that wait now, in pieces; each ask is shown as it is when its piece is made."""
    waiting = application.asks
    found = [waiting[key] for key in sorted(waiting) if waiting[key].place is not AskPlace.REPLACING]
    for start in range(0, len(found), _PIECE):
        yield [ask_view(each) for each in found[start : start + _PIECE]]


def _pending_amounts(application: Application) -> list[int]:
    """Returns the pending amounts, including those of asks that are held on a node while the shim is asked about
    them."""
    if not application.held_count:
        return application.pending
    pending = list(application.pending)
    for ask in application.asks.values():
        if ask.place is AskPlace.HELD:
            for t, amount in ask.shape.pairs:
                pending[t] += amount
    return pending


def _view_placeholders(application: Application) -> tuple[PlaceholderView, ...]:
    if not application.task_groups:
        return ()
    return tuple(
        PlaceholderView(name, group.count, group.shape.resources, group.replaced, group.timed_out)
        for name, group in sorted(application.task_groups.items())
    )


def _view_shortfalls(application: Application) -> tuple[ShortfallView, ...]:
    return tuple(
        ShortfallView(name, members.running, members.running + members.short)
        for name, members in sorted(application.members.items())
        if members.short
    )


def _spent_view(spent: Mapping[tuple[SpentKind, str], Resources]) -> SpentView:
    if not spent:
        return NOTHING_SPENT
    named: dict[SpentKind, dict[str, Resources]] = {kind: {} for kind in SpentKind}
    for (kind, instance_type), amounts in spent.items():
        named[kind][instance_type] = amounts
    return SpentView(named[SpentKind.REAL], named[SpentKind.PREEMPTED], named[SpentKind.PLACEHOLDER])
