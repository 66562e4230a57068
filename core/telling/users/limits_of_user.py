"""Explains the limits of a user, level by level, and which of them is the tightest (config.md 10.3)."""

from __future__ import annotations

from typing import NamedTuple

from kornel.core.domain.resources import Resources
from kornel.core.model.queues import Queue
from kornel.core.model.users import AccountKind, Limit
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.queues.headroom import Bound, part_left


class LimitLevel(NamedTuple):
    """A limit that binds a user, or a group it counts for, in one queue and below.

    ``kind`` is ``user`` or ``group``. ``applications``: the number that hold something; ``max_applications`` 0: any
    number. ``headroom``: ``max`` minus ``used``, for the types in ``max``.
    """

    path: str
    kind: str
    name: str
    max: Resources
    used: Resources
    headroom: Resources
    applications: int
    max_applications: int


class UserExplanation(NamedTuple):
    """The amounts that a user holds, and the limits that bind it: those of the root first, and at each level the user's
    before its groups'.

    ``tightest``: the level and type with the smallest part of a limit left; ``None``: no amount is limited.
    """

    user: str
    used: Resources
    applications: int
    levels: tuple[LimitLevel, ...]
    tightest: Bound | None


def explain_user(state: PartitionState, user: str) -> UserExplanation | None:
    """Returns what *user* holds and the limits that name it or bind its applications; ``None``: it is not known.

    The cost is linear in queues and applications.
    """
    resources = state.types.to_resources
    owned = [application for application in state.applications.values() if application.user == user]
    accounts = {account: None for application in owned for account in application.accounts}
    limits: list[tuple[Queue, AccountKind, str, Limit]] = [
        (account.queue, account.kind, account.name, Limit(account.max, account.max_applications))
        for account in accounts
        if account.kind is not AccountKind.ORIGINATORS
    ]
    known = {(queue, kind) for queue, kind, _, _ in limits}
    limits += [
        (queue, AccountKind.USER, user, queue.limits.users[user])
        for queue in state.queues.values()
        if user in queue.limits.users and (queue, AccountKind.USER) not in known
    ]
    if not owned and not limits:
        return None
    levels: list[LimitLevel] = []
    bounds: list[Bound] = []
    for queue, kind, name, limit in sorted(limits, key=lambda found: (found[0].path, found[1] is AccountKind.GROUP)):
        account = queue.accounts.get((kind, name))
        used = account.used if account is not None else [0] * len(state.types.names)
        left = {t: most - used[t] for t, most in limit.max.items()}
        holders = len(account.holders) if account is not None else 0
        levels.append(
            LimitLevel(
                queue.path,
                str(AccountKind.GROUP if kind is AccountKind.GROUP else AccountKind.USER),
                name,
                resources(limit.max),
                resources(used),
                resources(left),
                holders,
                limit.max_applications,
            )
        )
        bounds += [Bound(state.types.names[t], queue.path, left[t], limit.max[t]) for t in left]
    held = [0] * len(state.types.names)
    for application in owned:
        for t in range(len(held)):
            held[t] += application.real[t] + application.placeholder[t]
    return UserExplanation(
        user,
        resources(held),
        sum(bool(application.allocations) for application in owned),
        tuple(levels),
        min(bounds, key=part_left, default=None),
    )
