"""Withdraws asks that were not placed yet, with all that was done for them. Every withdrawal is done by this module."""

from __future__ import annotations

from kornel.core.domain.ask_places import AskPlace
from kornel.core.engine.gangs import pools, replacement
from kornel.core.model.allocations import Allocation
from kornel.core.preemption import eviction
from kornel.core.state.asks import instances, moves, questions
from kornel.core.state.partition_state import PartitionState


def withdraw_ask(state: PartitionState, ask: Allocation, *, timed_out: bool = False) -> None:
    """Remove a pending *ask*, its reservation and its claim. Its victims still leave.

    The placeholder that it was to replace leaves too (protocol.md DB-10).
    """
    questions.cancel_question(state, ask)
    if ask.place is AskPlace.REPLACING:
        replacement.undo_replacement(state, ask)
    eviction.forget_ask(state, ask)
    moves.drop_ask(state, ask)
    instances.forget_request(state, ask)
    if ask.spec.placeholder:
        pools.placeholder_gone(state, ask)
    if state.recording:
        state.events.ask_removed(ask, timed_out=timed_out)
