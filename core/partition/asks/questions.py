"""Questions about asks that the shim has not answered: taken back, with what waits for the answer."""

from __future__ import annotations

from core.model.allocations import Allocation
from core.partition.asks import moves
from core.partition.state import PartitionState
from core.partition.waiting import admission, inquiries, rooms


def cancel_question(state: PartitionState, ask: Allocation) -> None:
    """Whatever was asked about *ask* does not matter any more: it is an ask like any other again."""
    if ask.inquiry is not None:
        inquiries.forget(state, ask.inquiry)
        if ask.proposed_placeholder is not None:
            withdraw_pair(state, ask)
        ask.inquiry = None
    if ask.held_on is not None:
        moves.end_hold(state, ask)
        wait_again(state, ask)
    elif rooms.leave_refused(state, ask) and ask.reservation is None:
        rooms.enqueue(state, ask)


def wait_again(state: PartitionState, ask: Allocation) -> None:
    """Back to where *ask* waited before it was held."""
    if ask.reservation is not None:
        rooms.look_again(state, ask.reservation)
    else:
        rooms.enqueue(state, ask)
    admission.allocating_no_more(state, ask.application)


def withdraw_pair(state: PartitionState, ask: Allocation) -> None:
    """The answer does not matter any more: *ask*, which has asked, and its placeholder are free for others."""
    if ask.inquiry is not None:
        inquiries.forget(state, ask.inquiry)
    part_pair(ask)
    look_for_pairs(state, ask)


def part_pair(ask: Allocation) -> Allocation:
    """Ends the question about *ask* and the placeholder that it was to replace, which is returned."""
    placeholder = ask.proposed_placeholder
    assert placeholder is not None, "a question about a pair is open only while it is one"
    ask.proposed_placeholder = ask.inquiry = placeholder.proposed_by = None
    return placeholder


def look_for_pairs(state: PartitionState, ask: Allocation) -> None:
    """Has the next cycle look for pairs in all task groups of the application of *ask*."""
    for task_group in ask.application.task_groups.values():
        state.note_pairs(ask.application, task_group)
