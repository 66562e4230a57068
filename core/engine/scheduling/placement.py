"""Placements: :func:`bind` and :func:`place_unchecked` book them, and :func:`announce_placement` reports them."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.application_states import AppState
from kornel.core.domain.effects import Allocated
from kornel.core.engine import lifecycle
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.state.asks.answers import device_tags
from kornel.core.state.asks.limit_claims import end_saving_below
from kornel.core.state.asks.moves import end_claim, place_ask, place_unasked
from kornel.core.state.asks.reservations import offer_room, unbook_reservation
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission

_ACCEPTED: Final = AppState.ACCEPTED
"""Kept as a constant, because reading a member from its class costs as much as a call, and many placements need it."""

_new: Final = tuple.__new__


def bind(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Turns *ask* into an allocation on *node*: books it, updates the state of its application, and answers the
    shim."""
    reservation = ask.reservation
    if reservation is not None:
        unbook_reservation(state, reservation)
    if ask.triggered:
        end_claim(state, ask)
    place_ask(state, ask, node, now_ns)
    if reservation is not None:
        # Waiters are woken only now, so that none is woken for room that the ask has just taken.
        offer_room(state, reservation.node)
    announce_placement(state, ask, node, now_ns)


def place_unchecked(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Books *allocation* on *node* without any check, and reports it to the shim."""
    place_unasked(state, allocation, node, now_ns)
    announce_placement(state, allocation, node, now_ns)


def announce_placement(state: PartitionState, allocation: Allocation, node: Node, now_ns: int) -> None:
    """Updates the application and informs the shim after *allocation* was booked on *node*."""
    application, spec = allocation.application, allocation.spec
    application.unschedulable = 0
    allocation.missed = 0
    if allocation.extras is not None or allocation.refused is not None:
        end_saving_below(state, allocation)
        allocation.clear_search()
    if spec.placeholder or not application.settled:
        if state.recording:
            state.events.node_charged(allocation, node)
        lifecycle.allocation_added(state, application, placeholder=spec.placeholder, now_ns=now_ns)
        if application.state is _ACCEPTED:
            admission.note_allocating(state, application)
        elif not spec.originator:
            admission.end_start(application)
        if state.recording:
            state.events.allocation_added(allocation)
    elif state.recording:
        state.events.placement_made(allocation, node)
    tags = () if allocation.shape.devices is None else device_tags(allocation)
    state.effects.append(_new(Allocated, (spec, node.node_id, allocation.shape.resources, tags)))
