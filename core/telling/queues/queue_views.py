"""Shows queues, parents before their children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kornel.core.config.keys import properties
from kornel.core.config.model import ChildTemplate, QueueConfig
from kornel.core.domain.names import RECOVERY_PATH
from kornel.core.domain.priorities import as_reported
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import PreemptionPolicyKind, PriorityPolicy, SortPolicy
from kornel.core.engine.configuration.configure import walk_queues
from kornel.core.model.queues import Queue
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.queues.above_max import AboveMax, above_max_of


class TemplateView(NamedTuple):
    """The template with which placement makes queues below a parent. ``max_applications`` 0: unlimited."""

    max_applications: int
    max: Resources
    guaranteed: Resources
    properties: Mapping[str, str]


class WastedWork(NamedTuple):
    """The work that tasks of a queue and all below it lost by one kind of preemption, in resource-seconds: what they
    held, times how long they had run since they last saved their work."""

    kind: str
    resources: Resources


class QueueView(NamedTuple):
    """One queue. ``max`` of the root is what its nodes offer. ``max`` is ``None`` if the queue has none, ``headroom``
    if no queue on its path has one."""

    path: str
    parent: str
    """The path of the parent; empty: this is the root."""
    children: tuple[str, ...]
    """The paths of the children, sorted."""
    status: str
    leaf: bool
    managed: bool
    guaranteed: Resources
    max: Resources | None
    used: Resources
    pending: Resources
    preempting: Resources
    headroom: Resources | None
    """The least that any level up to the root leaves; an absent type is not limited."""
    properties: Mapping[str, str]
    template: TemplateView | None
    max_applications: int
    running_applications: int
    applications: int
    """The number of live applications in the queue itself."""
    priority: int
    """The priority that it shows its parent; ``PRIORITY_MIN`` if no ask lends it one."""
    allocating: tuple[str, ...]
    """The applications that hold something and do not run yet."""
    sort_policy: str
    sort_by_priority: bool
    preemption_enabled: bool
    preemption_fence: bool
    priority_fence: bool
    preemption_delay_ns: int
    quota_preemption_delay_ns: int
    quota_running: bool
    quota_due_ns: int
    priority_offset: int
    backoff: int
    backoff_delay_ns: int
    preempted: Resources
    """The sum of everything that preemption ever took from it."""
    preempted_allocations: int
    wasted: tuple[WastedWork, ...]
    above: AboveMax | None = None
    """The excess above its max; ``None``: it holds no more than its max, or is not configured."""


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def queue_views(state: PartitionState, path: str, *, subtree: bool) -> Iterator[QueueView]:
    """Yields the queue at *path* and, with *subtree*, everything below it in tree order; nothing if there is none."""
    return _walk_views(state, path, _list_configured(state), subtree=subtree)


def show_properties(state: PartitionState, queue: Queue) -> Mapping[str, str]:
    """Returns the properties in force at *queue* as texts, inherited ones included."""
    return _write_properties(queue, *_nearest_config(_list_configured(state), queue.path))


def _list_configured(state: PartitionState) -> dict[str, QueueConfig]:
    return dict(walk_queues(state.config.root, "root")) if state.config is not None else {}


def _walk_views(
    state: PartitionState, path: str, configured: Mapping[str, QueueConfig], *, subtree: bool
) -> Iterator[QueueView]:
    queue = state.queues.get(path)
    if queue is None:
        return
    yield queue_view(state, queue, configured)
    if subtree:
        for name in sorted(queue.children):
            yield from _walk_views(state, f"{path}.{name}", configured, subtree=True)


def queue_view(state: PartitionState, queue: Queue, configured: Mapping[str, QueueConfig]) -> QueueView:
    """Shows one queue as it is now. *configured*: the queues of the configuration by path."""
    resources, terms, enforcement = state.types.to_resources, queue.properties, state.enforcement
    above, below = _nearest_config(configured, queue.path)
    headroom = _find_headroom(queue)
    return QueueView(
        path=queue.path,
        parent=queue.parent.path if queue.parent is not None else "",
        children=tuple([f"{queue.path}.{name}" for name in sorted(queue.children)]),
        status="Draining" if queue.draining else "Active",
        leaf=queue.leaf,
        managed=queue.managed,
        guaranteed=resources(queue.guaranteed),
        max=resources(queue.max) if queue.max else None,
        used=resources(queue.used),
        pending=resources(queue.pending),
        preempting=resources(queue.preempting),
        headroom=resources(headroom) if headroom is not None else None,
        properties=_write_properties(queue, above, below),
        template=_find_template(queue, above),
        max_applications=queue.max_applications,
        running_applications=queue.running,
        applications=len(queue.applications),
        priority=as_reported(queue.priority),
        allocating=tuple(sorted([application.application_id for application in queue.allocating])),
        sort_policy=terms.sort_policy if queue.leaf else SortPolicy.FAIR,
        sort_by_priority=terms.sort_by_priority,
        preemption_enabled=terms.preemption_policy is not PreemptionPolicyKind.DISABLED,
        preemption_fence=terms.preemption_policy is PreemptionPolicyKind.FENCE,
        priority_fence=terms.priority_policy is PriorityPolicy.FENCE,
        preemption_delay_ns=terms.preemption_delay_ns,
        quota_preemption_delay_ns=terms.quota_preemption_delay_ns,
        quota_running=enforcement.run is not None and enforcement.run.queue is queue,
        quota_due_ns=enforcement.armed.get(queue, 0),
        priority_offset=terms.priority_offset,
        backoff=terms.unschedulable_backoff,
        backoff_delay_ns=terms.unschedulable_backoff_delay_ns,
        preempted=resources(queue.preempted_total),
        preempted_allocations=queue.preempted_count,
        wasted=wasted_of(state, queue),
        above=above_max_of(state, queue) if queue in enforcement.above else None,
    )


def wasted_of(state: PartitionState, queue: Queue) -> tuple[WastedWork, ...]:
    """Returns the work that was lost in *queue* and below, for each kind of preemption that wasted any."""
    return tuple([WastedWork(kind, state.types.to_resources(sums)) for kind, sums in sorted(queue.wasted.items())])


def _find_headroom(queue: Queue) -> dict[int, int] | None:
    """Returns the least that any level leaves of each type; ``None``: no level has a max."""
    least: dict[int, int] | None = None
    for level in queue.lineage():
        if level.max:
            if least is None:
                least = {}
            for t, most in level.max.items():
                left = most - level.used[t]
                if t not in least or left < least[t]:
                    least[t] = left
    return least


def _nearest_config(configured: Mapping[str, QueueConfig], path: str) -> tuple[QueueConfig | None, int]:
    """Returns the configured queue at *path* or the nearest one above it, and how many levels above it is."""
    levels = 0
    while path and path not in configured:
        path = path.rpartition(".")[0]
        levels += 1
    return configured.get(path), levels


def _write_properties(queue: Queue, config: QueueConfig | None, below: int) -> Mapping[str, str]:
    """Returns the properties in force as texts, inherited ones included."""
    if config is None or queue.path == RECOVERY_PATH:
        return _NONE
    if not below:
        return config.effective_raw
    texts: Mapping[str, str] = config.effective_raw
    for _ in range(below):
        texts = properties.inherited_properties(texts)
    template = config.dynamic_template
    return {**texts, **template.properties} if queue.leaf and template is not None else texts


def _find_template(queue: Queue, config: QueueConfig | None) -> TemplateView | None:
    if queue.leaf or config is None:
        return None
    template = config.child_template if queue.managed else config.dynamic_template
    return _view_template(template) if template is not None else None


def _view_template(template: ChildTemplate) -> TemplateView:
    return TemplateView(
        template.max_applications,
        Resources(template.max),
        Resources(template.guaranteed),
        template.properties,
    )
