"""Shows users and groups: what they hold and what their limits are, queue by queue (rest.md 4.12).

Usage is kept by application, and the sums are computed for each answer. Users and groups are shown if an application of
theirs holds something, or if a limit names them. ``*`` is shown only as a group, because users that only ``*`` names
have accounts of their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from operator import add, attrgetter
from typing import Final, NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Vector
from kornel.core.model.users import WILDCARD, AccountKind, Limit
from kornel.core.state.partition_state import PartitionState


class UsageView(NamedTuple):
    """The usage of a user or group in one queue and below. ``max`` ``None``, ``max_applications`` 0: not limited."""

    path: str
    used: Resources
    applications: tuple[str, ...]
    """The IDs of the applications that hold something, sorted."""
    max: Resources | None
    max_applications: int
    children: tuple[UsageView, ...]


class UserView(NamedTuple):
    """A user that holds something or that a limit names. ``groups``: by application, the group it counts for."""

    user: str
    groups: Mapping[str, str]
    usage: UsageView


class GroupView(NamedTuple):
    """A group that applications count for, or that a limit names; ``*`` stands for all groups that no limit names."""

    group: str
    applications: tuple[str, ...]
    usage: UsageView


_USER: Final = AccountKind.USER
_GROUP: Final = AccountKind.GROUP
_PATH: Final = attrgetter("path")

_LEAVES_A_STEP: Final = 64
"""The number of queues summed up between two pauses for other tasks."""


def user_views(state: PartitionState, only: str = "") -> Iterator[UserView | None]:
    """Yields all users, by name, or *only* one; ``None`` is a pause for other tasks."""
    for name, owned in _find_holders(state, _USER, only):
        yield from _view_user(state, name, owned)


def group_views(state: PartitionState, only: str = "") -> Iterator[GroupView | None]:
    """Yields all groups, by name, or *only* one; ``None`` is a pause for other tasks."""
    for name, members in _find_holders(state, _GROUP, only):
        yield from _view_group(state, name, members)


def _find_holders(state: PartitionState, kind: AccountKind, only: str) -> list[tuple[str, list[Application]]]:
    """Returns users or groups that hold something or that a limit names, by name, each with its applications that hold
    something."""
    limits = [queue.limits.users if kind is _USER else queue.limits.groups for queue in state.queues.values()]
    named = {name for limit in limits for name in limit if only in ("", name)}
    if kind is _USER and not only:
        named.discard(WILDCARD)
    found: dict[str, list[Application]] = {name: [] for name in named}
    for application in state.applications.values():
        name = application.user if kind is _USER else application.limit_group
        if application.allocations and name is not None and only in ("", name):
            found.setdefault(name, []).append(application)
    return sorted(found.items())


def _view_user(state: PartitionState, name: str, owned: list[Application]) -> Iterator[UserView | None]:
    usage = _Usage(state, _USER, name)
    yield from usage.sum_up(owned)
    tracked = {a.application_id: a.limit_group for a in owned if a.limit_group is not None}
    groups = {application_id: tracked[application_id] for application_id in sorted(tracked)}
    yield UserView(name, groups, usage.found)


def _view_group(state: PartitionState, name: str, members: list[Application]) -> Iterator[GroupView | None]:
    usage = _Usage(state, _GROUP, name)
    yield from usage.sum_up(members)
    yield GroupView(name, tuple(sorted([application.application_id for application in members])), usage.found)


class _Usage:
    """The queues in which one user or group holds something or has a limit, as a tree, which is in ``found`` once it is
    computed."""

    found: UsageView

    def __init__(self, state: PartitionState, kind: AccountKind, name: str) -> None:
        self._state = state
        self._kind = kind
        self._name = name
        self._used: dict[Queue, Vector] = {}
        self._applications: dict[Queue, list[str]] = {}
        self._below: dict[Queue, list[Queue]] = {}
        """The children of a queue that are in the tree."""

    def sum_up(self, holders: Iterable[Application]) -> Iterator[None]:
        """Sums up what *holders* hold, in steps."""
        by_leaf: dict[Queue, list[Application]] = {}
        for application in holders:
            by_leaf.setdefault(application.queue, []).append(application)
        for number, (leaf, here) in enumerate(by_leaf.items()):
            self._add(leaf, here)
            if number % _LEAVES_A_STEP == _LEAVES_A_STEP - 1:
                yield None
        for queue in self._state.queues.values():
            limits = queue.limits
            if self._name in (limits.users if self._kind is _USER else limits.groups):
                self._usage_in(queue)
        root = self._state.root
        self._usage_in(root)
        found = yield from self._view_usage(root)
        self.found = found

    def _usage_in(self, queue: Queue) -> Vector:
        """Returns the amounts used in *queue*, to which the caller adds, and puts the queue and its ancestors into the
        tree."""
        used = self._used.get(queue)
        if used is None:
            used = self._used[queue] = [0] * len(self._state.types.names)
            if queue.parent is not None:
                self._usage_in(queue.parent)
                self._below.setdefault(queue.parent, []).append(queue)
        return used

    def _add(self, leaf: Queue, here: list[Application]) -> None:
        total = [0] * len(self._state.types.names)
        for application in here:
            for held in (application.confirmed_amounts(), application.placeholder):
                if any(held):
                    total = list(map(add, total, held))
        ids = [application.application_id for application in here]
        for level in leaf.lineage():
            known = self._usage_in(level)
            known[:] = map(add, known, total)
            self._applications.setdefault(level, []).extend(ids)

    def _view_usage(self, queue: Queue) -> Generator[None, None, UsageView]:
        limit = self._find_limit(queue)
        resources = self._state.types.to_resources
        below = sorted(self._below.get(queue, ()), key=_PATH)
        children = []
        for number, child in enumerate(below):
            children.append((yield from self._view_usage(child)))
            if number % _LEAVES_A_STEP == _LEAVES_A_STEP - 1:
                yield None
        ids = self._applications.get(queue, ())
        return UsageView(
            queue.path,
            resources(self._used[queue]),
            tuple(sorted(ids)),
            resources(limit.max) if limit is not None and limit.max else None,
            limit.max_applications if limit is not None else 0,
            tuple(children),
        )

    def _find_limit(self, queue: Queue) -> Limit | None:
        """Returns the limit of *queue* that binds; a user that no limit names is bound by the limit of ``*``."""
        if self._kind is _GROUP:
            return queue.limits.groups.get(self._name)
        return queue.limits.users.get(self._name) or queue.limits.users.get(WILDCARD)
