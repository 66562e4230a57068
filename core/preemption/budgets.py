"""Bounds what preemption may take, by the one book of what it has taken lately (preemption.md F4, F7, K3, K13).

The questions come first: they change nothing, so that forecasts ask the same functions as decisions. Then follows what
notes that something was taken, and last what notes that something was held back, records it and offers it again.
Preemption on required nodes asks about no budget, pause or loop, because a cluster cannot work without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappush
from math import ceil
from typing import Final, NamedTuple

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import GovernorSettings
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.run_times import unsaved_since
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.plan import GangPlan, PreemptionPlan, Refusal, Spared
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.governor_books import CLUSTER, VICTIMS, GovernorBooks, Loss, Scope, Taken, Window
from kornel.core.state.waiting import failing
from kornel.core.state.waiting.rooms import UNSERVED, activate_group, look_again
from kornel.shared.readable_amounts import format_count, format_quantity

NAME: Final = "governor"
"""The name under which bounds of all kinds are recorded, where other decisions have the name of their kind."""
SECOND_NS: Final = 10**9
RETRY_NS: Final = 15 * SECOND_NS
"""The time after which an ask may preempt again once its last victim has left, and the time between a failed attempt
and the next one if the result depends on more than the books."""
MOST_DETOURS: Final = 4
"""The most times that one attempt searches for other victims after those of a queue or application were denied."""
WAKES_PER_INTERVAL: Final = 10
"""The number of times within one interval that the asks held back are tried: the window moves with every decision in
it, and to try them each time would cost more than the attempts themselves."""
QUIET_NS: Final = 15 * SECOND_NS
"""If no ask has been held back for this time, the next one is reported again."""


class Denial(NamedTuple):
    """The reason why victims may not be taken now. Before ``retry_ns``, the same plan would be denied again; ``None``:
    waiting does not help."""

    outcome: Outcome
    scope: Scope
    detail: str
    retry_ns: int | None = None


class Ruling(NamedTuple):
    """The plan that may be carried out, or why there is none, and what was denied on the way."""

    result: PreemptionPlan | Refusal
    denials: Sequence[Denial]


# What may be taken.


def is_shadowed(state: PartitionState, kind: str) -> bool:
    """Tells whether preemption of *kind* is in shadow mode, in which plans are recorded and not carried out."""
    return kind in state.preemption.governor.shadow


def rule_on_plan(
    state: PartitionState,
    plan: PreemptionPlan,
    now_ns: int,
    without: Callable[[Spared], PreemptionPlan | Refusal] | None = None,
) -> Ruling:
    """Returns *plan* if it may be carried out now; otherwise another plan, found by *without*, that spares what is
    denied. If there is none, the refusal says why *plan* is denied, and when to try again."""
    denied = judge_plan(state, plan, now_ns)
    if denied is None:
        return Ruling(plan, ())
    refusal = Refusal(denied.outcome, denied.detail, retry_ns=denied.retry_ns if denied.scope == CLUSTER else None)
    denials, spared = [denied], Spared()
    while without is not None and denied.scope != CLUSTER and len(denials) <= MOST_DETOURS:
        spared = _spare_more(spared, denied)
        detour = without(spared)
        if not isinstance(detour, PreemptionPlan):
            break
        again = judge_plan(state, detour, now_ns)
        if again is None:
            return Ruling(detour, denials)
        denials.append(again)
        denied = again
    return Ruling(refusal, denials)


def _spare_more(spared: Spared, denied: Denial) -> Spared:
    if denied.scope.kind == "node":
        return replace(spared, nodes=spared.nodes | {denied.scope.name})
    if denied.scope.kind == "queue":
        return replace(spared, queues=spared.queues | {denied.scope.name})
    return replace(spared, applications=spared.applications | {denied.scope.name})


def judge_plan(state: PartitionState, plan: PreemptionPlan | GangPlan, now_ns: int) -> Denial | None:
    """Returns why the victims of *plan* may not be taken now; ``None``: they may."""
    ask = plan.members[0] if isinstance(plan, GangPlan) else plan.ask
    return too_many(state, plan) or judge_victims(state, plan.victims, ask.queue.path, now_ns)


def too_many(state: PartitionState, plan: PreemptionPlan | GangPlan) -> Denial | None:
    """Returns why *plan* takes too many victims for its asks; ``None``: it does not."""
    asks = len(plan.places) if isinstance(plan, GangPlan) else 1
    most = state.preemption.governor.bound_of(plan.kind).ask * asks
    if not most or len(plan.victims) <= most:
        return None
    victims = format_count(len(plan.victims), "victim")
    if isinstance(plan, GangPlan):
        return Denial(Outcome.VICTIM_LIMIT, CLUSTER, f"{victims}, {most} may go for {asks} asks")
    node_id = plan.node.node_id
    return Denial(Outcome.VICTIM_LIMIT, Scope("node", node_id), f"{victims} on {node_id}, at most {most} for one ask")


def judge_victims(
    state: PartitionState, victims: Sequence[Allocation], preemptor: str, now_ns: int, decision: object = None
) -> Denial | None:
    """Returns why *victims* may not be taken now for queue *preemptor* (empty: for no queue); ``None``: they may."""
    settings, names = state.preemption.governor, state.types.names
    return judge_losses(
        settings, names, state.governor, _sum_losses(state, victims, now_ns), preemptor, now_ns, decision
    )


def judge_losses(
    settings: GovernorSettings,
    names: Sequence[str],
    books: GovernorBooks,
    losses: Sequence[Loss],
    preemptor: str,
    now_ns: int,
    decision: object = None,
) -> Denial | None:
    """Returns why *losses* may not be taken now for queue *preemptor* (empty: for no queue); ``None``: they may.
    *names* are those of the resource types.

    Losses by the same *decision* do not make each other wait. The cost grows with the victims and, for a denial or if
    something has left the window, with the entries of the window.
    """
    for queue in dict.fromkeys(loss.queue for loss in losses):
        denial = _cooling_down(settings, books, queue, now_ns, decision) or _check_loop(
            settings, books, preemptor, queue, now_ns
        )
        if denial is not None:
            return denial
    window = books.lately.as_of(now_ns - settings.window_ns)
    wanted: dict[Scope, dict[int, int]] = {}
    for loss in losses:
        for scope in loss.scopes:
            amounts = wanted.setdefault(scope, {})
            for measure, amount in loss.amounts:
                amounts[measure] = amounts.get(measure, 0) + amount
    budgets = settings.budgets
    for scope, amounts in wanted.items():
        budget = budgets[scope.kind]
        for measure, amount in amounts.items():
            most = (budget.victims or None) if measure == VICTIMS else budget.lost.get(names[measure])
            before = 0 if most is None else window.count_amount(scope, measure)
            if most is None or before + amount <= most:
                continue
            again_ns = window.find_entry(scope, measure, before + amount - most)
            return Denial(
                Outcome.BUDGET_SPENT,
                scope,
                _describe_budget(settings, names, scope, measure, before, amount, most),
                None if again_ns is None else again_ns + settings.window_ns,
            )
    return None


def _cooling_down(
    settings: GovernorSettings, books: GovernorBooks, queue: str, now_ns: int, decision: object
) -> Denial | None:
    last = books.last_loss(queue) if settings.cooldown_ns else None
    if last is None or (decision is not None and last[1] == decision):
        return None
    until_ns = last[0] + settings.cooldown_ns
    if now_ns >= until_ns:
        return None
    waited, pause = (now_ns - last[0]) / SECOND_NS, settings.cooldown_ns / SECOND_NS
    detail = f"{queue} was preempted {waited:g} s ago, the pause is {pause:g} s"
    return Denial(Outcome.COOLING_DOWN, Scope("queue", queue), detail, until_ns)


def _check_loop(
    settings: GovernorSettings, books: GovernorBooks, preemptor: str, queue: str, now_ns: int
) -> Denial | None:
    """Returns a denial if taking from *queue* for *preemptor* would be one turn too many between the two."""
    window_ns, returns = settings.loop_window_ns, settings.loop_returns
    turns = books.turns_since(now_ns - window_ns, preemptor, queue) if preemptor and window_ns else ()
    if not turns or turns[-1].preemptor == preemptor or len(turns) <= returns:
        return None
    detail = (
        f"{preemptor} and {queue} preempted each other in {len(turns)} turns within "
        f"{window_ns / SECOND_NS:g} s, {returns} returns are allowed"
    )
    # Another turn is allowed once enough of the oldest turns have left the window.
    forgotten = turns[len(turns) - returns - 1]
    return Denial(Outcome.LOOP, Scope("queue", queue), detail, forgotten.last_ns + window_ns)


def _describe_budget(
    settings: GovernorSettings, names: Sequence[str], scope: Scope, measure: int, before: int, wanted: int, most: int
) -> str:
    if measure == VICTIMS:
        said = f"{format_count(wanted, 'victim')} wanted, {before} of {most}"
    else:
        name = names[measure]
        asked, taken, whole = (format_quantity(name, amount) for amount in (wanted, before, most))
        said = f"{asked} resource-seconds of {name} wanted, {taken} of {whole}"
    return f"{scope}: {said} taken within {settings.window_ns / SECOND_NS:g} s"


def _sum_losses(state: PartitionState, victims: Sequence[Allocation], now_ns: int) -> list[Loss]:
    """Returns the cost of *victims* by application: size times the time since their work was last saved. If an
    originator is taken, the work of its whole application is lost (preemption.md K7)."""
    counts: dict[Application, int] = {}
    sums: dict[Application, dict[int, int]] = {}
    for victim, gone in _with_what_goes(victims):
        application = victim.application
        counts[application] = counts.get(application, 0) + 1
        lost = sums.setdefault(application, {})
        for allocation in gone:
            seconds = (now_ns - unsaved_since(allocation, state.checkpoints)) // SECOND_NS
            if seconds > 0 and not allocation.spec.placeholder:
                for t, amount in allocation.shape.pairs:
                    lost[t] = lost.get(t, 0) + amount * seconds
    return [
        Loss(application.queue.path, application.application_id, tuple(sums[application].items()), count)
        for application, count in counts.items()
    ]


def _with_what_goes(victims: Sequence[Allocation]) -> Iterator[tuple[Allocation, Sequence[Allocation]]]:
    """Yields each of *victims* with the allocations whose work is lost with it, originators first."""
    wasted: set[Application] = set()
    """The allocations whose loss is counted with their originator."""
    for victim in sorted(victims, key=lambda victim: not victim.spec.originator):
        application = victim.application
        if application in wasted:
            yield victim, ()
        elif victim.spec.originator:
            wasted.add(application)
            yield victim, [allocation for allocation in application.allocations.values() if not allocation.preempted]
        else:
            yield victim, (victim,)


def interval_window(state: PartitionState, now_ns: int) -> Window:
    """Returns what was taken within the interval that ends at *now_ns*."""
    return state.governor.interval.as_of(now_ns - state.preemption.cycle_interval_ns)


def left_of_interval(state: PartitionState, kind: str, now_ns: int) -> int | None:
    """Returns how many victims *kind* may still take within one interval; ``None``: any number."""
    most = state.preemption.governor.bound_of(kind).interval
    return most - interval_window(state, now_ns).count_amount(Scope("interval", kind)) if most else None


def check_limit(state: PartitionState, kind: str, wanted: Pairs, now_ns: int) -> Refusal | None:
    """Returns why *kind* may not preempt now so that *wanted* is served; ``None``: it may.

    The limit is tested before an attempt, so the last attempt may exceed it (preemption.md F7).
    """
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


def may_ever_preempt(ask: Allocation) -> bool:
    """Tells whether *ask* may ever preempt for a guarantee."""
    return ask.spec.allow_preempt_other and not ask.spec.required_node


# What was taken.


def note_taken(
    state: PartitionState,
    kind: str,
    victims: Sequence[Allocation],
    preemptor: str | None,
    served: Pairs,
    now_ns: int,
    decision: object = None,
) -> None:
    """Notes that *kind* takes *victims* for queue *preemptor* (empty: for no queue), so that *served* can be placed. It
    has to be called before the books of the partition change.

    ``None`` for *preemptor*: the kind has no budget.
    """
    if not victims:
        return
    books = state.governor
    losses = _sum_losses(state, victims, now_ns)
    for loss in losses:
        ledger.book_wasted(state.queues[loss.queue], kind, loss.lost)
    if preemptor is not None:
        books.book_losses(state.preemption.governor, losses, preemptor, now_ns, decision)
    books.interval.add(Taken(now_ns, (Scope("interval", kind),), ((VICTIMS, len(victims)), *served)))


def note_together(
    state: PartitionState, kind: str, victims: Mapping[str, Sequence[Allocation]], now_ns: int, decision: object = None
) -> bool:
    """Notes that *victims*, which are given by the queue that they are taken for, are taken if all of them may be.
    Returns whether they may.

    A denial is not recorded; the caller then has to ask about each group separately.
    """
    books, settings = state.governor, state.preemption.governor
    pairs = dict.fromkeys((preemptor, one.queue.path) for preemptor, theirs in victims.items() for one in theirs)
    if any(books.turns_since(now_ns - settings.loop_window_ns, *pair) for pair in pairs):
        return False
    together = [victim for theirs in victims.values() for victim in theirs]
    if judge_victims(state, together, "", now_ns, decision) is not None:
        return False
    note_taken(state, kind, together, "", (), now_ns, decision)
    for preemptor, queue in pairs:
        books.note_turn(settings, preemptor, queue, now_ns)
    return True


def set_due(state: PartitionState, ask: Allocation, when_ns: int) -> None:
    """Makes *ask* due to preempt at *when_ns*, once placement has had its turn."""
    heappush(state.attempts_due, (when_ns, state.next_number(), ask))


def watch_age(state: PartitionState, ask: Allocation) -> None:
    """Makes *ask* due to preempt as soon as it is old enough (preemption.md B.1)."""
    if may_ever_preempt(ask):
        set_due(state, ask, ask.created_ns + ask.queue.properties.preemption_delay_ns)


# What was held back.


def note_ruling(state: PartitionState, ruling: Ruling, ask: Allocation, now_ns: int) -> PreemptionPlan | Refusal:
    """Counts and records what *ruling* denied on the way to a plan for *ask*, or to its refusal. Returns that."""
    for denial in ruling.denials:
        if denial.outcome is not Outcome.VICTIM_LIMIT:
            _note_denial(state, denial, now_ns)
    result = ruling.result
    if isinstance(result, Refusal) and result.outcome is Outcome.VICTIM_LIMIT:
        _note_too_many(state, ask, result.detail)
    return result


def refuse_too_many(state: PartitionState, plan: PreemptionPlan | GangPlan) -> Refusal | None:
    """Returns and records why *plan* takes too many victims for its asks; ``None``: it does not."""
    denied = too_many(state, plan)
    if denied is None:
        return None
    _note_too_many(state, plan.members[0] if isinstance(plan, GangPlan) else plan.ask, denied.detail)
    return Refusal(denied.outcome, denied.detail)


def _note_too_many(state: PartitionState, ask: Allocation, detail: str) -> None:
    state.governor.denied += 1
    if state.recording:
        state.events.preemption_bounded(ask, detail)


def deny_victims(
    state: PartitionState, victims: Sequence[Allocation], preemptor: str, now_ns: int, decision: object = None
) -> Denial | None:
    """Returns the result of :func:`judge_victims`. A denial is counted, and recorded once for each pause."""
    denial = judge_victims(state, victims, preemptor, now_ns, decision)
    if denial is not None:
        _note_denial(state, denial, now_ns)
    return denial


def count_allowed(
    state: PartitionState, kind: str, victims: Sequence[Allocation], cause: str, now_ns: int, decision: object
) -> tuple[int, Denial | None]:
    """Returns how many of *victims*, from the first on, *kind* may take now for *cause* and for no ask, and why
    it may not take the rest: because of a budget, or of what is left of one interval. The reason is recorded."""
    denial = deny_victims(state, victims, "", now_ns, decision)

    def is_denied(last: int) -> bool:
        return judge_victims(state, victims[: last + 1], "", now_ns, decision) is not None

    most = len(victims) if denial is None else bisect_left(range(len(victims)), True, key=is_denied)
    left = left_of_interval(state, kind, now_ns)
    if left is None or left >= most:
        return most, denial
    bound, interval_ns = state.preemption.governor.bound_of(kind).interval, state.preemption.cycle_interval_ns
    # The caller goes on only when the whole limit is open again, because each part of a run costs as much as the whole.
    window = interval_window(state, now_ns)
    last_ns = now_ns if left > 0 else window.find_entry(Scope("interval", kind), VICTIMS, bound - left) or now_ns
    detail = f"{format_count(bound, 'victim')} for {cause} may be taken within {interval_ns / SECOND_NS:g} s"
    _say_held_back(state, kind, detail, now_ns)
    return max(0, left), Denial(Outcome.ROUND_LIMIT, CLUSTER, detail, last_ns + interval_ns)


def note_held_back(
    state: PartitionState,
    kind: str,
    ask: Allocation,
    held: Refusal,
    now_ns: int,
    waiter: AskGroup | Reservation | None = None,
) -> None:
    """Notes that *kind* may not preempt for *ask*, and records the reason if it has not been recorded lately. *waiter*,
    if there is one, is offered again when the window has moved."""
    failing.note_preemption(ask, held.outcome, now_ns)
    if held.outcome is Outcome.ROUND_LIMIT:
        _say_held_back(state, kind, held.detail, now_ns)
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


def _say_held_back(state: PartitionState, kind: str, detail: str, now_ns: int) -> None:
    """Records that the limit of *kind* holds something back, once for each time that this begins."""
    held_ns = state.governor.held_ns
    before_ns, held_ns[kind] = held_ns.get(kind), now_ns
    if before_ns is None or now_ns - before_ns > max(QUIET_NS, 2 * state.preemption.cycle_interval_ns):
        _record_bound(state, Outcome.ROUND_LIMIT, f"{kind}: {detail}", now_ns)


def _note_denial(state: PartitionState, denial: Denial, now_ns: int) -> None:
    """Counts *denial*, and records, once for each pause, that preemption in its scope pauses from now on."""
    state.governor.denied += 1
    paused = state.governor.paused
    if paused.get(denial.scope, now_ns) > now_ns:
        return
    for scope in [scope for scope, until_ns in paused.items() if until_ns <= now_ns]:
        del paused[scope]
    until_ns = denial.retry_ns if denial.retry_ns is not None else now_ns + state.preemption.governor.window_ns
    paused[denial.scope] = until_ns
    detail = f"{denial.detail}; preemption pauses for {(until_ns - now_ns) / SECOND_NS:g} s"
    _record_bound(state, denial.outcome, detail, now_ns, denial.scope)


def _record_bound(state: PartitionState, outcome: Outcome, detail: str, now_ns: int, scope: Scope = CLUSTER) -> None:
    """Records that preemption is stopped by a bound of *scope*."""
    application, queue = (scope.name if scope.kind == kind else "" for kind in ("application", "queue"))
    state.report_decision(PreemptionDecided(now_ns, state.name, NAME, "", application, queue, outcome, detail, "", ()))


def _wake_at(state: PartitionState, when_ns: int) -> None:
    """Makes sure that waiters are offered again at *when_ns* at the latest."""
    books = state.governor
    if books.wakes_ns is None or when_ns < books.wakes_ns:
        books.wakes_ns = when_ns
        state.run_at(when_ns, partial(_offer_again, state, when_ns))


def _offer_again(state: PartitionState, meant_ns: int, now_ns: int) -> None:
    """Offers what waits again because the window has moved: all groups, in scheduling order, and as many reservations
    as the limit has room for, those held back for longest first. The others go on waiting."""
    books = state.governor
    if books.wakes_ns != meant_ns:
        return
    books.wakes_ns, books.woke_ns = None, now_ns
    for kind, waiting in sorted(books.waiting.items()):
        left = left_of_interval(state, kind, now_ns)
        room = len(waiting) if left is None else left
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
