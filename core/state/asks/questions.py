"""Questions to the shim about asks: cancels them while they are open, and notes answers that depend on other
placements."""

from __future__ import annotations

from kornel.core.domain.ask_places import AskMove, AskPlace
from kornel.core.model.allocations import Allocation
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.state.asks import moves
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission, inquiries
from kornel.core.state.waiting.places import move_ask, resume_waiting, wait_in_line
from kornel.core.state.waiting.rooms import end_turn


def learn_dependence(state: PartitionState, ask: Allocation) -> None:
    """Makes questions about *ask* take turns from now on, because the shim said that it depends on other placements."""
    if not ask.dependent:
        ask.dependent = True
        if ask.group is not None:
            moves.regroup_ask(state, ask)


def cancel_question(state: PartitionState, ask: Allocation) -> None:
    """Cancels all open questions about *ask*, which is an ask like any other again."""
    if ask.inquiry is not None:
        inquiries.forget_inquiry(state, ask.inquiry)
        if ask.proposed_placeholder is not None:
            withdraw_pair(state, ask)
        ask.inquiry = None
        end_turn(ask.queue, ask)
    if ask.place is AskPlace.HELD:
        vetting = state.gangs.vetting.get(unit_of(ask))
        if vetting is not None and ask in vetting.nodes:
            call_off_vetting(state, unit_of(ask))
            return
        moves.end_hold(state, ask)
        wait_again(state, ask)
    elif ask.place is AskPlace.REFUSED:
        move_ask(state, ask, AskMove.FORGIVE)
        if ask.reservation is None:
            wait_in_line(state, ask)
        else:
            move_ask(state, ask, AskMove.RESERVE)


def call_off_vetting(state: PartitionState, unit_id: UnitId) -> None:
    """Cancels the questions about the gang *unit_id*. Its members are no longer held, and all wait again."""
    vetting = state.gangs.vetting.pop(unit_id)
    for member in vetting.nodes:
        if member.inquiry is not None:
            inquiries.forget_inquiry(state, member.inquiry)
            member.inquiry = None
        moves.end_hold(state, member)
    for member in vetting.nodes:
        wait_again(state, member)


def wait_again(state: PartitionState, ask: Allocation) -> None:
    """Puts *ask* back where it waited before it was held."""
    resume_waiting(state, ask)
    admission.note_allocating_no_more(state, ask.application)


def withdraw_pair(state: PartitionState, ask: Allocation) -> None:
    """Cancels the open question whether *ask* may take the place of a placeholder, and frees both."""
    if ask.inquiry is not None:
        inquiries.forget_inquiry(state, ask.inquiry)
    part_pair(ask)
    look_for_pairs(state, ask)


def part_pair(ask: Allocation) -> Allocation:
    """Ends the question about *ask* and the placeholder that it was to replace. Returns the placeholder."""
    placeholder = ask.proposed_placeholder
    assert placeholder is not None, "a question about a pair is open only while it is one"
    ask.proposed_placeholder = ask.inquiry = placeholder.proposed_by = None
    return placeholder


def look_for_pairs(state: PartitionState, ask: Allocation) -> None:
    """Makes the next cycle look for placeholders that asks of the application of *ask* can replace, in all of its task
    groups."""
    for task_group in ask.application.task_groups.values():
        state.note_pairs(ask.application, task_group)
