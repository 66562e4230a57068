"""Notifies applications of allocations at risk, and handles their answers and offers (preemption.md E.6, E.7).

A shim that has not subscribed to notices gets none, but the time until victims are taken runs all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kornel.core.domain.commands import PreemptionNoticeAnswer
from kornel.core.domain.effects import PreemptionNotice, PreemptionNoticeWithdrawn
from kornel.core.domain.settings import MonitorContract
from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.applications import Application
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.monitor.plan import KIND
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.notices import Entry, Notice

KEYS_A_NOTICE: Final = 1_000


def notify_applications(
    state: PartitionState, application: Application, risks: Sequence[tuple[Allocation, int]], now_ns: int
) -> None:
    """Notifies *application* that *risks*, each with the nanoseconds that it has left, are about to be taken."""
    waits: dict[int, list[Allocation]] = {}
    for allocation, wait_ns in risks:
        waits.setdefault(wait_ns, []).append(allocation)
    notices = state.notices
    if risks:
        notices.held.setdefault(application, _held_amounts(application))
    for wait_ns, allocations in waits.items():
        for start in range(0, len(allocations), KEYS_A_NOTICE):
            number = state.callbacks.next_number()
            notice = Notice(number, application, notices.rounds, now_ns + wait_ns)
            for allocation in allocations[start : start + KEYS_A_NOTICE]:
                entry = Entry(allocation, notice, now_ns, wait_ns, notices.rounds)
                notice.entries[allocation.key] = notices.entries[allocation.key] = entry
            notices.add(notice)
            _send(state, notice)


def withdraw_notices(state: PartitionState, entries: Iterable[Entry]) -> None:
    """Notifies applications that *entries* are no longer at risk."""
    keys: dict[Notice, list[str]] = {}
    for entry in entries:
        keys.setdefault(entry.notice, []).append(entry.allocation.spec.key)
        state.notices.drop_entry(entry)
    if not state.callbacks.preemption_notices:
        return
    for notice, gone in keys.items():
        state.effects.append(
            PreemptionNoticeWithdrawn(notice.number, state.name, notice.application.application_id, tuple(gone))
        )


def repeat_notices(state: PartitionState) -> None:
    """Sends the open notices again, because another subscriber listens from now on."""
    for notice in state.notices.open.values():
        _send(state, notice)


def settle_credits(state: PartitionState) -> list[Entry]:
    """Spares allocations in exchange for others that their applications have released by themselves; under the strict
    contract, none.

    Only the amount that an application holds less than before counts; what it released and got back is no credit. The
    allocations selected last are spared first. Returns the spared entries.
    """
    notices = state.notices
    spared: list[Entry] = []
    if _is_negotiable(state):
        for application, held in notices.held.items():
            now = _held_amounts(application)
            credit = {t: amount - now.get(t, 0) for t, amount in held.items()}
            for notice in notices.of_application[application].values():
                for entry in _covered_entries(notice, credit):
                    _use_credit(held, entry.allocation.shape.pairs)
                    spared.append(entry)
    withdraw_notices(state, spared)
    return spared


def _held_amounts(application: Application) -> dict[int, int]:
    """Returns what *application* holds by type, including victims that have not left yet."""
    real, placeholder = application.confirmed_amounts(), application.placeholder
    return {t: amount + placeholder[t] for t, amount in enumerate(real)}


def note_answer(state: PartitionState, answer: PreemptionNoticeAnswer) -> bool:
    """Notes the answer of an application to a notice. Returns ``False`` if the notice does not belong to this partition
    or is closed.

    Allocations that it offers instead are only noted: the next round looks at them first, and takes them in exchange if
    they make the same room. Until then, the allocations in the notice stay at risk. Originators are not noted, because
    they are taken last, and the notice would only be put off.
    """
    notices = state.notices
    notice = notices.open.get(answer.notice)
    if notice is None:
        return False
    notice.accepted = answer.accepted
    for key, saved_ns in answer.checkpoints:
        for request in _requests_of(state, key):
            if request.application is notice.application and request.key in request.application.allocations:
                # The time is bounded by the present one, because no work can be saved before it is done.
                notices.checkpoints[request.key] = min(saved_ns, state.callbacks.now_ns)
    if answer.instead and _is_negotiable(state):
        for key in answer.instead:
            for offer in _requests_of(state, key):
                if _may_be_offered(state, notice, offer):
                    notices.offered[offer.key] = notice
    return True


def exchange_entry(state: PartitionState, allocation: Allocation) -> Entry | None:
    """Returns a new entry for *allocation*, which has just been selected, with the times of the notice in whose answer
    its application offered it.

    Returns ``None`` if it was not offered, so that it needs a notice first.
    """
    notices = state.notices
    notice = notices.offered.get(allocation.key)
    if notice is None or notices.open.get(notice.number) is not notice:
        return None
    model = next(iter(notice.entries.values()))
    entry = Entry(allocation, notice, model.notified_ns, model.wait_ns, model.first_round)
    entry.times = notices.rounds - model.first_round
    notice.entries[allocation.key] = notices.entries[allocation.key] = entry
    return entry


def _may_be_offered(state: PartitionState, notice: Notice, offer: Allocation) -> bool:
    return (
        offer.application is notice.application
        and offer.key in offer.application.allocations
        and offer.key not in state.notices.entries
        and not offer.spec.originator
        and not (offer.preempted or offer.released or offer.spec.required_node)
    )


def _requests_of(state: PartitionState, key: str) -> list[Allocation]:
    """Returns the requests that the shim means by *key*: one, or all that share it."""
    shared = state.instances.get(key)
    if shared:
        return list(shared.values())
    found = state.requests.get(key)
    return [] if found is None else [found]


def _covered_entries(notice: Notice, released: dict[int, int]) -> list[Entry]:
    spared: list[Entry] = []
    for entry in reversed(notice.entries.values()):
        pairs = entry.allocation.shape.pairs
        if not _can_cover(released, pairs):
            break
        _use_credit(released, pairs)
        spared.append(entry)
    return spared


def _can_cover(amounts: Mapping[int, int], pairs: Pairs) -> bool:
    return all(amounts.get(t, 0) >= amount for t, amount in pairs)


def _use_credit(amounts: dict[int, int], pairs: Pairs) -> None:
    for t, amount in pairs:
        amounts[t] -= amount


def _is_negotiable(state: PartitionState) -> bool:
    settings = state.notices.settings
    return settings is not None and settings.contract is MonitorContract.NEGOTIABLE


def _send(state: PartitionState, notice: Notice) -> None:
    if not state.callbacks.preemption_notices:
        return
    need = sum_amounts(entry.allocation for entry in notice.entries.values())
    keys = tuple(entry.allocation.spec.key for entry in notice.entries.values())
    negotiable = _is_negotiable(state)
    application = notice.application
    state.effects.append(
        PreemptionNotice(
            notice.number,
            state.name,
            application.application_id,
            notice.round,
            () if negotiable else keys,
            keys if negotiable else (),
            state.types.to_resources(need) if negotiable else None,
            notice.deadline_ns,
            KIND,
            f"queue {application.queue.path} holds more than its share",
        )
    )
