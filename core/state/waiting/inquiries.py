"""Questions to the shim, and what waits for their answers (protocol.md 13).

The engine never waits: it asks, goes on with other asks, and decides when the answer comes in as a command. If no
answer comes in time, all nodes of the question count as refused. While no shim is attached for callbacks, nothing is
asked and everything is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from heapq import heappop, heappush
from typing import Final

from kornel.core.domain.effects import PredicatesAsked, PreemptionPredicatesAsked
from kornel.core.model.allocations import Allocation
from kornel.core.model.callbacks import Callbacks, Decide, DecideVictims, Inquiry
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import dependence

NO_ANSWER: Final = "the resource manager did not answer in time"
UNANSWERED: Final = -1
"""Stands for the index of the last victim when no answer came in time."""
REFUSED_WITH_VICTIMS: Final = "it would not run there if victims left"
"""The reason kept for a node that the shim refused in an answer about victims, which gives none."""


def ask_predicates(
    state: PartitionState,
    ask: Allocation,
    node_ids: tuple[str, ...],
    decide: Decide,
    drop: Callable[[], None],
    now_ns: int,
    *,
    number: int,
    allocate: bool,
) -> Inquiry:
    """Asks the shim whether *ask* may run on these nodes, as question *number*. *decide* is called with the answer,
    once, unless :func:`forget_inquiry` or *drop* is called first.

    Both are partial calls of functions that a snapshot knows by name, as timers are.
    """
    inquiry = Inquiry(number, state.name, ask, node_ids, drop, decide=decide)
    return _put_question(state, inquiry, now_ns, allocate=allocate, dependent=False)


def line_up(
    state: PartitionState,
    ask: Allocation,
    offer: Callable[[], tuple[str, ...]],
    decide: Decide,
    drop: Callable[[], None],
    now_ns: int,
    *,
    number: int,
    allocate: bool,
) -> None:
    """Asks question *number* about *ask*, which depends on other placements, when its turn comes.

    *offer* then names the nodes; if there are none, the question is dropped. Otherwise this works like
    :func:`ask_predicates`.
    """
    inquiry = Inquiry(number, state.name, ask, (), drop, decide=decide)
    dependence.line_up(state.callbacks, inquiry, partial(_put_in_turn, state, inquiry, offer, allocate), now_ns)


def _put_in_turn(
    state: PartitionState,
    inquiry: Inquiry,
    offer: Callable[[], tuple[str, ...]],
    allocate: bool,
    now_ns: int,
) -> None:
    inquiry.node_ids = offer()
    if inquiry.node_ids:
        _put_question(state, inquiry, now_ns, allocate=allocate, dependent=True)
    else:
        inquiry.drop()


def _put_question(state: PartitionState, inquiry: Inquiry, now_ns: int, *, allocate: bool, dependent: bool) -> Inquiry:
    ask = inquiry.ask
    application_id = ask.application.application_id
    awaited = dependence.find_awaited(state.callbacks, now_ns) if dependent else None
    state.effects.append(
        PredicatesAsked(
            inquiry.number, state.name, application_id, ask.spec.key, inquiry.node_ids, allocate, dependent, awaited
        )
    )
    inquiry.judged_after = dependence.count_judged(state.callbacks, now_ns, awaited)
    inquiry.moves = state.callbacks.dependent_moves
    inquiry.awaited = None if awaited is None else state.callbacks.unsettled
    return _open(state, inquiry, now_ns)


def ask_preemption(
    state: PartitionState,
    ask: Allocation,
    node_id: str,
    victims: tuple[str, ...],
    start: int,
    decide: DecideVictims,
    drop: Callable[[], None],
    now_ns: int,
) -> Inquiry:
    """Asks the shim whether *ask* would run on the node if victims left, besides those that leave already, which come
    first in the question. *decide* hears of *victims* alone."""
    going = [task for task in state.nodes[node_id].allocations.values() if task.preempted and task not in state.stuck]
    leaving = [task.spec.key for task in going if task.spec.key not in victims]
    if leaving:
        victims, start = (*leaving, *victims), start + len(leaving)
        decide = partial(_decide_beside, decide, len(leaving))
    number = state.callbacks.next_number()
    application_id = ask.application.application_id
    state.effects.append(
        PreemptionPredicatesAsked(number, state.name, application_id, ask.spec.key, node_id, victims, start)
    )
    return _open(state, Inquiry(number, state.name, ask, (node_id,), drop, decide_victims=decide), now_ns)


def _decide_beside(decide: DecideVictims, leaving: int, last: int | None, now_ns: int) -> None:
    """Passes the shim's answer *last* on, as if those who leave already, *leaving* in number, had not been named."""
    if last is not None and last != UNANSWERED:
        last = last - leaving if last >= leaving else None
    decide(last, now_ns)


