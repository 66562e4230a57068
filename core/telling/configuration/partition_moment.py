"""Holds the part of a partition on which configurations have an effect, at one moment, as plain values from which a
copy can be made elsewhere.

The configuration in force is not included, because the code that restores a partition has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kornel.core.config.model import PartitionConfig
from kornel.core.domain.access import AccessList
from kornel.core.domain.application_states import AppState
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import QueueProperties
from kornel.core.model.applications import Application
from kornel.core.model.queues import DynamicTerms, Queue
from kornel.core.model.shapes import KnownTypes
from kornel.core.model.users import NO_LIMITS, QueueLimits
from kornel.core.policies.owners import groups_of
from kornel.core.policies.placement.rules import compile_rules
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.configuration.enforcement_trial import Remainders, remainders_of, restore_remainders
from kornel.core.telling.configuration.limit_usage import Holder
from kornel.core.telling.configuration.task_moment import TaskMoments, restore_tasks, tasks_of


class QueueMoment(NamedTuple):
    """A queue. ``limits``: users and groups of its :class:`~kornel.core.model.users.QueueLimits`; ``None``: it has
    none.

    Other fields as in :class:`~kornel.core.model.queues.Queue`.
    """

    path: str
    leaf: bool
    managed: bool
    draining: bool
    properties: QueueProperties
    submit_acl: AccessList
    admin_acl: AccessList
    max_applications: int
    limits: QueueLimits | None
    dynamic_terms: DynamicTerms | None
    guaranteed: dict[int, int]
    max: dict[int, int]
    used: list[int]
    pending: list[int]
    preempting: list[int]
    waiting: int


class Subject(NamedTuple):
    """The facts about an application that placement needs."""

    spec: ApplicationSpec
    queue: str
    user: str


class PartitionMoment(NamedTuple):
    """A partition at ``at_ns``.

    queues   parents before their children
    armed    the times from which maxima are enforced, by queue
    rests    what the last run of a queue left above its max
    watched  the tasks of the queues that a preview wants to enforce
    """

    name: str
    at_ns: int
    types: KnownTypes
    queues: Sequence[QueueMoment]
    armed: Mapping[str, int]
    rests: Remainders
    subjects: Sequence[Subject]
    holders: Sequence[Holder]
    watched: TaskMoments = TaskMoments()


def moment_of(state: PartitionState, now_ns: int, watched: Collection[str] = ()) -> PartitionMoment:
    """Returns the values of *state* as it is now, with the tasks of the queues at the paths *watched*."""
    armed = state.enforcement.armed.items()
    return PartitionMoment(
        state.name,
        now_ns,
        state.types.known_now(),
        [_queue_moment(queue) for queue in _walk_subtree(state.root)],
        {queue.path: at_ns for queue, at_ns in armed if state.queues.get(queue.path) is queue},
        remainders_of(state),
        [Subject(app.spec, app.queue.path, app.user) for app in state.applications.values()],
        [
            Holder(
                app.user,
                groups_of(app.spec),
                app.limit_group,
                app.state is not AppState.NEW,
                app.queue.path,
                _held_amounts(state, app.real, app.placeholder),
                bool(app.allocations),
            )
            for app in state.applications.values()
        ],
        tasks_of(state, watched),
    )


def restore_partition(moment: PartitionMoment, config: PartitionConfig) -> PartitionState:
    """Returns a partition with the queues of *moment*, at which *config* was in force, and with the tasks that were
    written down. It has neither nodes nor applications of its own."""
    state = PartitionState(moment.name, moment.queues[0].properties, config.preemption, [])
    state.types.adopt_types(moment.types)
    state.placement_rules = compile_rules(config.placement_rules)
    state.config = config
    _restore_queue(moment.queues[0], state.root)
    for row in moment.queues[1:]:
        above, _, name = row.path.rpartition(".")
        queue = state.new_queue(name, state.queues[above], leaf=row.leaf, properties=row.properties)
        _restore_queue(row, queue)
    for path, start_ns in moment.armed.items():
        state.enforcement.armed[state.queues[path]] = start_ns
    for spec, path, user in moment.subjects:
        # They are only known to the queue, which uses them to tell whether it is empty.
        queue = state.queues[path]
        queue.applications[spec.application_id] = Application(spec, queue, user, 0, state.nothing_held)
    restore_tasks(state, moment.watched)
    restore_remainders(state, moment.rests, moment.at_ns)
    return state


def _held_amounts(state: PartitionState, real: list[int], placeholder: list[int]) -> Resources:
    return state.types.to_resources([a + b for a, b in zip(real, placeholder, strict=True)])


def _walk_subtree(queue: Queue) -> Iterator[Queue]:
    yield queue
    for child in queue.children.values():
        yield from _walk_subtree(child)


def _queue_moment(queue: Queue) -> QueueMoment:
    return QueueMoment(
        queue.path,
        queue.leaf,
        queue.managed,
        queue.draining,
        queue.properties,
        queue.submit_acl,
        queue.admin_acl,
        queue.max_applications,
        None if queue.limits is NO_LIMITS else queue.limits,
        queue.dynamic_terms,
        dict(queue.guaranteed),
        dict(queue.max),
        list(queue.used),
        list(queue.pending),
        list(queue.preempting),
        queue.waiting,
    )


def _restore_queue(row: QueueMoment, queue: Queue) -> None:
    queue.managed, queue.draining = row.managed, row.draining
    queue.submit_acl, queue.admin_acl = row.submit_acl, row.admin_acl
    queue.max_applications = row.max_applications
    queue.limits = NO_LIMITS if row.limits is None else row.limits
    queue.dynamic_terms = row.dynamic_terms
    queue.set_limits(row.guaranteed, dict(row.max))
    queue.used, queue.pending, queue.preempting = list(row.used), list(row.pending), list(row.preempting)
    queue.waiting = row.waiting
