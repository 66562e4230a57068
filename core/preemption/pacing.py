"""The limits of kinds of preemption: how much each may take within one interval of its cycle (preemption.md F4, F7).

A kind checks its limit before an attempt, and counts what it takes once that is decided. An ask that the limit holds
back is offered again when the window has moved.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.governor import governing
from kornel.core.preemption.governor.bounds import SECOND_NS
from kornel.core.preemption.plan import Refusal
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.governor_books import VICTIMS, Scope, Taken, Window
from kornel.core.state.waiting import failing
from kornel.core.state.waiting.rooms import UNSERVED, activate_group, look_again
from kornel.shared.readable_amounts import format_count, format_quantity

WAKES_PER_INTERVAL: Final = 10
"""The number of times within one interval that the asks held back are tried: the window moves with every decision in
it, and to try them each time would cost more than the attempts themselves."""
QUIET_NS: Final = 15 * SECOND_NS
"""If no ask has been held back for this time, the next one is reported again."""


def interval_window(state: PartitionState, now_ns: int) -> Window:
    """Returns what was taken within the interval that ends at *now_ns*, and changes nothing."""
    return state.governor.interval.as_of(now_ns - state.preemption.cycle_interval_ns)


def count_taken(state: PartitionState, kind: str, victims: int, served: Pairs, now_ns: int) -> None:
    """Count *victims* of *kind*, whose release is asked for so that *served* can be, for one interval. A plan without
    victims takes nothing."""
    if victims:
        state.governor.interval.add(Taken(now_ns, (Scope("interval", kind),), ((VICTIMS, victims), *served)))


def check_limit(state: PartitionState, kind: str, wanted: Pairs, now_ns: int) -> Refusal | None:
    """Returns why *kind* may not preempt now so that *wanted* is served; ``None``: it may. Changes nothing, so that
    forecasts ask it too."""
    settings, sizes, names = state.preemption, state.root.max, state.types.names
    interval_ns, window, scope = settings.cycle_interval_ns, interval_window(state, now_ns), Scope("interval", kind)
    limits = {t: sizes[t] * settings.cycle_limit for t, amount in wanted if amount > 0 and sizes.get(t, 0) > 0}
    reached = {t: limit for t, limit in limits.items() if window.count_amount(scope, t) >= limit}
    most, seconds = settings.governor.bound_of(kind).interval, interval_ns / SECOND_NS
    if reached:
        t = next(iter(reached))
        served, size = (format_quantity(names[t], amount) for amount in (window.count_amount(scope, t), sizes[t]))
        limit = f"preemption.cycle.limit is {settings.cycle_limit:g} of {size}"
        detail = f"served {served} {names[t]} within {seconds:g} s, {limit}"
    elif most and window.count_amount(scope) >= most:
        reached = {VICTIMS: most}
        detail = f"{format_count(window.count_amount(scope), 'victim')} within {seconds:g} s, the limit is {most}"
    else:
        return None
    # The limit is open again when so much has left the window that less than the limit is in it.
    excess = {t: window.count_amount(scope, t) - ceil(limit) + 1 for t, limit in reached.items()}
    at_ns = max(window.find_entry(scope, t, amount) or 0 for t, amount in excess.items())
    again_ns = max(at_ns + interval_ns, state.governor.woke_ns + interval_ns // WAKES_PER_INTERVAL)
    return Refusal(Outcome.ROUND_LIMIT, detail, again_ns)


def note_held_back(
    state: PartitionState,
    kind: str,
    ask: Allocation,
    held: Refusal,
    now_ns: int,
    waiter: AskGroup | Reservation | None = None,
) -> None:
    """Note that *kind* may not preempt for *ask*, and record the reason if it has not been recorded lately. *waiter*,
    if there is one, is offered again when the window has moved."""
    failing.note_preemption(ask, held.outcome, now_ns)
    if held.outcome is Outcome.ROUND_LIMIT:
        say_held_back(state, kind, held.detail, now_ns)
        if state.recording:
            state.events.preemption_bounded(ask, held.detail)
    if ask.outcome is not held.outcome:
        ask.outcome = held.outcome
        key, application = ask.spec.key, ask.application
        decided = PreemptionDecided(
            now_ns, state.name, kind, key, application.application_id, ask.queue.path, held.outcome, held.detail, "", ()
        )
        state.report_decision(decided)
    if waiter is not None and held.retry_ns is not None:
        state.governor.waiting.setdefault(kind, {})[waiter] = None
        _wake_at(state, held.retry_ns)


def say_held_back(state: PartitionState, kind: str, detail: str, now_ns: int) -> None:
    """Record that the limit of *kind* holds asks back, once for each time that this begins."""
    held_ns = state.governor.held_ns
    before_ns, held_ns[kind] = held_ns.get(kind), now_ns
    if before_ns is None or now_ns - before_ns > max(QUIET_NS, 2 * state.preemption.cycle_interval_ns):
        governing.record_bound(state, Outcome.ROUND_LIMIT, f"{kind}: {detail}", now_ns)


def _wake_at(state: PartitionState, when_ns: int) -> None:
    """Make sure that waiters are offered again at *when_ns* at the latest."""
    books = state.governor
    if books.wakes_ns is None or when_ns < books.wakes_ns:
        books.wakes_ns = when_ns
        state.run_at(when_ns, partial(_offer_again, state, when_ns))


def _offer_again(state: PartitionState, meant_ns: int, now_ns: int) -> None:
    """Offer what waits again because the window has moved: all groups, in scheduling order, and as many reservations as
    the limit has room for, those held back for longest first. The others go on waiting."""
    books = state.governor
    if books.wakes_ns != meant_ns:
        return
    books.wakes_ns, books.woke_ns = None, now_ns
    for kind, waiting in sorted(books.waiting.items()):
        most = state.preemption.governor.bound_of(kind).interval
        taken = interval_window(state, now_ns).count_amount(Scope("interval", kind))
        room = most - taken if most else len(waiting)
        for waiter in list(waiting):
            if isinstance(waiter, AskGroup):
                del waiting[waiter]
                if waiter.due and waiter.application.state not in UNSERVED:
                    activate_group(waiter)
            # Each ask may need a victim, so more asks than the limit has room for would only be held back again.
            elif room > 0:
                del waiting[waiter]
                if state.reservations.get(waiter.ask.key) is waiter:
                    look_again(state, waiter)
                    room -= 1
        if waiting:
            _wake_at(state, now_ns + max(1, state.preemption.cycle_interval_ns // WAKES_PER_INTERVAL))
