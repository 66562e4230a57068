"""Ends saved claims that make no progress while they keep somebody back (preemption.md B.7, "When it ends").

A claim makes progress when less is missing than ever before. Its clock runs while somebody waits who could be placed if
nothing were saved, or who could save room but for the bound on saved claims.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kornel.core.model.allocations import AskGroup, Reservation
from kornel.core.model.nodes import Node
from kornel.core.partition.asks.limit_claims import lapse_below
from kornel.core.partition.asks.reservations import end_reservation
from kornel.core.partition.asks.savings import can_save, saved_on
from kornel.core.partition.state import PartitionState

LOOKS_PER_TIMEOUT: Final = 24


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
    claims = claim.node.claims
    assert claims is not None, "the node has a claim"
    room = claims.open_room(claim.node.free, [other for other in claims.reservations.values() if other.comes_last])
    waiting = [waiter for waiters in state.no_room.values() for waiter in waiters if isinstance(waiter, AskGroup)]
    if any(all(room[t] >= amount for t, amount in group.shape.pairs) for group in waiting):
        return True
    if state.reserving.more_may_be_saved(len(state.nodes)):
        return False
    firsts = {group.shape: group.first_ask() for group in reversed(waiting)}
    return any(can_save(node, ask, saved_on(node)) for ask in firsts.values() for node in state.node_order)
