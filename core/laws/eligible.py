"""Judges who may leave and for whom others may: some allocations leave for nobody, whatever the kind of preemption
(preemption.md A.1 no. 3), and the limits of users and groups let everybody run for whom others leave (B.7).

What is claimed is added up from the asks themselves and not read from the accounts, which the planners go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.laws.verdict import Law, Violation
from kornel.core.model.allocations import Allocation
from kornel.core.model.users import Account

_PROTECTED: Final = PreemptionPolicyKind.DISABLED
_REPLACING: Final = AskPlace.REPLACING
"""Kept as constants, because reading a member from its class costs as much as a call, and ten thousand victims are
checked at once."""


def check_victims(
    victims: Iterable[Allocation], *, shields: bool = True, replacing: bool = True
) -> Iterator[Violation]:
    """Yields *victims* that no plan may contain. Their application is judged by law 3.

    *shields* tells whether queues protect what they hold by their policy, *replacing* whether tasks that take the place
    of a placeholder are protected.
    """
    seen: set[str] = set()
    for victim in victims:
        named, spec = victim.key in seen, victim.spec
        protected = shields and victim.application.queue.properties.preemption_policy is _PROTECTED
        replaces = replacing and victim.place is _REPLACING
        seen.add(victim.key)
        if not (
            named or protected or replaces or spec.required_node or victim.node is None or victim.released
            or victim.preempted
        ):  # fmt: skip
            continue
        faults = {
            "named twice": named,
            "not placed": victim.node is None,
            "in a queue protected from preemption": protected,
            "bound to its required node": bool(spec.required_node),
            "being released": victim.released,
            "taking the place of a placeholder": replaces,
            "already a victim": victim.preempted,
        }
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


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
