"""Judges whether the limits of users and groups let everybody run for whom others have to leave (preemption.md B.7).

What is claimed is added up from the asks themselves and not read from the accounts, which the planners go by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.model.users import Account, AccountKind

_WAITS: Final = (AskPlace.WAITING, AskPlace.POOLED, AskPlace.RESERVED, AskPlace.REFUSED)
"""The places of asks that wait, whose users are active."""


def check_limits(
    asks: Sequence[Allocation], names: Sequence[str], victims: Sequence[Allocation] | None = None
) -> Iterator[Violation]:
    """Yields the limits that *asks*, which are of one application, would exceed beside what its user and group hold and
    what others of theirs have preempted for. *names*: the names of the types. *victims*: those of their own leaf that
    leave for them; with these, the limits of users and groups count once all who leave have left (preemption.md M)."""
    for account in asks[0].application.accounts:
        wanted: dict[int, int] = {}
        for ask in asks:
            for t, amount in ask.shape.pairs if _is_counted(account, ask) else ():
                wanted[t] = wanted.get(t, 0) + amount
        beside = _sum_beside(account, asks, len(names), victims)
        for t, total, most in find_excess(account, wanted, beside):
            yield Violation(Law.WITHIN_LIMITS, f"{account} would have {names[t]}={total} of {most}")


def list_lacking(ask: Allocation, account: Account, names: Sequence[str]) -> list[tuple[int, int]]:
    """Returns how much of each type has to leave below the limit of *account* beside those who leave already, so that
    *ask* fits there."""
    if account.kind not in (AccountKind.USER, AccountKind.GROUP):
        return []
    beside = _sum_beside(account, [ask], len(names), ())
    return [(t, total - most) for t, total, most in find_excess(account, ask.shape.amounts, beside)]


def _sum_beside(
    account: Account, asks: Sequence[Allocation], width: int, victims: Sequence[Allocation] | None
) -> dict[int, int]:
    """Returns what others than *asks* have claimed at *account*, by type; if *victims* are given, without what they and
    all who leave already hold there."""
    claims = [claim for claim in _claims_of(account) if claim not in asks]
    gone: list[Allocation] = []
    if victims is not None and account.kind in (AccountKind.USER, AccountKind.GROUP):
        held = [task for application in account.applications for task in application.allocations.values()]
        gone = [task for task in held if task.preempted or task in victims]
    return {
        t: sum(claim.shape.amounts.get(t, 0) for claim in claims) - sum(task.shape.amounts.get(t, 0) for task in gone)
        for t in range(width)
    }


def find_excess(
    account: Account, wanted: Mapping[int, int], beside: Mapping[int, int]
) -> Iterator[tuple[int, int, int]]:
    """Yields each type of which *account* would hold more than its limit allows, with the amount that it would hold and
    the most that it may. *beside*: what others of the account take beside what it holds."""
    held = {t: amount + beside.get(t, 0) for t, amount in enumerate(account.used)}
    for t, amount in wanted.items():
        most = _find_most(account, t, amount, held)
        if amount and most is not None and held[t] + amount > most:
            yield t, held[t] + amount, most


def _find_most(account: Account, t: int, amount: int, held: Mapping[int, int]) -> int | None:
    """Returns the most of type *t* that *account* may hold, reckoned from the settings; ``None``: any amount. *held*:
    what it holds before *amount* comes (config.md 10.1, 10.5, 10.6)."""
    leaf, settings = account.queue, account.queue.properties
    if account.kind not in (AccountKind.ORIGINATORS, AccountKind.SHARE):
        return account.limit.max.get(t)
    nearest = next((queue.max[t] for queue in leaf.lineage() if t in queue.max), None)
    if account.kind is AccountKind.ORIGINATORS:
        if not any(held.values()):
            return None
        part = settings.originator_max
        return int(nearest * part) if isinstance(part, Fraction) and nearest is not None else account.limit.max.get(t)
    capacity = leaf.guaranteed.get(t, nearest)
    if capacity is None:
        return None
    factor = settings.user_factor
    ceiling = None if factor is None else int(capacity * factor)
    asking = {a.user for a in leaf.applications.values() if any(ask.place in _WAITS for ask in a.asks.values())}
    users, percent = len(asking | {account.name}), settings.user_minimum
    # A user holds no more than 1/users and no more than the percentage: neither is compared by division.
    total = leaf.used[t] + max(0, held[t] - account.used[t] - account.claimed[t])
    first = not held[t]
    idle = total + amount > capacity and (held[t] * users <= total or held[t] * 100 <= percent * total)
    if percent >= 100 or users == 1 or first or idle:
        return ceiling
    share = max(-(-capacity // users), -(-capacity * percent // 100))
    return share if ceiling is None else min(share, ceiling)


def _is_counted(account: Account, ask: Allocation) -> bool:
    return account.kind is not AccountKind.ORIGINATORS or ask.spec.originator


def _claims_of(account: Account) -> list[Allocation]:
    leaves = dict.fromkeys(application.queue for application in account.applications)
    claims = [claim for leaf in leaves for claim in leaf.claimants if claim.application in account.applications]
    return [claim for claim in claims if _is_counted(account, claim)]
