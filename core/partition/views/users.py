"""What users and groups hold, and what their limits are, queue by queue (rest.md 4.12).

Usage is kept per application; who looks pays for the sum. Seen are owners of applications that hold something, and
everybody whom a limit names; ``*`` only as a group, because users that it alone names have limits of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from core.domain.views import GroupView, UsageView, UserView
from core.model.applications import Application
from core.model.queues import Queue
from core.model.shapes import Vector
from core.model.users import WILDCARD, AccountKind, Limit
from core.partition.state import PartitionState

_USER: Final = AccountKind.USER
_GROUP: Final = AccountKind.GROUP


def users(state: PartitionState) -> Iterator[UserView]:
    """All of them, by name."""
    named = {name for queue in state.queues.values() for name in queue.limits.users} - {WILDCARD}
    owned: dict[str, list[Application]] = {name: [] for name in named}
    for application in state.applications.values():
        if application.allocations:
            owned.setdefault(application.user, []).append(application)
    for name in sorted(owned):
        yield _user(state, name, owned[name])


def user(state: PartitionState, name: str) -> UserView | None:
    """One of them; ``None``: it neither holds anything nor is named by a limit."""
    owned = [a for a in state.applications.values() if a.user == name and a.allocations]
    if not owned and not any(name in queue.limits.users for queue in state.queues.values()):
        return None
    return _user(state, name, owned)


def groups(state: PartitionState) -> Iterator[GroupView]:
    """All of them, by name."""
    named = {name for queue in state.queues.values() for name in queue.limits.groups}
    members: dict[str, list[Application]] = {name: [] for name in named}
    for application in state.applications.values():
        if application.limit_group is not None and application.allocations:
            members.setdefault(application.limit_group, []).append(application)
    for name in sorted(members):
        yield _group(state, name, members[name])


def group(state: PartitionState, name: str) -> GroupView | None:
    """One of them; ``None``: nothing counts for it and no limit names it."""
    members = [a for a in state.applications.values() if a.limit_group == name and a.allocations]
    if not members and not any(name in queue.limits.groups for queue in state.queues.values()):
        return None
    return _group(state, name, members)


def _user(state: PartitionState, name: str, owned: list[Application]) -> UserView:
    tracked = {a.application_id: a.limit_group for a in owned if a.limit_group is not None}
    return UserView(
        name,
        {application_id: tracked[application_id] for application_id in sorted(tracked)},
        _Usage(state, _USER, name, owned).view(),
    )


def _group(state: PartitionState, name: str, members: list[Application]) -> GroupView:
    return GroupView(
        name,
        tuple(sorted([application.application_id for application in members])),
        _Usage(state, _GROUP, name, members).view(),
    )


class _Usage:
    """The queues in which one user or group holds something or has a limit, as a tree."""

    def __init__(self, state: PartitionState, kind: AccountKind, name: str, holders: Iterable[Application]) -> None:
        self._state = state
        self._kind = kind
        self._name = name
        self._used: dict[Queue, Vector] = {}
        self._applications: dict[Queue, list[str]] = {}
        by_leaf: dict[Queue, list[Application]] = {}
        for application in holders:
            by_leaf.setdefault(application.queue, []).append(application)
        for leaf, here in by_leaf.items():
            self._add(leaf, here)
        for queue in state.queues.values():
            named = queue.limits.users if kind is _USER else queue.limits.groups
            if name in named:
                for level in queue.lineage():
                    self._used.setdefault(level, [0] * len(state.types.names))

    def view(self) -> UsageView:
        """From the root down."""
        return self._view(self._state.root)

    def _add(self, leaf: Queue, here: list[Application]) -> None:
        total = [0] * len(self._state.types.names)
        for application in here:
            held = application.confirmed(), application.placeholder
            total = [amount + real + waiting for amount, real, waiting in zip(total, *held, strict=True)]
        ids = [application.application_id for application in here]
        for level in leaf.lineage():
            known = self._used.setdefault(level, [0] * len(total))
            for t, amount in enumerate(total):
                known[t] += amount
            self._applications.setdefault(level, []).extend(ids)

    def _view(self, queue: Queue) -> UsageView:
        limit = self._limit(queue)
        resources = self._state.types.resources
        return UsageView(
            queue.path,
            resources(self._used.get(queue, [])),
            tuple(sorted(self._applications.get(queue, ()))),
            resources(limit.max) if limit is not None and limit.max else None,
            limit.max_applications if limit is not None else 0,
            tuple([self._view(child) for _, child in sorted(queue.children.items()) if child in self._used]),
        )

    def _limit(self, queue: Queue) -> Limit | None:
        """The one that binds; a user that no limit names is bound by that of everybody."""
        if self._kind is _GROUP:
            return queue.limits.groups.get(self._name)
        return queue.limits.users.get(self._name) or queue.limits.users.get(WILDCARD)
