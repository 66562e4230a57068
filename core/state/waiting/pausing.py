"""Leaves a node out for an ask after the shim has said no, at whatever stage: when the ask was to be placed there, when
victims were to leave for it there, or when it was to start there (preemption.md B.6, G.4).

The node is left out until it or the ask is another one, for at least 15 s and at most ten minutes. What an ask that
depends on other placements hears changes with them: where something has left the node since, or another such ask was
placed or has ended anywhere, the pause is a second at first, and doubles with each further no there. A start that
failed and an answer that did not come may be due to chance, so those pauses begin with a second, too. Afterwards the
node is tried last for this ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.model.allocations import NONE_REFUSED, Allocation, NodeRefusal
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.failing import note_failure
from kornel.core.state.waiting.inquiries import NO_ANSWER
from kornel.core.state.waiting.places import offer_attempt, resume_refused
from kornel.core.state.waiting.rooms import activate_group, look_again

PAUSE_NS: Final = 10**9
LONGEST_SILENCE_NS: Final = 15 * 10**9
LEAST_NS: Final = 15 * 10**9
"""The least time for which a node is left out after a no, and the time between two looks at whether it has changed."""
LONGEST_NS: Final = 600 * 10**9

COULD_NOT_START: Final[str] = "could not be started there"
"""The reason kept for a node on which the shim could not start the ask."""


def leave_out(
    state: PartitionState,
    ask: Allocation,
    asked: Iterable[str],
    refused: Mapping[str, str],
    now_ns: int,
    *,
    logged: bool = True,
    moves: int | None = None,
) -> bool:
    """Leaves those of the nodes *asked* out for *ask* that the shim *refused*, each for a reason, which is kept in the
    failure log if it is to be *logged*. Returns whether there are any.

    *moves*: the dependent placements and ends before the shim was asked, if others may have come before its answer."""
    if state.requests.get(ask.key) is not ask:
        return False  # It was withdrawn while the shim was asked.
    named = {node_id: refused[node_id] for node_id in asked if node_id in refused}
    for node_id, reason in named.items():
        _note_refusal(state, ask, node_id, reason, now_ns, moves)
    for reason in dict.fromkeys(named.values()) if logged else ():
        note_failure(ask, reason, now_ns)
    _look_in_time(state, ask, now_ns)
    return bool(named)


def note_failed_start(state: PartitionState, ask: Allocation, node: Node, now_ns: int) -> None:
    """Leaves *node* out for *ask*, which is an ask again because the shim could not start it there."""
    # Being placed in between ended the pauses elsewhere, but the other failures may still count.
    recent = {node_id: refusal for node_id, refusal in ask.tried_last.items() if refusal.until_ns > now_ns}
    _end_some(ask, ())
    ask.refused = {**(ask.refused or {}), **recent}
    _note_refusal(state, ask, node.node_id, COULD_NOT_START, now_ns)
    note_failure(ask, f"{node.node_id}: {COULD_NOT_START}", now_ns)
    _look_in_time(state, ask, now_ns)


def node_changed(state: PartitionState, node: Node) -> None:
    """Lets asks that wait because they were refused on *node* try again if that is time, because the node has grown,
    shrunk, opened, closed or left."""
    node.changes += 1
    for rooms in list(state.refused.values()):
        for room in [room for nodes, room in rooms.items() if node.node_id in nodes]:
            for ask in list(room):
                allow_nodes(state, ask, state.callbacks.now_ns)


def allow_nodes(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Ends the refusals of *ask* that are over at *now_ns*, and tries it again if there are any."""
    ended = [
        node_id
        for node_id, refusal in (ask.refused or {}).items()
        if now_ns >= refusal.until_ns
        or state.nodes.get(node_id) is not refusal.node
        or (now_ns >= refusal.least_ns and not _is_same(refusal))
        or (ask.dependent and _may_differ_by_others(state, refusal, now_ns))
    ]
    if ended:
        _end_some(ask, ended)
        # An attempt for a gang is noted with its first member.
        unit = ask.group if ask.group is not None and ask.group.is_unit else None
        for record in state.records.values():
            record.forget_ask(ask if unit is None else unit.first_ask())
        _try_again(state, ask)


def forgive_refusals(state: PartitionState, ask: Allocation) -> None:
    """Drops the refusals of *ask*, except for nodes where it failed to start, and tries it again wherever it waits."""
    failed = {node_id: refusal for node_id, refusal in (ask.refused or {}).items() if refusal.of_start}
    ask.refused = failed or None
    ask.tried_last = NONE_REFUSED
    _try_again(state, ask)


