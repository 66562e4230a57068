"""Ends saved claims that make no progress while they keep somebody back (preemption.md B.7, "When it ends").

A claim makes progress when less is missing than ever before. Its clock runs while somebody waits who could be placed if
nothing were saved, or who could save room but for the bound on saved claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from kornel.core.model.allocations import AskGroup, Reservation
from kornel.core.model.gang_units import UnitId
from kornel.core.model.nodes import Node
from kornel.core.partition.asks.limit_claims import lapse_below
from kornel.core.partition.asks.reservations import end_reservation
from kornel.core.partition.asks.savings import can_save, saved_on
from kornel.core.partition.gangs.gang_record import GangHold
from kornel.core.partition.scheduling.gang_savings import find_least, give_back
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.rooms import look_again

LOOKS_PER_TIMEOUT: Final = 24
TIMEOUTS_OF_GANG: Final = 2
"""The number of timeouts after which the places of a gang lapse whatever progress they make."""


def watch_claim(state: PartitionState, claim: Reservation) -> None:
    """Looks at *claim*, which has just been saved, from time to time until it ends."""
    claim.missing = _find_missing(claim.node, claim)
    _look_later(state, claim, claim.made_ns)


def _look_later(state: PartitionState, claim: Reservation, now_ns: int) -> None:
    claim.looked_ns = now_ns
    pause_ns = max(1, claim.ask.queue.properties.reservation_timeout_ns // LOOKS_PER_TIMEOUT)
    state.run_at(now_ns + pause_ns, partial(_look_at, state, claim))


def _look_at(state: PartitionState, claim: Reservation, now_ns: int) -> None:
    if claim not in state.reserving.saved:
        return
    if not _note_missing(claim) and _keeps_back(state, claim):
        claim.stalled_ns += now_ns - claim.looked_ns
    if claim.stalled_ns < claim.ask.queue.properties.reservation_timeout_ns:
        _look_later(state, claim, now_ns)
        return
    ask, node = claim.ask, claim.node
    lacked = _lacked(node, claim)
    ask.lapsed_ns = now_ns
    end_reservation(state, claim, requeue=True)
    lapse_below(state, ask)
    state.reserving.lapsed.setdefault(node, []).append(lacked)


def _note_missing(claim: Reservation) -> bool:
    """Notes how much *claim* is missing now. Returns whether that is less than ever before."""
    missing = _find_missing(claim.node, claim)
    if missing >= claim.missing:
        return False
    claim.missing, claim.stalled_ns = missing, 0
    return True


def _find_missing(node: Node, claim: Reservation) -> float:
    """Returns the sum, over the types, of the missing part of what *claim* holds, between 0 and 1 each."""
    lacked = _lacked(node, claim)
    return sum(lacked[t] / amount for t, amount in claim.pairs if amount)


def _lacked(node: Node, claim: Reservation) -> dict[int, int]:
    claims = node.claims
    assert claims is not None, "the node has a claim"
    room = claims.room_of(claim, node.free)
    return {t: min(amount, max(0, amount - room[t])) for t, amount in claim.pairs}


def _keeps_back(state: PartitionState, claim: Reservation) -> bool:
    """Tells whether somebody waits who could be placed if nothing were saved, or could save room but for the bound."""
    waiting = _waiting_groups(state)
    if _shuts_out(claim.node, waiting):
        return True
    if state.reserving.more_may_be_saved(len(state.nodes)):
        return False
    firsts = {group.shape: group.first_ask() for group in reversed(waiting)}
    return any(can_save(node, ask, saved_on(node)) for ask in firsts.values() for node in state.node_order)


def _waiting_groups(state: PartitionState) -> list[AskGroup]:
    return [waiter for waiters in state.no_room.values() for waiter in waiters if isinstance(waiter, AskGroup)]


def _shuts_out(node: Node, waiting: Sequence[AskGroup]) -> bool:
    """Tells whether one of those *waiting* could be placed on *node* if nothing were saved there."""
    claims = node.claims
    assert claims is not None, "the node has a claim"
    room = claims.open_room(node.free, [other for other in claims.reservations.values() if other.comes_last])
    return any(all(room[t] >= amount for t, amount in group.shape.pairs) for group in waiting)


def watch_gang(state: PartitionState, unit_id: UnitId, hold: GangHold) -> None:
    """Looks at the places that have just been saved for the gang *unit_id* from time to time until they end."""
    hold.missing = _sum_missing(hold)
    _look_at_gang_later(state, unit_id, hold, hold.made_ns)


def _look_at_gang_later(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    hold.looked_ns = now_ns
    pause_ns = max(1, unit_id.application.queue.properties.reservation_timeout_ns // LOOKS_PER_TIMEOUT)
    state.run_at(now_ns + pause_ns, partial(_look_at_gang, state, unit_id, hold))


def _look_at_gang(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    if state.gangs.holds.get(unit_id) is not hold:
        return
    missing = _sum_missing(hold)
    if missing < hold.missing:
        hold.missing, hold.stalled_ns = missing, 0
    elif _gang_keeps_back(state, hold):
        hold.stalled_ns += now_ns - hold.looked_ns
    timeout_ns = unit_id.application.queue.properties.reservation_timeout_ns
    if hold.stalled_ns < timeout_ns and now_ns - hold.made_ns < TIMEOUTS_OF_GANG * timeout_ns:
        for ask in list(hold.members)[:1]:
            if ask.reservation is not None:
                look_again(state, ask.reservation)
        _look_at_gang_later(state, unit_id, hold, now_ns)
        return
    lacked = {node: _sum_by_type([_lacked(node, claim) for claim in claims]) for node, claims in _by_node(hold).items()}
    least = find_least(hold)
    for ask in hold.members:
        ask.lapsed_ns = now_ns
    give_back(state, unit_id)
    lapse_below(state, least)
    for node, amounts in lacked.items():
        if any(amounts.values()):
            state.reserving.lapsed.setdefault(node, []).append(amounts)


def _gang_keeps_back(state: PartitionState, hold: GangHold) -> bool:
    """Tells whether somebody waits who could be placed if nothing were saved, or another gang, which could save but for
    this one."""
    if any(room.waiters for room in state.gangs.rooms.values()):
        return True
    waiting = _waiting_groups(state)
    return any(_shuts_out(node, waiting) for node in _by_node(hold))


def _sum_missing(hold: GangHold) -> float:
    """Returns the sum, over the types, of the part of what all members ask for that is missing on their nodes."""
    claims = [ask.reservation for ask in hold.members if ask.reservation is not None]
    lacked = _sum_by_type([_lacked(claim.node, claim) for claim in claims])
    asked = _sum_by_type([dict(claim.pairs) for claim in claims])
    return sum(lacked[t] / amount for t, amount in asked.items() if amount)


def _by_node(hold: GangHold) -> dict[Node, list[Reservation]]:
    found: dict[Node, list[Reservation]] = {}
    for ask in hold.members:
        if ask.reservation is not None:
            found.setdefault(ask.reservation.node, []).append(ask.reservation)
    return found


def _sum_by_type(amounts: Sequence[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for one in amounts:
        for t, amount in one.items():
            total[t] = total.get(t, 0) + amount
    return total
