"""Who has more than a user or group limit allows, reckoned from what applications hold (config.md 10.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from core.config.model import LimitConfig, QueueConfig
from core.domain.impact import LimitExcess
from core.domain.resources import Resources
from core.partition.configure import walk

_EVERYBODY: Final = "*"
_COUNT: Final = ""
"""The type under which applications that hold something are counted."""


class Holder(NamedTuple):
    """An application: whose it is, its leaf, and what it holds. ``holds``: at least one allocation."""

    user: str
    groups: tuple[str, ...]
    queue: str
    held: Resources
    holds: bool


class _Account(NamedTuple):
    path: str
    kind: str
    name: str


def excesses(partition: str, holders: Sequence[Holder], old: QueueConfig, new: QueueConfig) -> Iterator[LimitExcess]:
    """Every limit of *new* that somebody exceeds, in tree order; *old* is the root that is in force now."""
    before, after = _limited(old), _limited(new)
    usage, limits = _usage(holders, after)
    known, known_limits = _usage(holders, before)
    order = {path: number for number, path in enumerate(after)}
    for account in sorted(usage, key=lambda found: (order[found.path], found.kind, found.name)):
        for name, most in _amounts(limits[account]).items():
            used = usage[account].get(name, 0)
            if used > most:
                was = _amounts(known_limits[account]).get(name) if account in known_limits else None
                already = was is not None and known[account].get(name, 0) > was
                yield LimitExcess(partition, *account, name, used, most, already)


def _limited(root: QueueConfig) -> dict[str, tuple[LimitConfig, ...]]:
    return {path: queue.limits for path, queue in walk(root, "root") if queue.limits}


def _amounts(limit: LimitConfig) -> dict[str, int]:
    counted = {_COUNT: limit.max_applications} if limit.max_applications else {}
    return {**counted, **(limit.max_resources or {})}


def _usage(
    holders: Sequence[Holder], limited: Mapping[str, tuple[LimitConfig, ...]]
) -> tuple[dict[_Account, dict[str, int]], dict[_Account, LimitConfig]]:
    """What each limited user and group has, and the limit that binds it."""
    usage: dict[_Account, dict[str, int]] = {}
    limits: dict[_Account, LimitConfig] = {}
    if not limited:
        return usage, limits
    for holder in holders:
        levels = [path for path in _path_and_above(holder.queue) if path in limited]
        group = _group(holder, levels, limited)
        for path in levels:
            for kind, name, limit in _binding(holder.user, group, limited[path]):
                account = _Account(path, kind, name)
                limits[account] = limit
                booked = usage.setdefault(account, {})
                for type_, amount in holder.held.items():
                    booked[type_] = booked.get(type_, 0) + amount
                booked[_COUNT] = booked.get(_COUNT, 0) + holder.holds
    return usage, limits


def _binding(user: str, group: str | None, limits: tuple[LimitConfig, ...]) -> Iterator[tuple[str, str, LimitConfig]]:
    """A user that only ``*`` names has a limit of its own; the group ``*`` is shared."""
    named = next((limit for limit in limits if user in limit.users), None)
    limit = named or next((limit for limit in limits if _EVERYBODY in limit.users), None)
    if limit is not None:
        yield "user", user, limit
    of_group = next((limit for limit in limits if group is not None and group in limit.groups), None)
    if of_group is not None and group is not None:
        yield "group", group, of_group


def _group(holder: Holder, levels: list[str], limited: Mapping[str, tuple[LimitConfig, ...]]) -> str | None:
    """The group that counts: from the leaf up, the first one listed that the user belongs to, else ``*``."""
    for path in levels:
        listed = [name for limit in limited[path] for name in limit.groups]
        found = next((name for name in listed if name in holder.groups), None)
        if found is not None:
            return found
        if _EVERYBODY in listed:
            return _EVERYBODY
    return None


def _path_and_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