def _note_refusal(
    state: PartitionState, ask: Allocation, node_id: str, reason: str, now_ns: int, moves: int | None = None
) -> None:
    refused = ask.refused = ask.refused or {}
    before = refused.get(node_id) or ask.tried_last.get(node_id)
    of_start = reason is COULD_NOT_START
    again = before is not None and before.reason == reason and (not of_start or _is_same(before))
    times = before.times + 1 if before is not None and again else 1
    least_ns, until_ns = now_ns + LEAST_NS, now_ns + LONGEST_NS
    if of_start or reason == NO_ANSWER:
        # The shift is bounded because failures may go on for ever, and the number would grow with each of them.
        longest_ns = LONGEST_NS if of_start else LONGEST_SILENCE_NS
        least_ns, until_ns = now_ns, now_ns + min(PAUSE_NS << min(times - 1, 20), longest_ns)
    node = state.nodes.get(node_id)
    changes = _count_changes(node, of_start=of_start)
    moves = state.callbacks.dependent_moves if moves is None else moves
    refused[node_id] = NodeRefusal(reason, times, of_start, least_ns, until_ns, node, changes, moves)
    _end_some(ask, ())


def _may_differ_by_others(state: PartitionState, refusal: NodeRefusal, now_ns: int) -> bool:
    """Tells whether it is time to ask again because of what was placed elsewhere, or has left a node. The pauses grow,
    so that many who wait do not keep the others of the line waiting."""
    if refusal.of_start or (_is_same(refusal) and refusal.moves == state.callbacks.dependent_moves):
        return False
    return now_ns >= _first_look_ns(refusal)


def _first_look_ns(refusal: NodeRefusal) -> int:
    """Returns when a dependent ask may be asked about again first."""
    return refusal.least_ns - LEAST_NS + (PAUSE_NS << min(refusal.times - 1, 10))


def _is_same(refusal: NodeRefusal) -> bool:
    """Tells whether the node of *refusal* is still as it was then."""
    return _count_changes(refusal.node, of_start=refusal.of_start) == refusal.changes


def _count_changes(node: Node | None, *, of_start: bool) -> int:
    """Returns the number of changes of *node* after which the shim may answer otherwise. What has left it may have been
    what the shim refused the ask for, but kept no task from starting."""
    if node is None:
        return 0
    return node.changes if of_start else node.changes + node.departures


def _end_some(ask: Allocation, ended: Iterable[str]) -> None:
    """Has the nodes *ended* tried last for *ask* instead of left out; no node is both."""
    refused = ask.refused or {}
    last = {node_id: refusal for node_id, refusal in ask.tried_last.items() if node_id not in refused}
    for node_id in ended:
        last[node_id] = refused.pop(node_id)
    ask.tried_last = last or NONE_REFUSED
    ask.refused = refused or None


def _try_again(state: PartitionState, ask: Allocation) -> None:
    if ask.place is AskPlace.REFUSED:
        resume_refused(state, ask)
    elif ask.reservation is not None:
        look_again(state, ask.reservation)
    elif ask.group is not None:
        activate_group(ask.group)
    elif ask.place is AskPlace.POOLED:
        state.note_pairs(ask.application, ask.application.task_groups[ask.spec.task_group])
    if ask.spec.allow_preempt_other and not (ask.triggered or ask.spec.required_node):
        offer_attempt(state, ask)


def _look_in_time(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Makes sure that somebody looks at the refusals of *ask* when the first of them may be over."""
    looks = [_next_look_ns(refusal, now_ns, dependent=ask.dependent) for refusal in (ask.refused or {}).values()]
    when_ns = min(looks, default=0)
    if when_ns and (not now_ns < ask.pause_until_ns <= when_ns):
        ask.pause_until_ns = when_ns
        state.run_at(when_ns, partial(_look_at_refusals, state, ask, when_ns))


def _next_look_ns(refusal: NodeRefusal, now_ns: int, *, dependent: bool) -> int:
    """Returns when to look at *refusal* again: for a dependent ask after as long again as has passed since the no."""
    first_ns = min(_first_look_ns(refusal), refusal.least_ns) if dependent else refusal.least_ns
    if now_ns < first_ns:
        return first_ns
    passed_ns = now_ns - refusal.least_ns + LEAST_NS if dependent else LEAST_NS
    return min(refusal.until_ns, now_ns + min(max(passed_ns, PAUSE_NS), LEAST_NS))


def _look_at_refusals(state: PartitionState, ask: Allocation, when_ns: int, now_ns: int) -> None:
    # A timer whose time was moved is not cancelled. In the meantime, the ask may have been placed or removed, and its
    # key given to another ask.
    if ask.pause_until_ns != when_ns or not ask.pending or state.requests.get(ask.key) is not ask:
        return
    ask.pause_until_ns = 0
    if ask.inquiry is not None:  # The refusals may still be needed for the question that is open now.
        ask.pause_until_ns = now_ns + PAUSE_NS
        state.run_at(ask.pause_until_ns, partial(_look_at_refusals, state, ask, ask.pause_until_ns))
        return
    allow_nodes(state, ask, now_ns)
    _look_in_time(state, ask, now_ns)
