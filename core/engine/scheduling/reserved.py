"""Serves asks with a reservation, which come first in every cycle (scheduling.md 8.4, 9).

Such an ask is tried again only if something has changed for it: room on its node, on another node, or under the quota
that kept it back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Unschedulable
from kornel.core.engine.gangs import gang_holds
from kornel.core.engine.scheduling import loans, vetting
from kornel.core.engine.scheduling.reserving import Turns, keep_room, save_room
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.policies.claim_order import comes_before, in_line, line_key
from kornel.core.preemption import slices
from kornel.core.state.asks import finding, group_domains
from kornel.core.state.asks.reservations import end_reservation, reserve_node
from kornel.core.state.asks.savings import could_ever_hold
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import find_least
from kornel.core.state.waiting.rooms import park_below, park_for_domain, park_without_node
from kornel.core.state.waiting.waking import count_lent

_LIKENESS: Final = attrgetter("by_age", "least", "ask.application", "ask.shape", "ask.turn_priority")
_WAIT: Final = attrgetter("ask.waits_since_ns", "ask.order")
MOST_SEARCH_COST: Final = 400
"""The cost of the searches for victims after which the other asks wait for the next slice: two searches."""


def serve(state: PartitionState, now_ns: int, chosen: Callable[[Reservation], bool] | None = None) -> int:
    """Tries every reserved ask that may be placed now, or only those *chosen*.

    Returns the cost in decisions; 0 if all of them wait for those who come before them.
    """
    cost_before, turns = state.search_cost, Turns()
    gangs = gang_holds.take_ready(state, chosen) if state.gangs.holds else []
    in_turn = {m: hold for m in gangs if (hold := state.gangs.hold_of(m.ask)) is not None and hold.by_age}
    cost = sum(gang_holds.serve_gang(state, member, now_ns) for member in gangs if member not in in_turn)
    asked = state.reserved_ready if chosen is None else filter(chosen, state.reserved_ready)
    ready = [reservation for reservation in asked if state.gangs.hold_of(reservation.ask) is None]
    # Whoever somebody leaves for comes first; among the others shares play no part.
    firm = [reservation for reservation in ready if not reservation.comes_last]
    firm.sort(key=lambda reservation: turns.sort_key(reservation.ask))
    # They are taken out before any is tried, because a try may put one back, which is then for the next slice.
    for reservation in ready:
        del state.reserved_ready[reservation]
    # A gang holds since its first places, and one of its members may have lost its own since.
    saved = sorted([r for r in ready if r.comes_last] + list(in_turn), key=lambda r: line_key(r.waiter))
    line = firm + in_line(sorted(saved, key=lambda r: in_turn[r].made_ns if r in in_turn else r.made_ns))
    ready = _in_order_of_waits(in_line(reservation for reservation in line if reservation not in in_turn))
    # Every ask is tried on its own node before any ask is tried elsewhere, because room that becomes free on a node
    # belongs to the claims there, in their order (scheduling.md 8.4). Asks that get nothing there are then tried on
    # other nodes, where whoever comes before others is the first, whatever they hold.
    deferred: set[Reservation] = set()
    for reservation in _in_order_of_claims([r for r in line if r in in_turn or r.node.fits_holder(r)], in_turn):
        if reservation not in in_turn:
            _try_own_node(state, reservation, ready, ready, deferred, now_ns)
        else:
            cost += _try_gang(state, reservation, ready, deferred, now_ns) - 1
    for number in range(len(ready)):
        reservation = ready[number]  # Equals of those before it may have swapped.
        if state.search_cost - cost_before >= MOST_SEARCH_COST:
            state.reserved_ready.update(dict.fromkeys(r for r in ready[number:] if r.ask.reservation is r))
            break
        if reservation in deferred and state.reserved_ready.pop(reservation, reservation) is None:
            # All of those who come before it have been tried. What they have left is its own, before others have it.
            _try_own_node(state, reservation, ready, ready[number + 1 :], deferred, now_ns)
        _try_elsewhere(state, ready[number], now_ns)
    # A gang waits for its turn by its least important member, whichever of its members has become ready.
    waiters = [
        (r, find_least(in_turn[r].members) if r in in_turn else r.waiter) for r in line if r in state.reserved_ready
    ]
    waits = sum(r in deferred or loans.is_outranked(state, waiter) for r, waiter in waiters)
    return len(line) - waits + cost + state.search_cost - cost_before


def _in_order_of_claims(line: list[Reservation], gangs: Collection[Reservation]) -> list[Reservation]:
    """Returns *line* with the reservations of each node in the order of their claims: room that becomes free goes to
    the first of these, whatever the priorities are. Nobody behind one of *gangs*, which have claims on many nodes, is
    tried before it."""
    gang = next((number for number, reservation in enumerate(line) if reservation in gangs), 0)
    found: dict[Reservation, None] = {}
    for part in (line[:gang], line[gang:]):
        chosen = dict.fromkeys(part)
        for reservation in part:
            if reservation not in found and reservation.node.claims is not None:
                found.update(dict.fromkeys(r for r in reservation.node.claims.in_order() if r in chosen))
    return list(found)


def _in_order_of_waits(line: list[Reservation]) -> list[Reservation]:
    """Returns *line* with equal asks of one application that save room by age in each other's places, so that the one
    that has waited longest is the first of them (preemption.md B.7)."""
    likenesses = [_LIKENESS(reservation) if reservation.by_age else reservation for reservation in line]
    equals: dict[object, list[Reservation]] = {}
    for likeness, reservation in zip(likenesses, line, strict=True):
        equals.setdefault(likeness, []).append(reservation)
    turns = {likeness: iter(sorted(claims, key=_WAIT)) for likeness, claims in equals.items()}
    return [next(turns[likeness]) for likeness in likenesses]


def _try_gang(
    state: PartitionState, member: Reservation, ready: list[Reservation], deferred: set[Reservation], now_ns: int
) -> int:
    """Places the gang of *member* if there is room for all, or adds *member* to those *deferred*, because somebody who
    comes before it may use that room and is tried elsewhere first. Returns the cost in decisions."""
    hold = state.gangs.hold_of(member.ask)
    first = [other for other in ready if comes_before(other.ask, member.waiter)]
    if first and hold is not None and any(_may_use(state, other, claim) for other in first for claim in hold.claims()):
        state.reserved_ready[member] = None
        deferred.add(member)
        return 1
    return gang_holds.serve_gang(state, member, now_ns)


def insist_on_node(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """Holds room at once for *ask* on the node that it must run on and that has no room for it (scheduling.md 9).

    Returns false if the node is unknown, or too small beside the load of other schedulers.
    """
    node = state.nodes.get(ask.spec.required_node)
    if node is None or not could_ever_hold(node, ask):
        return False
    reserve_node(state, ask, node, now_ns)
    return True


def _try_own_node(
    state: PartitionState,
    reservation: Reservation,
    ready: list[Reservation],
    rivals: Sequence[Reservation],
    deferred: set[Reservation],
    now_ns: int,
) -> None:
    """Places the ask of *reservation* on its node, or one of its equals in *ready* that has waited longer. Or adds it
    to those *deferred*, because one of its *rivals*, which have yet to be tried elsewhere, comes before it."""
    ask, node, first, former = reservation.ask, reservation.node, reservation, reservation.node
    # Room for several equals serves all of them, also while the shim is asked about the first ones.
    while ask.reservation is reservation and ask.place is not AskPlace.HELD and node.fits_holder(reservation):
        apart = ask.spec.topology is not None and not group_domains.is_with_others(state, ask, node)
        if apart or node.node_id in (ask.refused or ()) or finding.kept_back(state, ask) is not None:
            break
        if reservation.comes_last and any(_may_use(state, other, reservation) for other in rivals):
            state.reserved_ready[reservation] = None  # The other one is tried elsewhere first.
            deferred.add(reservation)
            break
        first = _longest_waiting(state, reservation)
        former = first.node
        _place_in_turn(state, reservation, node, now_ns, first.ask)
        if first.ask.place is not AskPlace.HELD and first.ask.node is not node:
            break
    if first.ask.node is node is not former and former.node_id not in (ask.refused or ()):
        moved = ready[ready.index(reservation)] = save_room(state, ask, former, now_ns, reservation.made_ns)
        if not former.fits_holder(moved):  # Otherwise it is tried there again.
            del state.reserved_ready[moved]  # It is tried elsewhere in this slice, before those behind it are placed.


def _longest_waiting(state: PartitionState, reservation: Reservation) -> Reservation:
    """Returns the saved claim of that ask equal to the one of *reservation*, in its application, which has waited
    longest: these two swap (preemption.md B.7)."""
    if not reservation.by_age:
        return reservation
    wanted, node_id = _LIKENESS(reservation), reservation.node.node_id
    equal = [claim for claim in state.reserving.saved if _LIKENESS(claim) == wanted]
    able = [c for c in equal if c.ask.place is not AskPlace.HELD and node_id not in (c.ask.refused or ())]
    return min(able, key=_WAIT)


def _may_use(state: PartitionState, other: Reservation, reservation: Reservation) -> bool:
    """Tells whether the holder of *other* is about to be tried, comes before that of *reservation*, and may use what is
    saved for it."""
    ask, node = other.ask, reservation.node
    if other.node is node or ask.reservation is not other or ask.place is AskPlace.HELD or ask.spec.required_node:
        return False
    return comes_before(ask, reservation.waiter) and count_lent(node, ask, state.dues) > 0


def _may_stay(state: PartitionState, reservation: Reservation) -> bool:
    """Tells whether the holder of *reservation*, which is saved by age, may be placed on that node: the shim has not
    refused it there, and it is in a domain that its group still allows."""
    ask, node = reservation.ask, reservation.node
    return node.node_id not in (ask.refused or ()) and group_domains.is_with_others(state, ask, node)


def _place_in_turn(state: PartitionState, reservation: Reservation, node: Node, now_ns: int, ask: Allocation) -> None:
    """Places *ask* on *node*, or has *reservation* wait for those who come before it and are about to be tried. The
    room that others leave for it passes only inside its leaf, and not if it must run there."""
    firm_here = not reservation.comes_last and node is reservation.node
    if not (firm_here and ask.spec.required_node) and loans.is_outranked(state, ask, within_leaf=firm_here):
        state.reserved_ready[reservation] = None
    else:
        vetting.place_vetted(state, ask, node, now_ns)


def _try_elsewhere(state: PartitionState, reservation: Reservation, now_ns: int) -> None:
    """Places the ask on another suitable node, unless it requires one; otherwise makes it wait for what it lacks.

    A saved claim ends if a limit keeps the ask back, or the shim has refused it there, because room must not lie idle
    for an ask that may not run.
    """
    ask = reservation.ask
    # In the first pass it may have been placed on its own node, or the shim is being asked about that node, or it waits
    # for its turn there.
    if ask.reservation is not reservation or ask.place is AskPlace.HELD or reservation.parked_at is not None:
        return
    if reservation in state.reserved_ready:
        return
    other: Node | NotPlaced | None = None
    limited = finding.kept_back(state, ask)
    ends = reservation.by_age and not _may_stay(state, reservation)
    if limited is not None:
        ends = ends or reservation.comes_last or limited.reason is Unschedulable.APPLICATION_LIMIT
    if ends:
        end_reservation(state, reservation, requeue=True)
        return
    if limited is None and not ask.spec.required_node:
        other = finding.find_node(state, ask)
        if isinstance(other, NotPlaced) and state.reserving.saved:
            other = loans.find_lent_node(state, ask, other)
        if not isinstance(other, NotPlaced):
            _place_in_turn(state, reservation, other, now_ns, ask)
            return
    if reservation.comes_last and (ask.attempt_due or ask.queue.claimants) and not ask.spec.required_node:
        if loans.is_outranked(state, ask):
            state.reserved_ready[reservation] = None  # Nobody leaves for it before those who come first are tried.
            return
        if ask.queue.claimants and (left := slices.take_over_claim(state, ask, now_ns)) is not None:
            keep_room(state, left, now_ns)
            return
    if slices.serve_reserved(state, reservation, limited, now_ns):
        return
    gate = None if limited is None else limited.account or limited.queue
    if gate is not None:
        park_below(reservation, ask.shape, gate)
    elif ask.refused is not None:
        vetting.refused_everywhere(state, ask, now_ns)
    elif isinstance(other, NotPlaced) and other.reason is Unschedulable.NO_FITTING_DOMAIN:
        park_for_domain(state, reservation)
    elif not ask.spec.required_node:
        park_without_node(state, reservation, ask.shape)