def _open(state: PartitionState, inquiry: Inquiry, now_ns: int) -> Inquiry:
    callbacks = state.callbacks
    callbacks.open[inquiry.number] = inquiry
    heappush(callbacks.deadlines, (now_ns + callbacks.timeout_ns, inquiry.number))
    return inquiry


def describe_refusal(last: int | None) -> str:
    """Returns the reason to be kept for the shim's answer *last* that victims would not make room."""
    return NO_ANSWER if last == UNANSWERED else REFUSED_WITH_VICTIMS


def is_open(ask: Allocation, number: int) -> bool:
    """Tells whether the question *number* about *ask* still waits for its answer.

    The functions that apply the answer know the number and not the question, which refers to them: otherwise every
    question would leave a reference cycle behind.
    """
    return ask.inquiry is not None and ask.inquiry.number == number


def forget_inquiry(state: PartitionState, inquiry: Inquiry) -> None:
    """Drops *inquiry*, whose answer does not matter any more."""
    state.callbacks.open.pop(inquiry.number, None)


def predicates_answered(callbacks: Callbacks, number: int, refused: Mapping[str, str], now_ns: int) -> None:
    """Applies the shim's answer, which is no for the nodes in *refused* and yes for the others; an unknown number is
    ignored."""
    inquiry = callbacks.open.get(number)
    if inquiry is not None and inquiry.decide is not None:
        # The question is closed before its answer is applied, because that may ask the next question, which needs a
        # place among the open ones.
        del callbacks.open[number]
        dependence.note_answered(callbacks, inquiry, now_ns)
        inquiry.decide(refused, now_ns)


def preemption_answered(callbacks: Callbacks, number: int, last: int | None, now_ns: int) -> None:
    """Applies the shim's answer that the ask would run once the victim with index *last* is gone; ``None``: never."""
    inquiry = callbacks.open.get(number)
    if inquiry is not None and inquiry.decide_victims is not None:
        del callbacks.open[number]
        inquiry.decide_victims(last, now_ns)


def forget_partition(callbacks: Callbacks, partition: str) -> None:
    """Drops all questions about *partition*, which is gone."""
    dependence.forget_partition(callbacks, partition)
    for number in [number for number, inquiry in callbacks.open.items() if inquiry.partition == partition]:
        del callbacks.open[number]


def drop_all(callbacks: Callbacks) -> None:
    """Drops all open questions as if they had never been asked, since they will never be answered."""
    dependence.drop_line(callbacks)
    while callbacks.open:
        _, inquiry = callbacks.open.popitem()
        inquiry.drop()


def expire_inquiries(callbacks: Callbacks, now_ns: int) -> None:
    """Stops waiting for answers that are overdue."""
    deadlines = callbacks.deadlines
    while deadlines and deadlines[0][0] <= now_ns:
        inquiry = callbacks.open.pop(heappop(deadlines)[1], None)
        if inquiry is None:
            continue
        if inquiry.decide is not None:
            inquiry.decide(dict.fromkeys(inquiry.node_ids, NO_ANSWER), now_ns)
        elif inquiry.decide_victims is not None:
            inquiry.decide_victims(UNANSWERED, now_ns)


def next_deadline_ns(callbacks: Callbacks) -> int | None:
    """Returns when the oldest open question is overdue; ``None``: nothing is open."""
    deadlines = callbacks.deadlines
    while deadlines and deadlines[0][1] not in callbacks.open:
        heappop(deadlines)
    return deadlines[0][0] if deadlines else None
