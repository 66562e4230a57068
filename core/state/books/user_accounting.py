"""The accounts of users and groups. They are opened with an application, changed by the ledger, and opened again when
limits change.

Usage is booked only where a limit applies to it. Everything else about a user is the sum over its applications, which
is computed on request (config.md 10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kornel.core.config.model import LimitConfig
from kornel.core.domain.application_states import AppState
from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import AllocationSpec
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.leaf_accounts import MoreShares, OriginatorAccount, ShareAccount, make_account
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs, book_amounts
from kornel.core.model.users import NO_LIMITS, Account, AccountKind, FreedSlot, Limit, QueueLimits
from kornel.core.policies.owners import groups_of
from kornel.core.policies.user_limits import binding_limits, choose_group
from kornel.core.state.partition_state import PartitionState

_SERVED: Final = (AskPlace.HELD, AskPlace.REPLACING)
"""The places of asks that are among those of their application and do not wait."""


def open_accounts(state: PartitionState, application: Application) -> None:
    """Chooses the group of *application*, which is new in its queue, and finds the limits that bind it."""
    application.limit_group = choose_group(application.queue, groups_of(application.spec))
    _join_accounts(state, application)


def close_accounts(application: Application) -> None:
    """Closes the accounts of *application*, which holds nothing and leaves its queue."""
    for account in application.accounts:
        del account.applications[application]
        if not account.applications:
            del account.queue.accounts[account.kind, account.name]
    application.accounts = ()


def charge_accounts(request: Allocation) -> None:
    """Books that the application of *request* now holds what it asks for, whatever its limits say."""
    application = request.application
    for account in application.accounts:
        if account.counts_ask(request):
            account.charge_pairs(request.shape.pairs)
        account.holders[application] = None


def refund_accounts(state: PartitionState, request: Allocation) -> None:
    """Books that the application of *request* no longer holds it; with its last allocation it no longer counts as
    holding something."""
    application = request.application
    for account in application.accounts:
        if account.counts_ask(request):
            account.refund_pairs(request.shape.pairs)
        if account.parked:
            state.gained.append(account)
        if not application.allocations and not application.held_count:
            del account.holders[application]
            if account.held_back:
                state.gained.append(FreedSlot(account))


def offer_gain(state: PartitionState, account: Account) -> None:
    """Notes that less is claimed at *account*, if that may help anybody."""
    if account.parked:
        state.gained.append(account)
    if account.held_back:
        state.gained.append(FreedSlot(account))


def exchange_amounts(
    state: PartitionState, leaving: Allocation, before: Pairs, coming: Allocation, after: Pairs
) -> None:
    """Books that the application of both holds *after* for *coming* instead of *before* for *leaving*, which may be the
    same."""
    for account in coming.application.accounts:
        if account.counts_ask(leaving):
            account.refund_pairs(before)
        if account.counts_ask(coming):
            account.charge_pairs(after)
        if account.parked:
            state.gained.append(account)
    offer_shares(state, coming.queue)


def amend_spec(state: PartitionState, request: Allocation, spec: AllocationSpec) -> None:
    """Gives *request*, which holds something, another *spec*, by which it may count as an originator or no longer."""
    pairs = request.shape.pairs
    for account in request.application.accounts:
        if account.kind is AccountKind.ORIGINATORS and request.spec.originator != spec.originator:
            if spec.originator:
                account.charge_pairs(pairs)
            else:
                account.refund_pairs(pairs)
                state.gained.append(account)
    request.spec = spec


def note_asks(application: Application, change: int) -> None:
    """Counts *change* more asks of *application* that wait."""
    for account in application.accounts:
        if isinstance(account, ShareAccount):
            account.note_asks(change)


def offer_shares(state: PartitionState, leaf: Queue) -> None:
    """Notes that users may hold more of *leaf*, because it holds more, or because fewer of them ask for something. In a
    slice, this is looked at once for all placements: thousands of users may wait."""
    if leaf.properties.user_minimum < 100 and state.gained[-1:] != [MoreShares(leaf)]:
        state.gained.append(MoreShares(leaf))


def offer_limits(state: PartitionState, leaf: Queue) -> None:
    """Notes that the limits that follow from the capacity of *leaf* may allow more than before."""
    kinds = ShareAccount | OriginatorAccount
    state.gained.extend(each for each in leaf.accounts.values() if each.parked and isinstance(each, kinds))


def take_limit_steps(state: PartitionState, changed: Mapping[Queue, tuple[LimitConfig, ...]]) -> Iterator[None]:
    """Gives the queues of *changed* other limits; usage stays with the applications. Yields after each application.

    Afterwards the caller has to let :func:`kornel.core.state.waiting.waking.take_review_steps` examine all waiting
    asks again.

    An application chooses its group again if it had none, has asked for nothing yet, or lost a limit of that group on
    its path; otherwise it stays with it (10.4, B23).
    """
    # The former limits are kept, because they show whether an application has lost a limit of its group.
    before = {queue: queue.limits for queue in state.queues.values() if queue.limits is not NO_LIMITS}
    for queue, limits in changed.items():
        queue.limits = _build_limits(state, limits) if limits else NO_LIMITS
        yield
    for queue in state.queues.values():
        queue.accounts.clear()
        queue.active_users = 0
    for application in state.applications.values():
        if application.state is AppState.NEW or _lost_its_group(application, before):
            group_before = application.limit_group
            application.limit_group = choose_group(application.queue, groups_of(application.spec))
            if state.recording:
                state.events.group_chosen(application, group_before)
        application.accounts = ()
        _join_accounts(state, application)
        yield


def _lost_its_group(application: Application, before: Mapping[Queue, QueueLimits]) -> bool:
    group = application.limit_group
    if group is None:
        return True
    return any(
        queue in before and group in before[queue].groups and group not in queue.limits.groups
        for queue in application.queue.lineage()
    )


def _join_accounts(state: PartitionState, application: Application) -> None:
    accounts: list[Account] = []
    leaf, types = application.queue, state.types
    for queue, kind, name, limit in binding_limits(leaf, application.user, application.limit_group, types):
        account = queue.accounts.get((kind, name))
        if account is None:
            account = queue.accounts[kind, name] = make_account(kind, name, queue, limit, len(types.names))
        account.applications[application] = None
        accounts.append(account)
    application.accounts = tuple(accounts)
    # An ask that the shim is asked about counts as placed, though it is no allocation yet.
    held = [ask for ask in application.asks.values() if ask.place is AskPlace.HELD]
    for allocation in (*application.allocations.values(), *held):
        charge_accounts(allocation)
    for ask in application.asks.values():
        if ask.place not in _SERVED:
            note_asks(application, 1)
        saved = ask.reservation is not None and ask.reservation.by_age
        for account in ask.accounts:
            if ask.triggered:
                account.book_claim(application, ask.shape.pairs)
            if saved:
                book_amounts(account.saved, ask.shape.pairs)


def _build_limits(state: PartitionState, configured: tuple[LimitConfig, ...]) -> QueueLimits:
    users: dict[str, Limit] = {}
    groups: dict[str, Limit] = {}
    for config in configured:
        limit = Limit(state.types.to_sparse(config.max_resources), config.max_applications)
        users.update(dict.fromkeys(config.users, limit))
        groups.update(dict.fromkeys(config.groups, limit))
    return QueueLimits(users, groups)
