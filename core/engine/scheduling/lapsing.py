"""Ends saved claims that make no progress while they keep somebody back (preemption.md B.7, "When it ends").

A claim makes progress when less is missing than ever before. Its clock runs while somebody waits who could be placed if
nothing were saved, or who could save room but for the bound on saved claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kornel.core.model.allocations import Allocation, AskGroup, LimitClaim, Reservation
from kornel.core.model.claim_clocks import ClaimClock, sum_missing
from kornel.core.model.claims import by_node
from kornel.core.model.gang_units import UnitId
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape, holds_pairs
from kornel.core.state.asks.group_domains import is_with_others
from kornel.core.state.asks.limit_claims import lapse_below
from kornel.core.state.asks.reservations import end_reservation
from kornel.core.state.asks.savings import can_save, find_homes, give_back, may_look_around, saved_on
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold
from kornel.core.state.waiting.gathering import find_least
from kornel.core.state.waiting.places import refused_asks
from kornel.core.state.waiting.rooms import look_again

LOOKS_PER_TIMEOUT: Final = 24
LONGEST_PAUSE_NS: Final = 300 * 10**9
"""The longest time between two looks, so that a claim without progress is noticed long before it lapses."""
TIMEOUTS_OF_GANG: Final = 2
"""The number of timeouts after which the places of a gang lapse whatever progress they make."""


def watch_claim(state: PartitionState, claim: Reservation, now_ns: int) -> Reservation:
    """Looks at *claim*, which has just been saved, from time to time until it ends. Returns it."""
    claim.clock = ClaimClock(sum_missing([claim]), now_ns)
    _look_later(state, claim, now_ns)
    return claim


def pause_of(queue: Queue) -> int:
    """Returns the time between two looks at what an ask of *queue* saves."""
    return max(1, min(queue.properties.reservation_timeout_ns // LOOKS_PER_TIMEOUT, LONGEST_PAUSE_NS))


def find_lapse(state: PartitionState, claim: Reservation | LimitClaim) -> int | None:
    """Returns the earliest time at which *claim* lapses if it makes no progress; ``None``: it does not lapse."""
    clock, hold = clock_of(state, claim), state.gangs.hold_of(claim.ask)
    if clock is None:
        return None
    timeout_ns = claim.ask.queue.properties.reservation_timeout_ns
    end_ns = clock.find_end(timeout_ns)
    if hold is None or clock is not hold.clock:
        return end_ns
    return min(end_ns, hold.made_ns + TIMEOUTS_OF_GANG * timeout_ns)


def clock_of(state: PartitionState, claim: Reservation | LimitClaim) -> ClaimClock | None:
    """Returns the clock that runs for *claim*: that of all places of a gang, and for a claim below limits that of what
    its holder saves on a node meanwhile; ``None``: it does not lapse."""
    hold, on_node = state.gangs.hold_of(claim.ask), claim.ask.reservation
    common = hold.clock if hold is not None else on_node.clock if on_node is not None else None
    return claim.clock if common is None else common


def _look_later(state: PartitionState, claim: Reservation, now_ns: int) -> None:
    state.run_at(now_ns + pause_of(claim.ask.queue), partial(_look_at, state, claim))


def _look_at(state: PartitionState, claim: Reservation, now_ns: int) -> None:
    if claim not in state.reserving.saved:
        return
    assert claim.clock is not None, "it is watched"
    claim.clock.note_missing(sum_missing([claim]), partial(_keeps_back, state, claim), now_ns)
    if claim.clock.stalled_ns < claim.ask.queue.properties.reservation_timeout_ns:
        _look_later(state, claim, now_ns)
        return
    ask, node = claim.ask, claim.node
    lacked = node.find_missing(claim)
    ask.lapsed_ns = now_ns
    end_reservation(state, claim, requeue=True)
    lapse_below(state, ask)
    state.reserving.lapsed.setdefault(node, []).append(lacked)


def _keeps_back(state: PartitionState, claim: Reservation) -> bool:
    """Tells whether somebody waits who could be placed if nothing were saved, or could save room but for the bound."""
    if not state.reserving.more_may_be_saved(len(state.nodes)):
        seen = set[tuple[object, ...]]()
        for ask in _waiting_asks(state):  # Of thousands, one of the first nearly always could.
            same = ask.shape, ask.spec.topology, frozenset(ask.refused or ())
            if same not in seen and _could_save(state, ask):
                return True
            seen.add(same)
    return _shuts_out(state, (claim.node,))


def _could_save(state: PartitionState, ask: Allocation) -> bool:
    refused, is_home = ask.refused or (), find_homes(state, ask)
    return any(
        node.node_id not in refused and can_save(node, ask, saved_on(node)) and is_home(node)
        for node in state.node_order
    )


def _waiting_asks(state: PartitionState) -> Iterator[Allocation]:
    """Yields the first asks of groups that wait for room on a node, of each shape one for which all nodes are open,
    those refused on every node with room that save none, and the first asks of groups that wait for a domain."""
    for room in state.no_room.values():
        for ask in (waiter.first_ask() for waiter in room if isinstance(waiter, AskGroup)):
            yield ask
            if not ask.refused:
                break
    yield from filter(may_look_around, refused_asks(state))
    yield from (waiter.first_ask() for waiter in state.waiting_for_domain if isinstance(waiter, AskGroup))


def _shuts_out(state: PartitionState, nodes: Iterable[Node]) -> bool:
    """Tells whether somebody who waits could be placed on one of *nodes* if nothing were saved there."""
    saved = {node: node.claims.list_saved() for node in nodes if node.claims is not None}
    rooms = {node: node.claims.open_room(node.free, saved[node]) for node in saved if node.claims is not None}
    known: dict[Shape, list[Node]] = {}
    for ask in _waiting_asks(state):
        shape = ask.shape
        if shape not in known:
            fitting = [node for node, room in rooms.items() if holds_pairs(room, shape.pairs)]
            known[shape] = [node for node in fitting if node.has_devices(shape.devices, None, saved[node])]
        if known[shape] and any(
            node.node_id not in (ask.refused or ()) and is_with_others(state, ask, node) for node in known[shape]
        ):
            return True
    return False


def watch_gang(state: PartitionState, unit_id: UnitId, hold: GangHold) -> None:
    """Looks at the places that have just been saved for the gang *unit_id* from time to time until they end."""
    hold.clock = ClaimClock(sum_missing(hold.claims()), hold.made_ns)
    _look_at_gang_later(state, unit_id, hold, hold.made_ns)


def _look_at_gang_later(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    state.run_at(now_ns + pause_of(unit_id.application.queue), partial(_look_at_gang, state, unit_id, hold))


def _look_at_gang(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    if state.gangs.holds.get(unit_id) is not hold:
        return
    assert hold.clock is not None, "it is watched"
    hold.clock.note_missing(sum_missing(hold.claims()), partial(_gang_keeps_back, state, hold), now_ns)
    timeout_ns = unit_id.application.queue.properties.reservation_timeout_ns
    if hold.clock.stalled_ns < timeout_ns and now_ns - hold.made_ns < TIMEOUTS_OF_GANG * timeout_ns:
        for ask in list(hold.members)[:1]:
            if ask.reservation is not None:
                look_again(state, ask.reservation)
        _look_at_gang_later(state, unit_id, hold, now_ns)
        return
    lacked: dict[Node, Counter[int]] = {}
    for claim in hold.claims():
        lacked.setdefault(claim.node, Counter()).update(claim.node.find_missing(claim))
    least = find_least(hold.members)
    for ask in hold.members:
        ask.lapsed_ns = now_ns
    give_back(state, unit_id)
    lapse_below(state, least)
    for node, amounts in lacked.items():
        if amounts:
            state.reserving.lapsed.setdefault(node, []).append(dict(amounts))


def _gang_keeps_back(state: PartitionState, hold: GangHold) -> bool:
    """Tells whether somebody waits who could be placed if nothing were saved, or another gang, which could save but for
    this one."""
    if any(room.waiters for room in state.gangs.rooms.values()):
        return True
    return _shuts_out(state, by_node(hold.claims()))
