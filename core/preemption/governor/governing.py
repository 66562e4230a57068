"""Checks lawful plans against budgets, pauses and loops, as the governor (preemption.md K13).

The enforcement of lowered maxima, preemption for guarantees and the monitor ask the governor before they preempt
anything, and report what they took. Preemption on required nodes does neither, because a cluster cannot work without
it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.preemption.governor.bounds import NAME, SECOND_NS, Denial, judge_losses
from kornel.core.preemption.plan import PreemptionPlan, Refusal, Spared, UnitPlan
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.governor_books import CLUSTER, Loss, Scope
from kornel.shared.readable_amounts import format_count

MOST_DETOURS: Final = 4
"""The most times that one attempt searches for other victims after those of a queue or application were denied."""


def is_shadowed(state: PartitionState, kind: str) -> bool:
    """Tells whether preemption of *kind* is in shadow mode, in which plans are recorded and not carried out."""
    return kind in state.preemption.governor.shadow


def govern_plan(
    state: PartitionState,
    plan: PreemptionPlan,
    now_ns: int,
    without: Callable[[Spared], PreemptionPlan | Refusal] | None = None,
    *,
    supposed: bool = False,
) -> PreemptionPlan | Refusal:
    """Returns *plan* if it may be applied now; otherwise another plan, found by *without*, that spares what the
    governor denied.

    If there is none, returns why *plan* may not be applied, and when to try again. *supposed* tells whether this is
    only a forecast, which is not recorded.
    """
    deny_ = judge_victims if supposed else deny_victims
    denied = too_many(state, plan) or deny_(state, plan.victims, plan.ask.queue.path, now_ns)
    if denied is None:
        return plan
    refusal = Refusal(denied.outcome, denied.detail, retry_ns=denied.retry_ns if denied.scope == CLUSTER else None)
    spared = Spared()
    for _ in range(MOST_DETOURS if without is not None else 0):
        if denied.scope == CLUSTER:
            break
        spared = _spare_more(spared, denied)
        assert without is not None
        detour = without(spared)
        if not isinstance(detour, PreemptionPlan):
            break
        again = too_many(state, detour) or deny_(state, detour.victims, detour.ask.queue.path, now_ns)
        if again is None:
            return detour
        denied = again
    if refusal.outcome is Outcome.VICTIM_LIMIT and not supposed:
        _say_too_many(state, plan.ask, refusal.detail)
    return refusal


def refuse_too_many(state: PartitionState, plan: PreemptionPlan | UnitPlan) -> Refusal | None:
    """Returns and records why *plan* takes too many victims for its asks; ``None``: it does not."""
    denied = too_many(state, plan)
    if denied is None:
        return None
    _say_too_many(state, plan.members[0] if isinstance(plan, UnitPlan) else plan.ask, denied.detail)
    return Refusal(denied.outcome, denied.detail)


def too_many(state: PartitionState, plan: PreemptionPlan | UnitPlan) -> Denial | None:
    """Returns why *plan* takes too many victims for its asks; ``None``: it does not."""
    asks = len(plan.places) if isinstance(plan, UnitPlan) else 1
    most = state.preemption.governor.bound_of(plan.kind).ask * asks
    if not most or len(plan.victims) <= most:
        return None
    victims = format_count(len(plan.victims), "victim")
    if isinstance(plan, UnitPlan):
        return Denial(Outcome.VICTIM_LIMIT, CLUSTER, f"{victims}, {most} may go for {asks} asks", None)
    node_id = plan.node.node_id
    return Denial(
        Outcome.VICTIM_LIMIT, Scope("node", node_id), f"{victims} on {node_id}, at most {most} for one ask", None
    )


def _say_too_many(state: PartitionState, ask: Allocation, detail: str) -> None:
    state.governor.denied += 1
    if state.recording:
        state.events.preemption_bounded(ask, detail)


def _spare_more(spared: Spared, denied: Denial) -> Spared:
    if denied.scope.kind == "node":
        return replace(spared, nodes=spared.nodes | {denied.scope.name})
    if denied.scope.kind == "queue":
        return replace(spared, queues=spared.queues | {denied.scope.name})
    return replace(spared, applications=spared.applications | {denied.scope.name})


def judge_victims(
    state: PartitionState, victims: Sequence[Allocation], preemptor: str, now_ns: int, decision: object = None
) -> Denial | None:
    """Returns why *victims* may not be taken now for queue *preemptor* (empty: for no queue); ``None``: they may.
    Changes nothing, so that forecasts ask it too."""
    return _judge(state, summed_losses(victims, now_ns), preemptor, now_ns, decision)


def deny_victims(
    state: PartitionState, victims: Sequence[Allocation], preemptor: str, now_ns: int, decision: object = None
) -> Denial | None:
    """Returns the result of :func:`judge_victims`. A denial is counted, and recorded once for each pause."""
    denial = judge_victims(state, victims, preemptor, now_ns, decision)
    if denial is not None:
        state.governor.denied += 1
        _say_denied(state, denial, now_ns)
    return denial


def count_allowed(
    state: PartitionState, victims: Sequence[Allocation], preemptor: str, now_ns: int, decision: object
) -> tuple[int, Denial | None]:
    """Returns how many of *victims*, beginning with the first, may be taken now for *preemptor*, and why the rest may
    not, judged as in :func:`deny_victims`."""
    denial = deny_victims(state, victims, preemptor, now_ns, decision)
    if denial is None:
        return len(victims), None

    def is_denied(last: int) -> bool:
        return judge_victims(state, victims[: last + 1], preemptor, now_ns, decision) is not None

    return bisect_left(range(len(victims)), True, key=is_denied), denial


def charge_victims(
    state: PartitionState, victims: Sequence[Allocation], preemptor: str, now_ns: int, decision: object = None
) -> None:
    """Books the cost of releasing *victims*. It has to be called before the books of the partition change."""
    settings, costs = state.preemption.governor, summed_losses(victims, now_ns)
    state.governor.book_losses(settings, costs, preemptor, now_ns, decision)


def charge_together(
    state: PartitionState, victims: Mapping[str, Sequence[Allocation]], now_ns: int, decision: object = None
) -> bool:
    """Books the cost of *victims*, which are given by the queue that they are taken for, if all of them may be taken.
    Returns whether they may.

    A denial is not recorded; the caller then has to ask about each group separately.
    """
    books, settings = state.governor, state.preemption.governor
    pairs = dict.fromkeys((preemptor, one.queue.path) for preemptor, theirs in victims.items() for one in theirs)
    if any(books.turns_since(now_ns - settings.loop_window_ns, *pair) for pair in pairs):
        return False
    costs = summed_losses([victim for theirs in victims.values() for victim in theirs], now_ns)
    if _judge(state, costs, "", now_ns, decision) is not None:
        return False
    books.book_losses(settings, costs, "", now_ns, decision)
    for preemptor, queue in pairs:
        books.note_turn(settings, preemptor, queue, now_ns)
    return True


def _judge(
    state: PartitionState, losses: Sequence[Loss], preemptor: str, now_ns: int, decision: object
) -> Denial | None:
    settings, names = state.preemption.governor, state.types.names
    return judge_losses(settings, names, state.governor, losses, preemptor, now_ns, decision)


def summed_losses(victims: Sequence[Allocation], now_ns: int) -> list[Loss]:
    """Returns the cost of *victims* by application: size times age. If an originator is taken, the work of its whole
    application is lost (preemption.md K7)."""
    counts: dict[Application, int] = {}
    sums: dict[Application, dict[int, int]] = {}
    for victim, gone in _with_what_goes(victims):
        application = victim.application
        if application not in counts:
            counts[application], sums[application] = 0, {}
        counts[application] += 1
        _add_lost_work(sums[application], gone, now_ns)
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


def _add_lost_work(lost: dict[int, int], gone: Sequence[Allocation], now_ns: int) -> None:
    for allocation in gone:
        seconds = (now_ns - allocation.bound_ns) // SECOND_NS
        if seconds > 0 and not allocation.spec.placeholder:
            for t, amount in allocation.shape.pairs:
                lost[t] = lost.get(t, 0) + amount * seconds


def _say_denied(state: PartitionState, denial: Denial, now_ns: int) -> None:
    """Records, once for each pause, that preemption in a scope pauses from now on."""
    paused = state.governor.paused
    if paused.get(denial.scope, now_ns) > now_ns:
        return
    for scope in [scope for scope, until_ns in paused.items() if until_ns <= now_ns]:
        del paused[scope]
    until_ns = denial.retry_ns if denial.retry_ns is not None else now_ns + state.preemption.governor.window_ns
    paused[denial.scope] = until_ns
    detail = f"{denial.detail}; preemption pauses for {(until_ns - now_ns) / SECOND_NS:g} s"
    record_bound(state, denial.outcome, detail, now_ns, denial.scope)


def record_bound(state: PartitionState, outcome: Outcome, detail: str, now_ns: int, scope: Scope = CLUSTER) -> None:
    """Records that preemption is stopped by a bound of *scope*."""
    application, queue = (scope.name if scope.kind == kind else "" for kind in ("application", "queue"))
    state.report_decision(PreemptionDecided(now_ns, state.name, NAME, "", application, queue, outcome, detail, "", ()))
