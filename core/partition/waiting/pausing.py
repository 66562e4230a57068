"""Leaves nodes out for an ask for a while after the shim refused them or could not start the ask there.

An ask that was refused on every node with room pauses before the same nodes are tried again. The pause doubles with
every refusal in a row. At its end, the ask is tried again wherever it waits; another node with room ends the pause
early.

A node on which the shim could not start an ask (``SCHEDULING_FAILED_ON_RM``) is left out for this ask alone, so that
others are tried first. That pause doubles with every failure there, and ends when the node changes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kornel.core.domain.ask_places import AskMove, AskPlace
from kornel.core.model.allocations import NEVER_FAILED, Allocation, StartFailure
from kornel.core.model.nodes import Node
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.failing import note_failure
from kornel.core.partition.waiting.places import move_ask, resume_waiting
from kornel.core.partition.waiting.rooms import activate_group, look_again

PAUSE_NS: Final = 10**9
LONGEST_PAUSE_NS: Final = 15 * 10**9
LONGEST_START_PAUSE_NS: Final = 600 * 10**9

COULD_NOT_START: Final[str] = "could not be started there"
"""The reason kept for a node on which the shim could not start the ask."""


def pause_ask(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Makes sure that the refusals of *ask* are dropped after a while; a pause under way goes on."""
    refused = ask.refused or {}
    if ask.pause_until_ns or all(reason is COULD_NOT_START for reason in refused.values()):
        return  # A node that failed is tried again when its own pause ends.
    ask.refusals += 1
    # The shift is bounded because asks may be refused for ever, and the number would grow with every refusal.
    _end_at(state, ask, now_ns + min(PAUSE_NS << min(ask.refusals - 1, 10), LONGEST_PAUSE_NS))


def forgive_refusals(state: PartitionState, ask: Allocation) -> None:
    """Drops the refusals of *ask*, except for nodes where it failed to start lately, and tries it again wherever it
    waits."""
    failed = {node_id: reason for node_id, reason in (ask.refused or {}).items() if reason is COULD_NOT_START}
    ask.refused = failed or None
    ask.pause_until_ns = 0
    _try_again(state, ask)


def avoid_node(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Leaves *node* out for a while for *ask*, which is an ask again because the shim could not start it there."""
    before = ask.failed_on.get(node.node_id)
    times = 1 if before is None else before.times + 1
    until_ns = now_ns + min(PAUSE_NS << min(times - 1, 20), LONGEST_START_PAUSE_NS)
    # All asks that never failed share one empty mapping, which must stay empty.
    if not ask.failed_on:
        ask.failed_on = {}
    ask.failed_on[node.node_id] = StartFailure(times, until_ns)
    state.failed_starts.setdefault(node.node_id, {})[ask] = None
    # Being placed in between cleared what was refused; the other failures may still count.
    failed = [node_id for node_id, failure in ask.failed_on.items() if failure.until_ns > now_ns]
    ask.refused = {**(ask.refused or {}), **dict.fromkeys(failed, COULD_NOT_START)}
    note_failure(ask, f"{node.node_id}: {COULD_NOT_START}", now_ns)
    state.run_at(until_ns, partial(_end_start_pause, state, ask, node.node_id, until_ns))


def node_changed(state: PartitionState, node_id: str) -> None:
    """Allows a node again that has grown, shrunk, opened, closed or left, because asks that could not be started there
    may start now."""
    for ask in state.failed_starts.pop(node_id, {}):
        failures = {other: failure for other, failure in ask.failed_on.items() if other != node_id}
        ask.failed_on = failures or NEVER_FAILED
        _allow_node(state, ask, node_id)


def forget_failures(state: PartitionState, ask: Allocation) -> None:
    """Removes the records of nodes where *ask*, which is gone, could not be started."""
    for node_id in ask.failed_on:
        known = state.failed_starts[node_id]
        del known[ask]
        if not known:
            del state.failed_starts[node_id]
    ask.failed_on = NEVER_FAILED


def _end_start_pause(state: PartitionState, ask: Allocation, node_id: str, until_ns: int, _now_ns: int) -> None:
    failure = ask.failed_on.get(node_id)
    # Timers are never cancelled: this one counts only if the end of the pause has not been moved since.
    if failure is not None and failure.until_ns == until_ns:
        _allow_node(state, ask, node_id)


def _allow_node(state: PartitionState, ask: Allocation, node_id: str) -> None:
    """Allows a node again that was left out for *ask* because of a failed start."""
    refused = ask.refused
    if not ask.pending or refused is None or refused.get(node_id) is not COULD_NOT_START:
        return
    del refused[node_id]
    ask.refused = refused or None
    if ask.inquiry is None:
        _try_again(state, ask)


def _try_again(state: PartitionState, ask: Allocation) -> None:
    if ask.place is AskPlace.REFUSED:
        move_ask(state, ask, AskMove.FORGIVE)
        resume_waiting(state, ask)
    elif ask.reservation is not None:
        look_again(state, ask.reservation)
    elif ask.group is not None and ask.group.is_unit:
        activate_group(ask.group)
    elif ask.place is AskPlace.POOLED:
        state.note_pairs(ask.application, ask.application.task_groups[ask.spec.task_group])


def _end_at(state: PartitionState, ask: Allocation, until_ns: int) -> None:
    ask.pause_until_ns = until_ns
    state.run_at(until_ns, partial(_end_pause, state, ask, until_ns))


def _end_pause(state: PartitionState, ask: Allocation, until_ns: int, now_ns: int) -> None:
    # A timer whose time was moved is not cancelled. In the meantime, the ask may have been placed or removed, and its
    # key given to another ask.
    if ask.pause_until_ns != until_ns or not ask.pending or state.requests.get(ask.key) is not ask:
        return
    if ask.inquiry is not None:  # The refusals may still be needed for the question that is open now.
        _end_at(state, ask, now_ns + PAUSE_NS)
    else:
        forgive_refusals(state, ask)
