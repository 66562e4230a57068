"""Finds the users and groups that hold more than a limit allows, computed from what applications hold (config.md
10.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.config.model import LimitConfig, QueueConfig
from kornel.core.domain.resources import Resources
from kornel.core.engine.configuration.configure import walk_queues
from kornel.core.telling.configuration.impact import LimitExcess

_EVERYBODY: Final = "*"
_COUNT: Final = ""
"""The type under which applications that hold something are counted."""


class Holder(NamedTuple):
    """An application: its owner, its leaf, and what it holds.

    group    the group that it counts for now; ``None``: no group limit binds it
    settled  tells whether it has asked for something, and so keeps its group as long as the limits allow
    holds    tells whether it has an allocation
    """

    user: str
    groups: tuple[str, ...]
    group: str | None
    settled: bool
    queue: str
    held: Resources
    holds: bool


class _Account(NamedTuple):
    path: str
    kind: str
    name: str


def find_excesses(
    partition: str, holders: Sequence[Holder], old: QueueConfig, new: QueueConfig
) -> Iterator[LimitExcess]:
    """Yields every user or group that exceeds a limit of *new*, in tree order; *old* is the root in force now."""
    before, after = _limits_by_queue(old), _limits_by_queue(new)
    groups = [holder.group for holder in holders]
    known, known_limits = _sum_usage(holders, groups, before)
    usage, limits = _sum_usage(holders, [_choose_group(holder, before, after) for holder in holders], after)
    order = {path: number for number, path in enumerate(after)}
    for account in sorted(usage, key=lambda found: (order[found.path], found.kind, found.name)):
        for name, most in _amounts_of(limits[account]).items():
            used = usage[account].get(name, 0)
            if used > most:
                was = _amounts_of(known_limits[account]).get(name) if account in known_limits else None
                already = was is not None and known[account].get(name, 0) > was
                yield LimitExcess(partition, *account, name, used, most, already)


def _limits_by_queue(root: QueueConfig) -> dict[str, tuple[LimitConfig, ...]]:
    return {path: queue.limits for path, queue in walk_queues(root, "root") if queue.limits}


def _amounts_of(limit: LimitConfig) -> dict[str, int]:
    counted = {_COUNT: limit.max_applications} if limit.max_applications else {}
    return {**counted, **(limit.max_resources or {})}


def _sum_usage(
    holders: Sequence[Holder], groups: Sequence[str | None], limited: Mapping[str, tuple[LimitConfig, ...]]
) -> tuple[dict[_Account, dict[str, int]], dict[_Account, LimitConfig]]:
    """Returns what each limited user and group holds, and the limit that binds it."""
    usage: dict[_Account, dict[str, int]] = {}
    limits: dict[_Account, LimitConfig] = {}
    for holder, group in zip(holders, groups, strict=True):
        for path in _limited_levels(holder, limited):
            for kind, name, limit in _binding_limits(holder.user, group, limited[path]):
                account = _Account(path, kind, name)
                limits[account] = limit
                booked = usage.setdefault(account, {})
                for type_, amount in holder.held.items():
                    booked[type_] = booked.get(type_, 0) + amount
                booked[_COUNT] = booked.get(_COUNT, 0) + holder.holds
    return usage, limits


def _binding_limits(
    user: str, group: str | None, limits: tuple[LimitConfig, ...]
) -> Iterator[tuple[str, str, LimitConfig]]:
    """Yields the limits that bind *user* and *group*. A user that only ``*`` names has a limit of its own; the group
    ``*`` is shared."""
    named = next((limit for limit in limits if user in limit.users), None)
    limit = named or next((limit for limit in limits if _EVERYBODY in limit.users), None)
    if limit is not None:
        yield "user", user, limit
    of_group = next((limit for limit in limits if group is not None and group in limit.groups), None)
    if of_group is not None and group is not None:
        yield "group", group, of_group


def _choose_group(
    holder: Holder, before: Mapping[str, tuple[LimitConfig, ...]], after: Mapping[str, tuple[LimitConfig, ...]]
) -> str | None:
    """Returns the group that the application will count for: the same as now unless a limit of that group is gone
    (config.md 10.4).

    Otherwise, it is the first listed group of the owner, from the leaf up, or ``*``.
    """
    levels = _limited_levels(holder, after)
    if holder.settled and holder.group is not None:
        had = {path for path in _limited_levels(holder, before) if holder.group in _named_groups(before[path])}
        if all(path in after and holder.group in _named_groups(after[path]) for path in had):
            return holder.group
    for path in levels:
        for name in _named_groups(after[path]):
            if name in holder.groups or name == _EVERYBODY:
                return name
    return None


def _named_groups(limits: tuple[LimitConfig, ...]) -> list[str]:
    return [name for limit in limits for name in limit.groups]


def _limited_levels(holder: Holder, limited: Mapping[str, tuple[LimitConfig, ...]]) -> list[str]:
    """Returns the queues with limits above the application, its leaf first."""
    if not limited:
        return []
    levels = []
    path = holder.queue
    while path:
        if path in limited:
            levels.append(path)
        path = path.rpartition(".")[0]
    return levels
