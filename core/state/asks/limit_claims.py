"""Begins and ends claims on what comes free below limits (preemption.md B.7, "Limits fill up")."""

from __future__ import annotations

from kornel.core.model.allocations import Allocation, LimitClaim
from kornel.core.model.claim_clocks import ClaimClock
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.model.users import Account
from kornel.core.state.asks import finding
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.waking import wake_for_account, wake_for_queue


def save_below(
    state: PartitionState, ask: Allocation, pairs: Pairs, limits: tuple[Queue | Account, ...], now_ns: int
) -> LimitClaim:
    """Keeps what comes free below *limits*, at which nobody else saves, for *ask* or the gang for which it stands,
    until there is enough for *pairs*."""
    clock = ClaimClock(sum_missing(pairs, limits), now_ns)
    claim = ask.limit_claim = LimitClaim(ask, pairs, limits, now_ns, clock)
    state.reserving.at_limits[claim] = None
    for limit in limits:
        limit.saving = claim
    state.changes += 1
    # Room on nodes must not lie idle for those who may not use it now.
    for saved in [saved for saved in state.reserving.saved if saved.by_age]:
        if saved.ask.reservation is saved and finding.exceeded_limit(state, saved.ask) is not None:
            end_reservation(state, saved, requeue=True)
    return claim


def end_saving_below(state: PartitionState, ask: Allocation) -> None:
    """Ends the claim of *ask*, if it saves below limits, and offers what was saved there to others."""
    claim = ask.limit_claim
    if claim is None:
        return
    ask.limit_claim = None
    del state.reserving.at_limits[claim]
    state.changes += 1
    for limit in claim.limits:
        limit.saving = None
    for limit in claim.limits:
        if isinstance(limit, Queue):
            wake_for_queue(state, limit)
        else:
            wake_for_account(state, limit)


def lapse_below(state: PartitionState, ask: Allocation) -> None:
    """Ends what *ask*, whose claims lapse, saves below limits, and closes these to it until something ends there."""
    claim = ask.limit_claim
    if claim is None:
        return
    closed = state.reserving.lapsed
    for gone in [a for a in closed if isinstance(a, Account) and a.queue.accounts.get((a.kind, a.name)) is not a]:
        del closed[gone]
    lacked = {limit: find_lacking(limit, claim.pairs) for limit in claim.limits}
    end_saving_below(state, ask)
    for limit, amounts in lacked.items():
        closed.setdefault(limit, []).append(amounts)


def find_lacking(limit: Queue | Account, pairs: Pairs) -> dict[int, int]:
    """Returns, by limited type, how much less than *pairs* is free below *limit*."""
    most = limit.max
    return {t: min(amount, max(0, amount + limit.count_taken(t) - most[t])) for t, amount in pairs if t in most}


def sum_missing(pairs: Pairs, limits: tuple[Queue | Account, ...]) -> float:
    """Returns the sum, over the types, of the part of *pairs* that is missing at the one of *limits* where most is
    missing, between 0 and 1 each."""
    missing: dict[int, int] = {}
    for limit in limits:
        for t, amount in find_lacking(limit, pairs).items():
            missing[t] = max(amount, missing.get(t, 0))
    return sum(missing.get(t, 0) / amount for t, amount in pairs if amount)


def end_saving_at_accounts(state: PartitionState) -> None:
    """Ends all claims below limits of users and groups, because these limits are going to change."""
    for claim in list(state.reserving.at_limits):
        if any(isinstance(limit, Account) for limit in claim.limits):
            end_saving_below(state, claim.ask)
    for records in (state.reserving.lapsed, state.reserving.short):
        for limit in [limit for limit in records if isinstance(limit, Account)]:
            del records[limit]
