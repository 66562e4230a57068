"""Enforces lowered maxima, one queue at a time, in steps so short that nothing else has to wait (preemption.md D).

:mod:`kornel.core.preemption.quota.timers` decides which queue is due, :mod:`kornel.core.preemption.quota.planner`
chooses the victims. While a queue is served, no ask preempts for a guarantee (H).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.gang_losses import describe_whole, is_bound
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.quota import above_max, laws
from kornel.core.preemption.quota import planner as quota
from kornel.core.preemption.quota import timers as quota_timers
from kornel.core.preemption.quota.plan import KIND, QuotaPlan
from kornel.core.preemption.quota.run import QuotaRun, run_of
from kornel.core.preemption.quota.shares import Amounts, find_excess
from kornel.core.state.partition_state import PartitionState
from kornel.shared.readable_amounts import format_quantities

LOOKS_PER_DECISION: Final = 16
"""The number of allocations that can be ranked or compared in the time of one placement."""
BATCH: Final = 64
"""The most victims of one step; each costs as much as a placement."""
MOST_SAID: Final = 8
"""The most reasons in a record why something stays above a max; those with the largest amounts are chosen."""
ENFORCEMENT_BUDGET: Final = 256
"""The number of decisions that one round of the periodic cycle spends on lowered maxima; slices between rounds do the
rest."""


def has_work(state: PartitionState, _now_ns: int) -> bool:
    """Tells whether a max is being enforced, or is due to be, in this slice."""
    return state.enforcement.run is not None or bool(state.enforcement.due)


def is_enforcing(state: PartitionState) -> bool:
    """Tells whether a max is being enforced, or is due to be."""
    return state.enforcement.busy


def enforce_due(state: PartitionState, now_ns: int) -> None:
    """Continues to enforce the lowered maxima that are due, in a round of the periodic cycle (preemption.md F2, H)."""
    advance_enforcement(state, now_ns, ENFORCEMENT_BUDGET)


def advance_enforcement(state: PartitionState, now_ns: int, budget: int) -> int:
    """Continues with the queues that are due for about *budget* decisions. Returns how many were used."""
    enforcement = state.enforcement
    spent = 0
    while spent < budget:
        run = run_of(state)
        if run is None:
            if not enforcement.due:
                break
            run = enforcement.run = _begin_run(state, enforcement.due.pop(0), now_ns)
            enforcement.served[run.queue] = None
            state.preemption_attempts += 1
        spent += _step_run(state, run, now_ns)
    return spent


def _begin_run(state: PartitionState, queue: Queue, now_ns: int) -> QuotaRun:
    miss, stuck = queue.properties.quota_preemption_miss, above_max.staying_amounts(state, queue)
    overuse = state.enforcement.above.get(queue)
    again = overuse is not None and overuse.rest is not None
    due_ns = 0 if overuse is None else overuse.due_ns
    numbers = above_max.numbers_of(queue)
    return QuotaRun(
        queue, miss, quota.plan_in_steps(queue, miss, stuck, now_ns=now_ns, due_ns=due_ns), numbers, stuck, again=again
    )


def _step_run(state: PartitionState, run: QuotaRun, now_ns: int) -> int:
    """Take one step of *run*. Returns its cost in decisions, at least 1."""
    # This is checked before every step, because a new configuration may have removed the queue.
    if not above_max.is_enforceable(state, run.queue):
        _abandon_run(state, run, now_ns)
        return 1
    if run.plan is None:
        try:
            return max(1, next(run.steps) // LOOKS_PER_DECISION)
        except StopIteration as finished:
            run.plan = finished.value
            return 1
    if run.staying:
        # A stuck victim that has left by now needs no replacement.
        now = above_max.staying_amounts(state, run.queue)
        run.staying = {t: min(amount, now[t]) for t, amount in run.staying.items() if t in now}
    end = _end_of_batch(run.plan.victims, run.at)
    batch = run.plan.victims[run.at : end]
    # This moves on before the batch is checked, so that victims that are no longer needed or allowed are not tried
    # again.
    run.at = end
    left = _left_of_target(run, run.plan)
    refused = ""
    if batch and left:
        part = quota.confirm_batch(
            run.queue, run.plan.ceilings, left, batch, run.staying, now_ns=now_ns, due_ns=run.plan.due_ns
        )
        if budgets.is_shadowed(state, KIND):
            _take_down(run, part.victims, describe_whole(part.victims).values())
            run.stopped = Refusal(Outcome.SHADOW)
        else:
            refused = _evict_batch(state, run, part, now_ns)
    if refused or _is_denied(run) or run.at >= len(run.plan.victims) or not left:
        _finish_run(state, run, run.plan, refused, now_ns)
    return max(1, len(batch))


def _left_of_target(run: QuotaRun, plan: QuotaPlan) -> Amounts:
    """Returns the part of the target that is still to be freed. What ended by itself since the run began counts as
    freed."""
    over = find_excess(run.queue, plan.ceilings, run.staying)
    left = {t: min(amount - run.freed.get(t, 0), over.get(t, 0)) for t, amount in plan.target.items()}
    return {t: amount for t, amount in left.items() if amount > 0}


def _abandon_run(state: PartitionState, run: QuotaRun, now_ns: int) -> None:
    """End *run*, whose queue left the configuration: nothing more is preempted, and what was done is recorded."""
    if run.plan is not None and run.records:
        run.stopped = Refusal(Outcome.PARTIAL, "the queue left the configuration")
        _finish_run(state, run, run.plan, "", now_ns)
    else:
        state.enforcement.run = None
        quota_timers.note_run_ended(state, run.queue, None, False, now_ns)


def _evict_batch(state: PartitionState, run: QuotaRun, part: QuotaPlan, now_ns: int) -> str:
    """Preempt the victims of *part* if the laws allow it. Returns the broken laws, or an empty text."""
    if not part.victims:
        return ""
    refusal = eviction.judge_plan(state, laws.check(state, part))
    if refusal is not None:
        return refusal.detail
    most, denial = budgets.count_allowed(state, KIND, part.victims, "lowered maxima", now_ns, run)
    if denial is not None:
        run.stopped = Refusal(denial.outcome, denial.detail, denial.retry_ns)
    victims = _without_parts(part.victims, most)
    budgets.note_taken(state, KIND, victims, "", (), now_ns, run)
    message = f"preempted because queue {run.queue.path} holds more than its max"
    # This precedes the marking, because marked allocations count as gone.
    whole = describe_whole(victims)
    eviction.evict_victims(state, victims, None, message, now_ns)
    if run.replaces:
        state.enforcement.replacing.update(dict.fromkeys(victims))
    quota_timers.watch_exits(state, run.queue, victims, now_ns)
    if state.recording:
        state.events.preempted_for_quota(victims, run.queue, whole)
    _take_down(run, victims, whole.values())
    return ""


def _end_of_batch(victims: Sequence[Allocation], at: int) -> int:
    """Returns the end of the batch that begins at *at*. Gangs that leave as a whole are not divided."""
    end = at + BATCH
    while end < len(victims) and _are_mates(victims[end - 1], victims[end]):
        end += 1
    return end


def _without_parts(victims: Sequence[Allocation], most: int) -> Sequence[Allocation]:
    """Returns the first *most* of *victims*, but without the members of a gang of which not all would leave."""
    while 0 < most < len(victims) and _are_mates(victims[most - 1], victims[most]):
        most -= 1
    return victims[:most]


def _are_mates(victim: Allocation, other: Allocation) -> bool:
    """Tells whether two successive victims of a plan are members of one gang."""
    return victim.application is other.application and is_bound(victim) and is_bound(other)


def _is_denied(run: QuotaRun) -> bool:
    return run.stopped is not None and run.stopped.outcome not in (Outcome.SHADOW, Outcome.PARTIAL)


def _take_down(run: QuotaRun, victims: Sequence[Allocation], whole: Iterable[str]) -> None:
    run.whole += whole
    for victim in victims:
        run.records.append(eviction.victim_record(victim, victim.priority))
        for t, amount in victim.shape.pairs:
            run.freed[t] = run.freed.get(t, 0) + amount


def _finish_run(state: PartitionState, run: QuotaRun, plan: QuotaPlan, refused: str, now_ns: int) -> None:
    """Record the result of *run*. The unmet part is tried again when its protection may have changed.

    A repeated attempt that found no victims and the same unmet amounts is not recorded.
    """
    enforcement = state.enforcement
    unmet = _unmet_by(run, plan)
    outcome = quota.outcome_of(plan.target, unmet, run.miss, any_victims=bool(run.records))
    stopped = run.stopped
    if stopped is not None:
        outcome = stopped.outcome
    overuse = enforcement.above.get(run.queue)
    known = overuse.rest.unmet if overuse is not None and overuse.rest is not None else None
    is_news = refused or run.records or stopped is not None or known != unmet
    if is_news and not (run.again and outcome is Outcome.NOTHING_TO_DO):
        _record_run(state, run, plan, unmet, Outcome.LAW_BROKEN if refused else outcome, refused, now_ns)
    enforcement.run = None
    if overuse is not None:
        overuse.reached = outcome
        if outcome not in (Outcome.PARTIAL, Outcome.NONE):
            overuse.rest = None
        elif stopped is None and not refused:
            overuse.rest = above_max.rest_of(overuse.rest, run, plan, unmet, now_ns)
    quota_timers.note_run_ended(state, run.queue, run.changed, run.grew, now_ns, again=run.again)
    if _is_denied(run):
        quota_timers.resume_run(state, run.queue, stopped.retry_ns if stopped is not None else None, now_ns)


def _unmet_by(run: QuotaRun, plan: QuotaPlan) -> Amounts:
    """Returns what *run* leaves above the max, including what was added meanwhile, so that nothing counts as enforced
    in full that is not."""
    if not plan.target:
        return {}
    over = find_excess(run.queue, plan.ceilings, run.staying)
    if run.stopped is not None and run.stopped.outcome is Outcome.SHADOW:
        # Victims in shadow mode have not left, so what they would have freed is subtracted here.
        over = {t: amount - run.freed.get(t, 0) for t, amount in over.items()}
    return {t: amount for t, amount in over.items() if amount > 0}


def _record_run(
    state: PartitionState, run: QuotaRun, plan: QuotaPlan, unmet: Amounts, outcome: Outcome, refused: str, now_ns: int
) -> None:
    freed = {t: run.freed.get(t, 0) for t in plan.target}
    named, stopped = state.types.to_resources, run.stopped
    asked = "would be asked to leave" if stopped is not None and stopped.outcome is Outcome.SHADOW else "asked to leave"
    target, got, left = (format_quantities(named(amounts)) for amounts in (plan.target, freed, unmet))
    amounts = f"target {target}, freed {got}, unmet {left}"
    parts = [f"{amounts}, chosen {len(plan.victims)}, {asked} {len(run.records)}"]
    parts += run.whole
    if stopped is not None and stopped.detail:
        parts.append(stopped.detail)
    if unmet and stopped is None:
        parts += [above_max.say_protection(state, protection) for protection in plan.protected[:MOST_SAID]]
    if refused:
        parts.append(refused)
    detail = "; ".join(parts)
    state.preemptions += bool(run.records) and outcome is not Outcome.SHADOW
    victims = tuple(run.records)
    state.report_decision(
        PreemptionDecided(now_ns, state.name, KIND, "", "", run.queue.path, outcome, detail, "", victims)
    )
    if state.recording and outcome is not Outcome.NOTHING_TO_DO:
        state.events.queues.quota_enforced(run.queue, outcome, detail)
