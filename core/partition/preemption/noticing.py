"""Telling applications what they may have to give up, and hearing what they would rather lose (preemption.md E.6, E.7).

A shim that did not subscribe to notices hears nothing; the clock runs all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from core.domain.commands import PreemptionNoticeAnswer
from core.domain.effects import PreemptionNotice, PreemptionNoticeWithdrawn
from core.domain.settings import MonitorContract
from core.model.allocations import Allocation
from core.model.applications import Application
from core.model.notices import Entry, Notice
from core.model.shapes import Pairs
from core.partition.state import PartitionState
from core.policies.preemption.monitor.plan import KIND

KEYS_A_NOTICE: Final = 1_000


def notify(
    state: PartitionState, application: Application, risks: Sequence[tuple[Allocation, int]], now_ns: int
) -> None:
    """Tell *application* that *risks*, each with the nanoseconds it has left, are about to be taken."""
    waits: dict[int, list[Allocation]] = {}
    for allocation, wait_ns in risks:
        waits.setdefault(wait_ns, []).append(allocation)
    notices = state.notices
    for wait_ns, allocations in waits.items():
        for start in range(0, len(allocations), KEYS_A_NOTICE):
            number = state.callbacks.next_number()
            notice = Notice(number, application, notices.rounds, now_ns + wait_ns)
            for allocation in allocations[start : start + KEYS_A_NOTICE]:
                entry = Entry(allocation, notice, now_ns, wait_ns, notices.rounds)
                notice.entries[allocation.key] = notices.entries[allocation.key] = entry
            notices.add(notice)
            _send(state, notice)


def withdraw(state: PartitionState, entries: Iterable[Entry]) -> None:
    """*entries* are at risk no more."""
    keys: dict[Notice, list[str]] = {}
    for entry in entries:
        keys.setdefault(entry.notice, []).append(entry.allocation.spec.key)
        state.notices.drop(entry)
    if not state.callbacks.preemption_notices:
        return
    for notice, gone in keys.items():
        state.effects.append(
            PreemptionNoticeWithdrawn(notice.number, state.name, notice.application.application_id, tuple(gone))
        )


def tell_again(state: PartitionState) -> None:
    """Somebody else listens from now on: repeat what still stands."""
    for notice in state.notices.open.values():
        _send(state, notice)


def settle_credits(state: PartitionState) -> list[Entry]:
    """Spare what applications made up for by releasing other allocations; nothing under the strict contract.

    The last selected are spared first. Returns what was spared.
    """
    notices = state.notices
    spared: list[Entry] = []
    if _negotiable(state):
        for application, released in notices.released.items():
            for notice in notices.of_application[application].values():
                spared += _covered(notice, released)
    withdraw(state, spared)
    return spared


def answered(state: PartitionState, answer: PreemptionNoticeAnswer) -> bool:
    """What an application says to one of its notices; ``False``: the notice is none of this partition, or closed."""
    notices = state.notices
    notice = notices.open.get(answer.notice)
    if notice is None:
        return False
    notice.accepted = answer.accepted
    for key, saved_ns in answer.checkpoints:
        for request in _requests(state, key):
            entry = notices.entries.get(request.key)
            if entry is not None and request.application is notice.application:
                entry.checkpoint_ns = saved_ns
    if answer.instead and _negotiable(state):
        withdraw(state, _exchange(state, notice, answer.instead))
    return True


def _exchange(state: PartitionState, notice: Notice, keys: Iterable[str]) -> list[Entry]:
    """Put *keys* in the place of as many entries as they make up for, on the same terms. Returns those replaced."""
    notices = state.notices
    replaced: list[Entry] = []
    waiting: list[Allocation] = []
    credit: dict[int, int] = {}
    model = next(iter(notice.entries.values()))
    listed = dict(notice.entries)
    for key in keys:
        for offer in _requests(state, key):
            if not _may_be_offered(state, notice, offer):
                continue
            waiting.append(offer)
            for t, amount in offer.shape.pairs:
                credit[t] = credit.get(t, 0) + amount
            while listed and _covers(credit, (last := listed[next(reversed(listed))]).allocation.shape.pairs):
                del listed[last.allocation.key]
                replaced.append(last)
                _use(credit, last.allocation.shape.pairs)
                for allocation in waiting:
                    entry = Entry(allocation, notice, model.notified_ns, model.wait_ns, model.first_round)
                    entry.times = model.times
                    notice.entries[allocation.key] = notices.entries[allocation.key] = entry
                    notices.offered[allocation.key] = None
                waiting.clear()
    return replaced


def _may_be_offered(state: PartitionState, notice: Notice, offer: Allocation) -> bool:
    return (
        offer.application is notice.application
        and offer.key in offer.application.allocations
        and offer.key not in state.notices.entries
        and not (offer.preempted or offer.released or offer.spec.required_node)
    )


def _requests(state: PartitionState, key: str) -> list[Allocation]:
    """What the shim means by *key*: one request, or all that share it."""
    shared = state.instances.get(key)
    if shared:
        return list(shared.values())
    found = state.requests.get(key)
    return [] if found is None else [found]


def _covered(notice: Notice, released: dict[int, int]) -> list[Entry]:
    spared: list[Entry] = []
    for entry in reversed(notice.entries.values()):
        pairs = entry.allocation.shape.pairs
        if not _covers(released, pairs):
            break
        _use(released, pairs)
        spared.append(entry)
    return spared


def _covers(amounts: Mapping[int, int], pairs: Pairs) -> bool:
    return all(amounts.get(t, 0) >= amount for t, amount in pairs)


def _use(amounts: dict[int, int], pairs: Pairs) -> None:
    for t, amount in pairs:
        amounts[t] -= amount


def _negotiable(state: PartitionState) -> bool:
    settings = state.notices.settings
    return settings is not None and settings.contract is MonitorContract.NEGOTIABLE


def _send(state: PartitionState, notice: Notice) -> None:
    if not state.callbacks.preemption_notices:
        return
    need: dict[int, int] = {}
    for entry in notice.entries.values():
        for t, amount in entry.allocation.shape.pairs:
            need[t] = need.get(t, 0) + amount
    keys = tuple(entry.allocation.spec.key for entry in notice.entries.values())
    negotiable = _negotiable(state)
    application = notice.application
    state.effects.append(
        PreemptionNotice(
            notice.number,
            state.name,
            application.application_id,
            notice.round,
            () if negotiable else keys,
            keys if negotiable else (),
            state.types.resources(need) if negotiable else None,
            notice.deadline_ns,
            KIND,
            f"queue {application.queue.path} holds more than its share",
        )
    )
