"""Notes why an ask was not placed, in sentences for people (scheduling.md 17).

A text names only what stays the same while the ask waits, so that equal reasons add up to one entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.domain.ask_places import WaitsFor
from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.not_placed import Failures, add_failure
from kornel.core.model.orders.waiting_rooms import WaitingRoom

_BY_LIMIT: Final[Mapping[Unschedulable, str]] = MappingProxyType(
    {Unschedulable.USER_QUOTA: "Not enough user quota", Unschedulable.QUEUE_QUOTA: "Not enough queue quota"}
)
"""Clients compare these two texts, so they contain no names (rest.md 4.5)."""

_GUARANTEED_USED: Final = (
    "Preemption cannot help: the queue with the guarantee for queue {queue} uses all of it already"
)
_PREEMPTION: Final[Mapping[Outcome, str]] = MappingProxyType(
    {
        Outcome.ATTEMPTS_EXHAUSTED: "Preemption is put off: other requests of queue {queue} were tried first",
        Outcome.ASK_MAY_NOT_PREEMPT: "Preemption is not tried: the request may not preempt others",
        Outcome.ALREADY_TRIGGERED: "Preemption is not tried again: victims are leaving for this request",
        Outcome.REQUIRED_NODE: "Preemption for guarantees is not tried: only room on required node {node} helps",
        Outcome.TOO_YOUNG: "Preemption is not tried yet: requests of queue {queue} wait {delay:g} s before it",
        Outcome.NO_GUARANTEE: "Preemption cannot help: no queue from {queue} up guarantees any of {amounts}",
        Outcome.ASK_EXCEEDS_GUARANTEE: "Preemption cannot help: {amounts} is more than is guaranteed to queue {queue}",
        Outcome.NOT_UNDER_GUARANTEE: _GUARANTEED_USED,
        Outcome.VICTIM_RELEASED: "Preemption is tried again: a victim left by itself",
        Outcome.FENCED_AT_LEAF: "Preemption cannot help: nobody outside queue {queue} may be preempted for it",
        Outcome.NO_CANDIDATES: "Preemption cannot help: nobody may be preempted for a request of queue {queue}",
        Outcome.NO_NODE: "Preemption cannot help: those who may be preempted leave no node enough room for {amounts}",
        Outcome.GANG_INCOMPLETE: "Preemption cannot help: not all members of the gang would find a place",
        Outcome.PREDICATE_REFUSED: "Preemption cannot help: every node that victims could leave was refused",
        Outcome.BUDGET_SPENT: "Preemption is put off: as much was preempted lately as may be",
        Outcome.COOLING_DOWN: "Preemption is put off: those who could be preempted lost something just now",
        Outcome.LOOP: "Preemption is put off: queue {queue} and another one have preempted each other in turns",
        Outcome.ROUND_LIMIT: "Preemption is put off: as much was preempted in this round as may be",
        Outcome.VICTIM_LIMIT: "Preemption is put off: more victims would leave for {amounts} than may for one request",
        Outcome.POLICY_OFF: "Preemption is not tried: its policy is switched off",
        Outcome.SHADOW: "Preemption could help, but it only watches",
        Outcome.USER_QUOTA: "Preemption cannot help: a limit of the user or group is in the way",
        Outcome.NO_VICTIM_REQUIRED_NODE: "Preemption cannot help: nobody who may go makes room on required node {node}",
    }
)
_NS_PER_S: Final = 10**9


def note_failure(ask: Allocation, message: str, now_ns: int, times: int = 1) -> None:
    """Notes that *ask* was not placed because of *message*, so many *times*."""
    ask.failures = add_failure(ask.failures, message, now_ns, times)


def note_chances(group: AskGroup, room: WaitingRoom) -> None:
    """Notes for the first ask of *group*, which leaves *room*, how often it could have been served, and others were
    instead."""
    times = room.chances_of(group)
    if times:
        note_failure(group.first_ask(), _describe_lack(group), room.last_chance_ns, times)


def failures_of(ask: Allocation) -> Failures:
    """Returns the reasons why *ask* was not placed, the most recent first, with the chances that others took."""
    found, group = ask.failures, ask.group
    room = None if group is None else group.parked_at
    if group is not None and isinstance(room, WaitingRoom) and room.chances_of(group) and group.first_ask() is ask:
        found = add_failure(found, _describe_lack(group), room.last_chance_ns, room.chances_of(group))
    return found[::-1]


def _describe_lack(group: AskGroup) -> str:
    """Returns the sentence for what *group* waits for in a room where it takes its turn."""
    if group.waits_for is WaitsFor.ROOM:
        return group.shape.write_lack()
    by_user = group.waits_for is WaitsFor.USER_LIMIT
    return _BY_LIMIT[Unschedulable.USER_QUOTA if by_user else Unschedulable.QUEUE_QUOTA]


def note_unplaced(ask: Allocation, reason: Unschedulable, now_ns: int) -> None:
    """Notes that the cycle found no place for *ask*. A refusal of the shim is noted in its own words."""
    if reason is Unschedulable.NO_FITTING_NODE:
        note_failure(ask, ask.shape.write_lack(), now_ns)
    elif reason is Unschedulable.NO_FITTING_DOMAIN and ask.spec.topology is not None:
        wanted, amounts = ask.spec.topology.describe_request(), ask.shape.write_amounts()
        note_failure(ask, f"No domain has enough room for its group ({wanted}), {amounts} each", now_ns)
    elif reason is Unschedulable.REQUIRED_NODE:
        note_failure(ask, f"Required node {ask.spec.required_node} is unknown or has no room", now_ns)
    elif reason is Unschedulable.GANG_INCOMPLETE:
        note_failure(ask, "Not all members of the gang find a place", now_ns)
    elif reason in _BY_LIMIT:
        note_failure(ask, _BY_LIMIT[reason], now_ns)


def note_preemption(ask: Allocation, outcome: Outcome, now_ns: int) -> None:
    """Notes that an attempt to preempt for *ask* failed."""
    text = _PREEMPTION.get(outcome)
    if text is not None:
        queue = ask.queue
        delay = queue.properties.preemption_delay_ns / _NS_PER_S
        amounts = ask.shape.write_amounts()
        note_failure(
            ask, text.format(queue=queue.path, node=ask.spec.required_node, delay=delay, amounts=amounts), now_ns
        )
