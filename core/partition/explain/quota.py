"""How much a queue or a user may still take, level by level, and which level says so (config.md 7.3, 10.3)."""

from __future__ import annotations

from fractions import Fraction

from core.domain.status import Bound, LimitLevel, QueueExplanation, QueueLevel, UserExplanation
from core.model.queues import Queue
from core.model.users import AccountKind, Limit
from core.partition.state import PartitionState
from core.preemption.quota import standing as quota_standing


def explain(state: PartitionState, queue: Queue) -> QueueExplanation:
    """*queue* and everything above it. Of two levels that leave the same, the one further down bounds."""
    resources = state.types.resources
    levels: list[QueueLevel] = []
    bounds: dict[int, Bound] = {}
    for level in queue.lineage():
        left = {t: most - level.used[t] for t, most in level.max.items()}
        levels.append(
            QueueLevel(
                level.path,
                resources(level.guaranteed),
                resources(level.max),
                resources(level.used),
                resources(level.pending),
                resources(level.preempting),
                resources(left),
            )
        )
        for t, amount in left.items():
            if t not in bounds or amount < bounds[t].left:
                bounds[t] = Bound(state.types.names[t], level.path, amount, level.max[t])
    return QueueExplanation(
        queue.path,
        queue.leaf,
        queue.draining,
        tuple(levels),
        resources({t: bound.left for t, bound in bounds.items()}),
        tuple(sorted(bounds.values())),
        min(bounds.values(), key=_part_left, default=None),
        tuple(above for level in queue.lineage() if (above := quota_standing.describe(state, level)) is not None),
    )


def explain_user(state: PartitionState, user: str) -> UserExplanation | None:
    """What *user* holds and the limits that name it or bind its applications; ``None``: nothing is known of it.

    Cost: linear in queues and applications.
    """
    resources = state.types.resources
    owned = [application for application in state.applications.values() if application.user == user]
    accounts = {account: None for application in owned for account in application.accounts}
    limits: list[tuple[Queue, AccountKind, str, Limit]] = [
        (account.queue, account.kind, account.name, account.limit) for account in accounts
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
                str(kind),
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
        min(bounds, key=_part_left, default=None),
    )


def _part_left(bound: Bound) -> tuple[Fraction, str]:
    """A max of 0 leaves nothing. Exact, so that equal parts compare equal on every machine."""
    return (Fraction(bound.left, bound.max) if bound.max > 0 else Fraction(min(bound.left, 0)), bound.type)
