"""Holds the tasks of some queues at one moment, as plain values from which the planner of a lowered max can be given
the same tasks elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.task_groups import TaskGroup
from kornel.core.state.partition_state import PartitionState

MOST_TASKS: Final = 20_000
"""The most tasks of a partition that are written down, which takes about 50 ms."""


class GroupMoment(NamedTuple):
    """A task group of an application. ``asked`` placeholders were ever asked for; other fields as in
    :class:`~kornel.core.model.task_groups.TaskGroup`."""

    application_id: str
    name: str
    resources: Resources
    stated_minimum: int | None
    topology: TopologyRequest | None
    asked: int
    replaced: int
    timed_out: int
    lost: int


class TaskMoment(NamedTuple):
    """A task that runs, or is leaving.

    replacement  the ask that takes its place; ``None``: none does
    stays        it was asked to leave, is stuck, and is to be replaced by others
    """

    spec: AllocationSpec
    resources: Resources
    created_ns: int
    arrival: int
    bound_ns: int
    node_id: str
    place: AskPlace
    replacement: AllocationSpec | None
    stays: bool


class TaskMoments(NamedTuple):
    """The tasks at and below the queues at ``paths``. ``complete`` tells whether they were few enough to be written
    down."""

    paths: tuple[str, ...] = ()
    complete: bool = True
    groups: Sequence[GroupMoment] = ()
    tasks: Sequence[TaskMoment] = ()

    def paths_include(self, paths: Iterable[str]) -> bool:
        """Tells whether the tasks of all queues at *paths* are among these."""
        return set(paths) <= set(self.paths)


def tasks_of(state: PartitionState, paths: Collection[str]) -> TaskMoments:
    """Returns the tasks at and below the queues of *state* at *paths*; a path without a queue has none."""
    leaves = dict.fromkeys(leaf for path in paths if path in state.queues for leaf in _leaves_below(state.queues[path]))
    applications = [application for leaf in leaves for application in leaf.applications.values()]
    if sum(len(application.allocations) for application in applications) > MOST_TASKS:
        return TaskMoments(tuple(paths), complete=False)
    return TaskMoments(
        tuple(paths),
        True,
        [
            GroupMoment(
                application.application_id,
                group.name,
                group.shape.resources,
                group.stated_minimum,
                group.topology,
                group.count,
                group.replaced,
                group.timed_out,
                group.lost,
            )
            for application in applications
            for group in application.task_groups.values()
        ],
        [
            TaskMoment(
                task.spec,
                task.shape.resources,
                task.created_ns,
                task.arrival,
                task.bound_ns,
                task.node.node_id if task.node is not None else "",
                task.place,
                task.replaced_by.spec if task.replaced_by is not None else None,
                task in state.stuck and task not in state.enforcement.replacing,
            )
            for application in applications
            for task in application.allocations.values()
        ],
    )


def restore_tasks(state: PartitionState, moments: TaskMoments) -> None:
    """Gives the applications of *state*, whose queues hold the amounts already, the tasks of *moments*."""
    applications = {
        application.application_id: application
        for queue in state.queues.values()
        for application in queue.applications.values()
    }
    for group in moments.groups:
        application = applications[group.application_id]
        made = TaskGroup(group.name, state.types.shape_of(group.resources), group.stated_minimum, group.topology)
        made.count, made.replaced, made.timed_out = group.asked, group.replaced, group.timed_out
        made.lost = group.lost
        application.task_groups = {**application.task_groups, group.name: made}
    nodes: dict[str, Node] = {}
    width = len(state.types.names)
    for row in moments.tasks:
        task = _restore_task(state, applications[row.spec.application_id], row)
        task.node = nodes.get(row.node_id)
        if task.node is None:
            task.node = nodes[row.node_id] = Node(row.node_id, (), [0] * width)


def _restore_task(state: PartitionState, application: Application, row: TaskMoment) -> Allocation:
    shape = state.types.shape_of(row.resources)
    task = Allocation(row.spec, application, shape, row.created_ns, row.arrival)
    task.bound_ns, task.place = row.bound_ns, row.place
    if row.replacement is not None:
        task.where = Allocation(row.replacement, application, shape, row.created_ns, row.arrival)
    if row.stays:
        state.stuck[task] = application.queue
    application.allocations = application.allocations or {}
    application.allocations[task.key] = task
    application.placeholder_count += row.spec.placeholder
    return task


def _leaves_below(queue: Queue) -> Iterator[Queue]:
    if queue.leaf:
        yield queue
    for child in queue.children.values():
        yield from _leaves_below(child)
