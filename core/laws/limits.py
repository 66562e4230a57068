"""Judges whether the limits of users and groups let everybody run for whom others have to leave (preemption.md B.7).

What is claimed is added up from the asks themselves and not read from the accounts, which the planners go by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.model.users import Account


def check_limits(asks: Sequence[Allocation], names: Sequence[str]) -> Iterator[Violation]:
    """Yields the limits that *asks*, which are of one application, would exceed beside what its user and group hold and
    what others of theirs have preempted for. *names*: the names of the types."""
    wanted: dict[int, int] = {}
    for ask in asks:
        for t, amount in ask.shape.pairs:
            wanted[t] = wanted.get(t, 0) + amount
    for account in asks[0].application.accounts:
        claims = [claim for claim in _claims_of(account) if claim not in asks]
        for t, amount in wanted.items():
            most = account.limit.max.get(t)
            taken = account.used[t] + sum(claim.shape.amounts.get(t, 0) for claim in claims)
            if amount and most is not None and taken + amount > most:
                detail = f"{account} would have {names[t]}={taken + amount} of {most}"
                yield Violation(Law.WITHIN_LIMITS, detail)


def _claims_of(account: Account) -> list[Allocation]:
    leaves = dict.fromkeys(application.queue for application in account.applications)
    return [claim for leaf in leaves for claim in leaf.claimants if claim.application in account.applications]
