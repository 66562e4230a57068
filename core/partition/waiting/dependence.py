"""Questions about asks whose yes depends on other placements: one at a time, each with the earlier ones in place.

Questions to the shim are open by the thousand, so an answer knows nothing of the other yeses. That is no harm to an ask
whose nodes are decided by its own properties. Where they are decided by what else runs there (anti-affinity, host
ports, spread), two yeses that are right one by one are wrong together. Such asks stand in *line*: each is held on a
node like any ask that the shim is asked about, but its question goes out only when no other one of the line is open and
the shim has the last placement in place. Until then that placement is *unsettled*.

The shim may also say with an answer that it depends on placements. That answer counts if it was judged with all
placements in place, which the number of placements tells that the question was sent after; else the ask joins the line.

The line is one for all partitions of the manager, because the shim's rules may look beyond one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.effects import PlacementVoid
from kornel.core.model.allocations import Allocation
from kornel.core.model.callbacks import UNSETTLED, Callbacks, Inquiry, LinedUp
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.waking import wake_for_turn

LONGEST_LINE: Final = 64
"""The asks that may hold room while they wait for their turn; others wait without, so that their room is anybody's."""

REPLACEMENT_NS: Final = 60 * 10**9
"""The longest time for which others wait for a placeholder to leave whose place a dependent ask takes."""

_STANDS: Final = (AskPlace.PLACED, AskPlace.PREEMPTED, AskPlace.RELEASED, AskPlace.REPLACING)


def is_line_full(callbacks: Callbacks) -> bool:
    """Tells whether another ask may not hold room and wait for its turn now."""
    return len(callbacks.line) >= LONGEST_LINE


def line_up(callbacks: Callbacks, inquiry: Inquiry, put: Callable[[int], None], now_ns: int) -> None:
    """Has *inquiry* wait for its turn, in which *put* asks it; that may be at once."""
    inquiry.ask.inquiry = inquiry
    callbacks.line.append(LinedUp(inquiry, put))
    ask_next(callbacks, now_ns)


def ask_next(callbacks: Callbacks, now_ns: int) -> None:
    """Asks the next question of the line, if it is its turn."""
    line = callbacks.line
    while is_turn(callbacks, now_ns):
        inquiry, put = line.popleft()
        if inquiry.ask.inquiry is inquiry:  # Otherwise the ask was withdrawn, or changed, and is asked about anew.
            callbacks.dependent_asked = inquiry.number
            put(now_ns)


def is_turn(callbacks: Callbacks, now_ns: int) -> bool:
    """Tells whether the next question of the line may be asked at once."""
    return bool(callbacks.line) and callbacks.dependent_asked not in callbacks.open and is_settled(callbacks, now_ns)


def is_settled(callbacks: Callbacks, now_ns: int) -> bool:
    """Tells whether the shim has the last dependent placement in place, as far as can be known at *now_ns*."""
    ask = callbacks.unsettled
    if ask is None:
        return True
    if ask.place is AskPlace.PLACED and callbacks.settled_by_ns > now_ns + callbacks.timeout_ns:
        # It had to wait for a placeholder to leave, and the shim hears of it only now.
        callbacks.settled_by_ns = now_ns + callbacks.timeout_ns
    if ask.place in _STANDS and now_ns < callbacks.settled_by_ns:
        return False
    callbacks.unsettled = None
    return True


def count_judged(callbacks: Callbacks, now_ns: int) -> int:
    """Returns the number of dependent placements with which a question is judged that is sent at *now_ns*."""
    return callbacks.dependent_placements if is_settled(callbacks, now_ns) else UNSETTLED


def may_act_upon(callbacks: Callbacks, inquiry: Inquiry) -> bool:
    """Tells whether the yes to *inquiry* was judged with every dependent placement in place."""
    return inquiry.judged_after == callbacks.dependent_placements


def note_placement(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Has all questions of the line wait until the shim has *ask* in place, for which a yes was acted upon."""
    callbacks = state.callbacks
    callbacks.dependent_placements += 1
    callbacks.unsettled, callbacks.unsettled_in = ask, state.name
    wait_ns = REPLACEMENT_NS if ask.place is AskPlace.REPLACING else callbacks.timeout_ns
    callbacks.settled_by_ns = now_ns + wait_ns


def note_acknowledged(callbacks: Callbacks, state: PartitionState, key: str, node_id: str = "", *, late: bool) -> None:
    """Notes that the shim has *key* in place, or tells it that this runs nowhere, since it judges others by that.

    *node_id*: where it has it in place; empty: it does not say. What stands on another node by now is not settled: the
    shim is about to hear of that, and acknowledges it then.
    *late*: in the same breath it said that an ask depends on placements, about which nothing was asked any more.
    """
    ask = callbacks.unsettled
    if ask is not None and ask.spec.key == key and callbacks.unsettled_in == state.name:
        if not node_id or ask.node is None or ask.node.node_id == node_id:
            callbacks.unsettled = None
        return
    pending = state.requests.get(key)
    if pending is None or (pending.place not in _STANDS and (pending.dependent or late)):
        state.effects.append(PlacementVoid(state.name, key))


def drop_line(callbacks: Callbacks) -> None:
    """Drops the questions of the line as if they had been asked of nobody, since nobody will answer them."""
    line = list(callbacks.line)
    # The last placement stays unsettled: whoever answers from now on may be the same shim on another stream.
    callbacks.line.clear()
    callbacks.dependent_asked = 0
    for inquiry, _ in line:
        if inquiry.ask.inquiry is inquiry:
            inquiry.drop()


def forget_all(callbacks: Callbacks) -> None:
    """Empties the line, since the asks are gone."""
    callbacks.line.clear()
    callbacks.unsettled = None
    callbacks.dependent_asked = 0


def forget_partition(callbacks: Callbacks, partition: str) -> None:
    """Drops the questions of the line about *partition*, which is gone."""
    kept = [lined for lined in callbacks.line if lined.inquiry.partition != partition]
    callbacks.line.clear()
    callbacks.line.extend(kept)
    if callbacks.unsettled_in == partition:
        callbacks.unsettled = None


def wake_those_behind(state: PartitionState) -> None:
    """Lets those who wait without room join the line, when half of it is gone."""
    callbacks = state.callbacks
    if not callbacks.predicates or len(callbacks.line) <= LONGEST_LINE // 2:
        wake_for_turn(state)


def next_turn_ns(callbacks: Callbacks) -> int | None:
    """Returns when the next question of the line is asked if nothing happens; ``None``: none waits for time to pass."""
    if callbacks.line and callbacks.unsettled is not None and callbacks.dependent_asked not in callbacks.open:
        return callbacks.settled_by_ns
    return None
