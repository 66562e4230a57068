"""Finds the user and group limits that bind an application, and what they leave to it. Rules: config.md 10.2, 10.3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, ResourceTypes
from kornel.core.model.users import NO_AMOUNTS, WILDCARD, Account, AccountKind, Limit

_ORIGINATORS: Final = AccountKind.ORIGINATORS
_OF_THE_LEAF: Final = Limit(NO_AMOUNTS, 0)
"""The limit of an account that finds out by itself what it allows."""


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


def binding_limits(
    leaf: Queue, user: str, group: str | None, types: ResourceTypes
) -> Iterator[tuple[Queue, AccountKind, str, Limit]]:
    """Yields every limit on the path of *leaf* that binds *user* or *group*, the root's first, the user's before the
    group's; then what the properties of the leaf limit, originators last.

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
    if leaf.properties.limits_users:
        yield leaf, AccountKind.SHARE, user, _OF_THE_LEAF
    most = leaf.properties.originator_max
    if most is not None:
        limit = Limit(types.to_sparse(most), 0) if isinstance(most, Resources) else _OF_THE_LEAF
        yield leaf, _ORIGINATORS, "", limit


def list_binding(ask: Allocation) -> Sequence[Account]:
    """Returns the accounts under whose limits what *ask*, or the gang for which it stands, asks for has to fit. That of
    originators is left out for a gang, whose members are counted there by themselves."""
    group = ask.group
    if group is None or not group.is_unit:
        return ask.accounts
    return [account for account in ask.application.accounts if account.kind is not _ORIGINATORS]


def find_exceeded_by(members: Sequence[Allocation], *, claimed: bool = False) -> Account | None:
    """Returns the first account under whose limit *members*, which are of one application, do not fit together;
    ``None``: they fit under all. *claimed*: as for :func:`find_exceeded`."""
    accounts = members[0].application.accounts if members else ()
    return next((a for a in accounts if find_exceeded([a], add_counted(a, members), claimed=claimed)), None)


def add_counted(account: Account, members: Iterable[Allocation]) -> Pairs:
    """Returns the sum of what those of *members* ask for who are counted in *account*."""
    return tuple(sorted(sum_amounts(ask for ask in members if account.counts_ask(ask)).items()))


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
    if account.admits(pairs):
        return ()
    left, most = {t: room - account.claimed[t] for t, room in account.find_headroom().items()}, account.max
    return tuple(Shortfall(t, amount, left[t], most[t]) for t, amount in pairs if t in left and amount > left[t])
