"""Asks the shim about asks whose answer depends on other placements: one at a time, once earlier placements are in
place.

Thousands of questions to the shim are open at once, so one answer cannot take the others into account. That does no
harm to an ask whose nodes depend only on its own properties. If they depend on what else runs there (anti-affinity,
host ports, spread), two positive answers may be right each by itself and wrong together. Such asks stand in *line*:
each is held on a node like any ask about which the shim is asked, but its question is sent only when no other question
of the line is open and the shim has the last placement in place. Until then that placement is *unsettled*. A shim that
awaits placements itself is asked the next question at once, with the name of the unsettled placement, which saves a
round trip for each one.

Nobody who comes later in the order of its leaf passes an ask that waits only for its turn. As long as an ask of a leaf
is in line, is being judged, or found the line full (``Queue.turns``), the leaf is set back when somebody behind it is
tried and finds a node, and of those in line, the first of a leaf has its first turn. A shim that does not react within
its timeout holds nobody up: until it does, everybody passes.

The shim may also say in an answer that the answer depends on placements. It counts if all placements were in place when
the shim judged, which the core knows from the number of placements made before it sent the question; otherwise the ask
joins the line.

All partitions of a manager share one line, because the shim's rules may concern several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.commands import PlacementKey
from kornel.core.domain.effects import PlacementVoid
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.callbacks import UNSETTLED, Callbacks, Inquiry, LinedUp
from kornel.core.policies.application_order import ask_turn_key
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import bring_forward
from kornel.core.state.waiting.waking import wake_for_turn

LONGEST_LINE: Final = 64
"""The most asks that hold room while they wait for their turn; others wait without room, which stays open to all."""

REPLACEMENT_NS: Final = 60 * 10**9
"""The longest time that other questions wait for a placeholder to end that a dependent ask replaces."""

_STANDS: Final = (AskPlace.PLACED, AskPlace.PREEMPTED, AskPlace.RELEASED, AskPlace.REPLACING)


def is_line_full(callbacks: Callbacks) -> bool:
    """Tells whether no further ask may hold room while it waits for its turn."""
    return len(callbacks.line) >= LONGEST_LINE


def take_place(callbacks: Callbacks, ask: Allocation) -> bool:
    """Takes the last of its leaf out of the line if *ask* comes before it. Returns whether there is one."""
    turns = ask.queue.turns
    lined = [each for each in callbacks.line if each.inquiry.ask in turns]
    last = max(lined, key=lambda each: turns[each.inquiry.ask], default=None)
    if last is None or turns[last.inquiry.ask] < ask_turn_key(ask):
        return False
    callbacks.line.remove(last)
    last.inquiry.drop()
    return True


def make_way(callbacks: Callbacks, ask: Allocation) -> bool:
    """Takes those of its leaf out of the line who stand behind *ask*, whose turn it is, and hold room where it may run.
    Returns whether there are any."""
    turns, refused = ask.queue.turns, ask.refused or ()
    if ask not in turns:
        return False
    holders = [(lined, lined.inquiry.ask.held_on) for lined in callbacks.line if lined.inquiry.ask in turns]
    leaving = [
        lined
        for lined, node in holders
        if node is not None and node.node_id not in refused and turns[lined.inquiry.ask] > turns[ask]
    ]
    for lined in leaving:
        callbacks.line.remove(lined)
        lined.inquiry.drop()
    return bool(leaving)


def find_first_judged(callbacks: Callbacks, ask: Allocation) -> Allocation | None:
    """Returns the first in its leaf of those whom the shim has to judge before *ask* is tried; ``None``: there is none.
    One who depends on other placements, too, joins the line behind those in it."""
    turns = ask.queue.turns
    if callbacks.silent or not turns:
        return None
    judged = [waiter for waiter in turns if isinstance(waiter, AskGroup) or not ask.dependent]
    first = min(judged, key=turns.__getitem__, default=None)
    if first is None or turns[first] >= ask_turn_key(ask):
        return None
    return first.first_ask() if isinstance(first, AskGroup) else first


def let_others_pass(callbacks: Callbacks, states: Iterable[PartitionState], now_ns: int) -> None:
    """Tries those again who stand behind others in their leaf if the shim has not reacted in time."""
    if callbacks.silent or not _is_owed(callbacks) or now_ns < callbacks.owed_by_ns:
        return
    callbacks.silent = True
    leaves = dict.fromkeys(lined.inquiry.ask.queue for lined in callbacks.line)
    if callbacks.dependent_asked in callbacks.open:
        leaves[callbacks.open[callbacks.dependent_asked].ask.queue] = None
    for state in states:
        leaves |= {waiter.application.queue: None for waiter in state.waiting_for_turn if isinstance(waiter, AskGroup)}
    for leaf in leaves:
        if leaf.set_back:
            bring_forward(leaf)


def _is_owed(callbacks: Callbacks) -> bool:
    """Tells whether somebody waits until the shim has judged it."""
    asked = callbacks.dependent_asked in callbacks.open
    return asked or any(inquiry.ask.inquiry is inquiry for inquiry, _ in callbacks.line)


def _note_reaction(callbacks: Callbacks, now_ns: int) -> None:
    """Gives the shim its timeout for the next reaction, because it has just reacted or did not have to."""
    callbacks.silent = False
    callbacks.owed_by_ns = now_ns + callbacks.timeout_ns


def line_up(callbacks: Callbacks, inquiry: Inquiry, put: Callable[[int], None], now_ns: int) -> None:
    """Adds *inquiry* to the line; *put* asks it in its turn."""
    if not _is_owed(callbacks):
        _note_reaction(callbacks, now_ns)
    inquiry.ask.inquiry = inquiry
    callbacks.line.append(LinedUp(inquiry, put))


def ask_next(callbacks: Callbacks, now_ns: int) -> bool:
    """Asks the next question of the line, if its turn has come. Returns whether it was dropped instead, so that its ask
    has to be tried again before the one behind it has its turn."""
    line = callbacks.line
    while _is_turn(callbacks, now_ns):
        lined = _next_in_line(callbacks)
        line.remove(lined)
        inquiry, put = lined
        if inquiry.ask.inquiry is inquiry:  # Otherwise the ask was withdrawn or changed.
            callbacks.dependent_asked = inquiry.number
            put(now_ns)
            if inquiry.number not in callbacks.open:
                return True
    return False


def _next_in_line(callbacks: Callbacks) -> LinedUp:
    """Returns the question whose turn is next: in the leaf of the one that has waited longest, the first in order."""
    longest = callbacks.line[0]
    turns = longest.inquiry.ask.queue.turns
    if callbacks.silent or not turns:
        return longest
    of_leaf = (lined for lined in callbacks.line if lined is longest or lined.inquiry.ask in turns)
    return min(of_leaf, key=lambda lined: turns.get(lined.inquiry.ask) or ask_turn_key(lined.inquiry.ask))


def _is_turn(callbacks: Callbacks, now_ns: int) -> bool:
    """Tells whether the next question of the line may be asked at once."""
    if not callbacks.line or callbacks.dependent_asked in callbacks.open:
        return False
    return is_settled(callbacks, now_ns) or _may_be_awaited(callbacks)


def _may_be_awaited(callbacks: Callbacks) -> bool:
    """Tells whether the shim can wait for the unsettled placement by itself, because it hears of it at once.

    It hears of an ask that replaces a placeholder only once the placeholder has left, which may be too late for the
    shim's answer.
    """
    ask = callbacks.unsettled
    return callbacks.awaits_placements and ask is not None and ask.place is AskPlace.PLACED


def is_settled(callbacks: Callbacks, now_ns: int) -> bool:
    """Tells whether the shim has the last dependent placement in place, as far as the core can know at *now_ns*."""
    ask = callbacks.unsettled
    if ask is None:
        return True
    if ask.place is AskPlace.PLACED and callbacks.settled_by_ns > now_ns + callbacks.timeout_ns:
        # The ask had to wait for a placeholder to end, and the shim learns of the placement only now.
        callbacks.settled_by_ns = now_ns + callbacks.timeout_ns
    if ask.place in _STANDS and now_ns < callbacks.settled_by_ns:
        return False
    callbacks.unsettled = None
    return True


def find_awaited(callbacks: Callbacks, now_ns: int) -> PlacementKey | None:
    """Returns the placement that the shim has to await before it judges a question of the line sent at *now_ns*;
    ``None``: all are in place."""
    ask = callbacks.unsettled
    if is_settled(callbacks, now_ns) or ask is None or ask.node is None:
        return None
    return PlacementKey(callbacks.unsettled_in, ask.spec.key, ask.node.node_id)


def count_judged(callbacks: Callbacks, now_ns: int, awaited: PlacementKey | None = None) -> int:
    """Returns the number of dependent placements that the shim has in place when it judges a question that is sent at
    *now_ns* and makes it wait for *awaited*."""
    is_complete = awaited is not None or is_settled(callbacks, now_ns)
    return callbacks.dependent_placements if is_complete else UNSETTLED


def may_act_upon(callbacks: Callbacks, inquiry: Inquiry) -> bool:
    """Tells whether every dependent placement was in place when the shim agreed to *inquiry*."""
    return inquiry.judged_after == callbacks.dependent_placements


def note_placement(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """Makes all questions of the line wait until the shim has *ask*, which has just been placed, in place."""
    callbacks = state.callbacks
    callbacks.dependent_placements += 1
    callbacks.dependent_moves += 1
    callbacks.unsettled, callbacks.unsettled_in = ask, state.name
    wait_ns = REPLACEMENT_NS if ask.place is AskPlace.REPLACING else callbacks.timeout_ns
    callbacks.settled_by_ns = now_ns + wait_ns


def note_acknowledged(callbacks: Callbacks, state: PartitionState, key: str, node_id: str = "", *, late: bool) -> None:
    """Notes that the shim has *key* in place; if *key* runs nowhere, tells the shim, which judges other asks by it.

    *node_id*: the node on which the shim has it; empty: not given. If the ask is on another node by now, it stays
    unsettled: the shim will learn of that, and acknowledge it then.
    *late*: the same message says that an ask depends on placements, in answer to a question that is no longer open.
    """
    ask = callbacks.unsettled
    if ask is not None and ask.spec.key == key and callbacks.unsettled_in == state.name:
        if not node_id or ask.node is None or ask.node.node_id == node_id:
            callbacks.unsettled = None
            _note_reaction(callbacks, callbacks.now_ns)
        return
    pending = state.requests.get(key)
    if pending is None or (pending.place not in _STANDS and (pending.dependent or late)):
        state.effects.append(PlacementVoid(state.name, key))


def note_answered(callbacks: Callbacks, inquiry: Inquiry, now_ns: int) -> None:
    """Notes that the shim, which has answered *inquiry*, has the placement in place for which it had to wait."""
    if inquiry.number == callbacks.dependent_asked:
        _note_reaction(callbacks, now_ns)
    if inquiry.awaited is not None and inquiry.awaited is callbacks.unsettled:
        callbacks.unsettled = None


def drop_line(callbacks: Callbacks) -> None:
    """Drops the questions of the line as if they had never been asked, because no shim will answer them."""
    line = list(callbacks.line)
    # The last placement stays unsettled, because the same shim may answer from now on over another stream.
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
    """Lets asks that wait without room join the line once it is at most half full."""
    callbacks = state.callbacks
    if not callbacks.predicates or len(callbacks.line) <= LONGEST_LINE // 2:
        wake_for_turn(state)


def next_turn_ns(callbacks: Callbacks) -> int | None:
    """Returns when the next question of the line is asked, or those behind it pass, if nothing else happens; ``None``:
    none waits for the time."""
    times = [callbacks.owed_by_ns] if _is_owed(callbacks) and not callbacks.silent else []
    if callbacks.line and callbacks.unsettled is not None and callbacks.dependent_asked not in callbacks.open:
        times.append(callbacks.settled_by_ns)
    return min(times, default=None)
