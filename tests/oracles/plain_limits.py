"""User and group limits as plain as their rules: everything is summed again for every question (config.md 10).

It knows nothing of the engine: queues are paths, limits are what was written, usage is a list of what is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WrittenLimit:
    """One entry of a queue's limits. ``most`` absent types: not limited; ``applications`` 0: not limited."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    most: Mapping[str, int] = field(default_factory=dict)
    applications: int = 0


Limits = Mapping[str, Sequence[WrittenLimit]]
"""By queue path."""


@dataclass
class Owned:
    """An application: whose it is, where it is, what each of its allocations holds."""

    user: str
    groups: tuple[str, ...]
    path: str
    group: str | None = None
    held: list[Mapping[str, int]] = field(default_factory=list)


def paths(leaf: str) -> list[str]:
    """The queues from *leaf* up to the root."""
    parts = leaf.split(".")
    return [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


def chosen_group(limits: Limits, application: Owned) -> str | None:
    for path in paths(application.path):
        named = [name for limit in limits.get(path, ()) for name in limit.groups]
        for name in named:
            if name in application.groups:
                return name
        if "*" in named:
            return "*"
    return None


def lost(before: Limits, after: Limits, application: Owned) -> bool:
    """Whether a limit of the chosen group is gone from a queue on the path."""

    def listing(limits: Limits) -> set[str]:
        return {
            path
            for path in paths(application.path)
            if any(application.group in limit.groups for limit in limits.get(path, ()))
        }

    return bool(listing(before) - listing(after))


def _of_user(limits: Limits, path: str, user: str) -> WrittenLimit | None:
    for name in (user, "*"):
        for limit in limits.get(path, ()):
            if name in limit.users:
                return limit
    return None


def _of_group(limits: Limits, path: str, group: str | None) -> WrittenLimit | None:
    return next((limit for limit in limits.get(path, ()) if group in limit.groups), None)


def _below(path: str, leaf: str) -> bool:
    return path in paths(leaf)


@dataclass(frozen=True)
class Bound:
    """One limit that binds an application, and whom else it counts."""

    path: str
    kind: str
    name: str
    limit: WrittenLimit
    counted: tuple[Owned, ...]

    def used(self, name: str) -> int:
        return sum(amounts.get(name, 0) for application in self.counted for amounts in application.held)

    def holders(self) -> int:
        return sum(bool(application.held) for application in self.counted)


def bounds(limits: Limits, application: Owned, everybody: Iterable[Owned]) -> list[Bound]:
    """All limits that bind *application*."""
    everybody = list(everybody)
    found: list[Bound] = []
    for path in paths(application.path):
        here = [other for other in everybody if _below(path, other.path)]
        limit = _of_user(limits, path, application.user)
        if limit is not None:
            counted = tuple(other for other in here if other.user == application.user)
            found.append(Bound(path, "user", application.user, limit, counted))
        limit = _of_group(limits, path, application.group) if application.group is not None else None
        if limit is not None:
            counted = tuple(other for other in here if other.group == application.group)
            found.append(Bound(path, "group", application.group or "", limit, counted))
    return found


def headroom(limits: Limits, application: Owned, everybody: Iterable[Owned]) -> dict[str, int]:
    """What is left of every limited type: the least over all levels, of the user and of the group."""
    least: dict[str, int] = {}
    for bound in bounds(limits, application, everybody):
        for name, most in bound.limit.most.items():
            left = most - bound.used(name)
            least[name] = min(left, least.get(name, left))
    return least


def may_hold(limits: Limits, application: Owned, everybody: Iterable[Owned]) -> bool:
    """Whether the limits of applications let *application* hold something."""
    return all(
        bool(application.held) or not bound.limit.applications or bound.holders() + 1 <= bound.limit.applications
        for bound in bounds(limits, application, everybody)
    )
