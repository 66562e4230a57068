"""Finds the user and group limits that bind an application, and what they leave to it. Rules: config.md 10.2, 10.3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.model.users import WILDCARD, Account, AccountKind, Limit


def choose_group(leaf: Queue, groups: Iterable[str]) -> str | None:
    """Returns the one group that an application counts for, as decided by the lowest queue with a limit for a group of
    its owner.

    That is the first such group in the order of the configuration, not of the owner's groups; otherwise ``*`` if it is
    listed. ``None``: no group limit binds the application.
    """
    members = frozenset(groups)
    for queue in leaf.lineage():
        for name in queue.limits.groups:
            if name in members or name == WILDCARD:
                return name
    return None


def binding_limits(leaf: Queue, user: str, group: str | None) -> Iterator[tuple[Queue, AccountKind, str, Limit]]:
    """Yields every limit on the path of *leaf* that binds *user* or *group*, the root's first, the user's before the
    group's.

    A queue's limit for the user by name hides its ``*``; a group is bound by limits of its own name only.
    """
    for queue in reversed(leaf.lineage()):
        users, groups = queue.limits
        if users:
            limit = users.get(user) or users.get(WILDCARD)
            if limit is not None:
                yield queue, AccountKind.USER, user, limit
        if group is not None and group in groups:
            yield queue, AccountKind.GROUP, group, groups[group]


def find_exceeded(accounts: Iterable[Account], pairs: Pairs, *, claimed: bool = False) -> Account | None:
    """Returns the first of *accounts* under whose limit *pairs* do not fit; ``None``: they fit under all. *claimed*:
    whether the pairs are among what is claimed there."""
    for account in accounts:
        if not (account.has_room(pairs) if claimed else account.admits(pairs)):
            return account
    return None


class Shortfall(NamedTuple):
    """One type of which an ask wants more than a limit leaves; ``left`` is negative if the limit is exceeded
    already."""

    type: int
    asked: int
    left: int
    most: int


def find_shortfalls(account: Account, pairs: Pairs) -> tuple[Shortfall, ...]:
    """Returns the shortfalls behind a ``user-quota``: every type of *pairs* that the limit of *account* does not admit
    beside what is used and claimed."""
    left = {t: room - account.claimed[t] for t, room in account.find_headroom().items()}
    return tuple(
        Shortfall(t, amount, left[t], account.limit.max[t]) for t, amount in pairs if t in left and amount > left[t]
    )
