"""Applications: live ones as they are, and what is kept of those that have ended."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from core.domain.application_states import AppState
from core.domain.commands import ApplicationSpec
from core.domain.partition_names import bare_partition_name
from core.domain.priorities import PRIORITY_MIN, as_reported
from core.domain.resources import NOTHING, Resources
from core.domain.views import (
    NOTHING_SPENT,
    AllocationView,
    ApplicationParts,
    ApplicationSummary,
    ApplicationView,
    AskView,
    PlaceholderView,
    SpentView,
    StateEntry,
)
from core.model.allocations import Allocation
from core.model.applications import Application, SpentKind
from core.partition.state import PartitionState
from core.policies.owners import groups_of
from core.telling.allocations import allocation_views as work

T = TypeVar("T")

_UNTOLD: Final = frozenset({AppState.NEW, AppState.ACCEPTED, AppState.RUNNING, AppState.FAILING, AppState.RESUMING})
"""States in which what was used is not final, and not shown."""

_PIECE: Final = 256
"""Asks or allocations handed over at once."""

Render = Callable[[ApplicationView], bytes]
"""What a reader makes of an application without its asks and allocations; always the same of the same."""

_FAILING: Final = frozenset({AppState.FAILING, AppState.FAILED})


def views(state: PartitionState) -> Iterator[ApplicationView]:
    """All live applications, by ID."""
    for application_id in sorted(state.applications):
        application = state.applications.get(application_id)
        if application is not None:
            yield view(state, application)


def of_queue(state: PartitionState, path: str) -> Iterator[ApplicationView]:
    """The live applications of the very queue at *path*, by ID."""
    queue = state.queues.get(path)
    for application_id in sorted(queue.applications if queue is not None else ()):
        application = state.applications.get(application_id)
        if application is not None and application.queue is queue:
            yield view(state, application)


def parts(state: PartitionState, path: str, render: Render) -> Iterator[ApplicationParts]:
    """The live applications, of the very queue at *path* or, if that is empty, of all, by ID, in parts."""
    queue = state.queues.get(path) if path else None
    for application_id in sorted(state.applications if not path else queue.applications if queue is not None else ()):
        application = state.applications.get(application_id)
        if application is not None and (not path or application.queue is queue):
            yield _parts(state, application, render)


def keep(state: PartitionState, render: Render) -> Iterator[None]:
    """Have kept what *render* makes of each live application of which that can be kept, one at a time."""
    for application in list(state.applications.values()):
        stamp = _stamp(application, render)
        if stamp is not None and state.applications.get(application.application_id) is application:
            _head(state, application, render, stamp)
        yield


def _parts(state: PartitionState, application: Application, render: Render) -> ApplicationParts:
    head = _head(state, application, render, _stamp(application, render))
    return ApplicationParts(head, _asks(application), _allocations(application))


def _head(state: PartitionState, application: Application, render: Render, stamp: object) -> bytes:
    shown = application.shown
    if stamp is None or shown is None or shown[0] != stamp:
        asks = application.asks.items()
        reserved = sorted((key, ask.spec.key) for key, ask in asks if ask.reservation is not None)
        shown = stamp, render(_view(state, application, (), (), tuple([name for _, name in reserved])))
        application.shown = shown if stamp is not None else None
    return shown[1]


def _stamp(application: Application, render: Render) -> object:
    """Equal as long as :func:`_view` shows the same; ``None`` for an application with more to look at than to show.

    One that asks for nothing has neither pending amounts nor a priority.
    """
    if application.asks or application.task_groups or application.state not in _UNTOLD:
        return None
    return (
        render,
        application.state,
        application.spec,
        application.queue,
        len(application.entered),
        application.entered[-1] if application.entered else None,
        application.submitted_ns,
        application.started_ns,
        application.backoff_until_ns,
        *application.real,
        *application.peak,
        *application.placeholder,
    )


def _asks(application: Application) -> Iterator[list[AskView]]:
    """Those that wait now, each as of when its turn comes."""
    waiting = application.asks
    return _in_pieces([waiting[key] for key in sorted(waiting) if waiting[key].replaces is None], work.ask)


def _allocations(application: Application) -> Iterator[list[AllocationView]]:
    placed = application.allocations
    found = [placed[key] for key in sorted(placed)]
    if len(found) > _PIECE:
        return _in_pieces(found, work.allocation)
    return iter([[each.view or work.allocation(each) for each in found]] if found else ())


def _in_pieces(found: list[Allocation], show: Callable[[Allocation], T]) -> Iterator[list[T]]:
    for start in range(0, len(found), _PIECE):
        yield [show(each) for each in found[start : start + _PIECE]]


def summaries(state: PartitionState, after: str) -> Iterator[ApplicationSummary]:
    """All live applications in short whose IDs come after *after*, by ID."""
    ids = sorted(state.applications)
    for application_id in ids[bisect_right(ids, after) :] if after else ids:
        application = state.applications.get(application_id)
        if application is not None:
            yield summary(state, application)


def view(state: PartitionState, application: Application) -> ApplicationView:
    """One live application with everything it asks for and holds."""
    waiting = application.asks
    asks = [work.ask(waiting[key]) for key in sorted(waiting) if waiting[key].replaces is None] if waiting else []
    reserved = tuple([ask.key for ask in asks if ask.reserved_node])
    return _view(state, application, tuple(asks), work.allocations(application), reserved)


def _view(
    state: PartitionState,
    application: Application,
    asks: tuple[AskView, ...],
    allocations: tuple[AllocationView, ...],
    reserved: tuple[str, ...],
) -> ApplicationView:
    resources = state.types.resources
    used = application.confirmed()
    return ApplicationView(
        application_id=application.application_id,
        partition=bare_partition_name(state.name),
        queue=application.queue.path,
        state=application.state,
        user=application.user,
        groups=groups_of(application.spec),
        used=resources(used),
        placeholder=resources(application.placeholder),
        max_used=resources(list(map(max, used, application.peak))),
        pending=resources(_pending(application)),
        submitted_ns=application.submitted_ns,
        started_ns=application.started_ns,
        finished_ns=0,
        asks=asks,
        allocations=allocations,
        rejected="",
        states=tuple(application.entered),
        placeholders=_placeholders(application),
        reservations=reserved,
        priority=as_reported(application.priority),
        spent=NOTHING_SPENT if application.state in _UNTOLD else _spent(state, application),
        backoff_until_ns=application.backoff_until_ns or 0,
        tags=application.spec.tags,
    )


def finished(state: PartitionState, application: Application, now_ns: int) -> ApplicationView:
    """*application* as it is remembered once it has left at *now_ns*: it asks for nothing and holds nothing.

    One that was removed before its time was up counts as what it was about to become.
    """
    ended = AppState.FAILED if application.state in _FAILING else AppState.COMPLETED
    entered = tuple(application.entered)
    if application.state is not ended:
        entered = (*entered, StateEntry(now_ns, ended))
    peak = list(map(max, application.confirmed(), application.peak))
    return ApplicationView(
        application_id=application.application_id,
        partition=bare_partition_name(state.name),
        queue=application.queue.path,
        state=ended,
        user=application.user,
        groups=groups_of(application.spec),
        used=NOTHING,
        placeholder=NOTHING,
        max_used=state.types.resources(peak),
        pending=NOTHING,
        submitted_ns=application.submitted_ns,
        started_ns=application.started_ns,
        finished_ns=now_ns,
        asks=(),
        allocations=(),
        rejected="",
        states=entered,
        placeholders=_placeholders(application),
        reservations=(),
        priority=PRIORITY_MIN,
        spent=_spent(state, application),
        backoff_until_ns=0,
        tags=application.spec.tags,
    )


def rejected(state: PartitionState, spec: ApplicationSpec, user: str, reason: str, now_ns: int) -> ApplicationView:
    """What was not taken, as it is remembered."""
    return ApplicationView(
        application_id=spec.application_id,
        partition=bare_partition_name(state.name),
        queue=spec.queue,
        state=AppState.REJECTED,
        user=user,
        groups=groups_of(spec),
        used=NOTHING,
        placeholder=NOTHING,
        max_used=NOTHING,
        pending=NOTHING,
        submitted_ns=now_ns,
        started_ns=0,
        finished_ns=now_ns,
        asks=(),
        allocations=(),
        rejected=reason,
        states=(StateEntry(now_ns, AppState.REJECTED),),
        placeholders=(),
        reservations=(),
        priority=PRIORITY_MIN,
        spent=NOTHING_SPENT,
        backoff_until_ns=0,
        tags=spec.tags,
    )


def summary(state: PartitionState, application: Application) -> ApplicationSummary:
    """One live application in short."""
    resources = state.types.resources
    return ApplicationSummary(
        application.application_id,
        application.queue.path,
        application.user,
        application.state,
        application.submitted_ns,
        0,
        resources(application.confirmed()),
        resources(application.placeholder),
        resources(_pending(application)),
        len(application.allocations),
        len(application.asks),
    )


def summary_of(view: ApplicationView) -> ApplicationSummary:
    """What has ended, in short."""
    return ApplicationSummary(
        view.application_id,
        view.queue,
        view.user,
        view.state,
        view.submitted_ns,
        view.finished_ns,
        view.used,
        view.placeholder,
        view.pending,
        len(view.allocations),
        len(view.asks),
    )


def _pending(application: Application) -> list[int]:
    """What it asks for, asks included that are charged on a node while the shim is asked about them."""
    if not application.held_count:
        return application.pending
    pending = list(application.pending)
    for ask in application.asks.values():
        if ask.held_on is not None:
            for t, amount in ask.shape.pairs:
                pending[t] += amount
    return pending


def _placeholders(application: Application) -> tuple[PlaceholderView, ...]:
    if not application.task_groups:
        return ()
    return tuple(
        PlaceholderView(name, group.count, group.shape.resources, group.replaced, group.timed_out)
        for name, group in sorted(application.task_groups.items())
    )


def _spent(state: PartitionState, application: Application) -> SpentView:
    if not application.spent:
        return NOTHING_SPENT
    named: dict[SpentKind, dict[str, Resources]] = {kind: {} for kind in SpentKind}
    for (kind, instance_type), amounts in sorted(application.spent.items()):
        named[kind][instance_type] = state.types.resources(amounts)
    return SpentView(named[SpentKind.REAL], named[SpentKind.PREEMPTED], named[SpentKind.PLACEHOLDER])
