"""Enforcing lowered maxima: one queue at a time, in steps short enough that nothing else has to wait (preemption.md D).

Which queue is due is the business of :mod:`core.partition.preemption.quota_timers`, who leaves that of
:mod:`core.policies.preemption.quota`. While a queue is served nobody preempts for a guarantee (H).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.domain.effects import PreemptionDecided
from core.domain.reasons import Outcome
from core.model.allocations import Allocation
from core.partition.preemption import governing, preempting, quota_timers
from core.partition.preemption.enforcement import QuotaRun
from core.partition.state import PartitionState
from core.policies.preemption import quota
from core.policies.preemption.plan import QuotaPlan, Refusal
from core.policies.preemption.quota_shares import Amounts, net

LOOKS_PER_DECISION: Final = 16
"""Allocations that can be ranked or compared in the time of one placement."""
BATCH: Final = 64
"""Victims told to leave in one step; each costs as much as a placement."""


def advance(state: PartitionState, now_ns: int, budget: int) -> int:
    """Go on with what is due for about *budget* decisions. Returns how many it was."""
    enforcement = state.enforcement
    spent = 0
    while spent < budget:
        if enforcement.run is None:
            if not enforcement.due:
                break
            queue = enforcement.due.pop(0)
            miss = queue.properties.quota_preemption_miss
            enforcement.run = QuotaRun(queue, miss, quota.run(queue, miss))
            enforcement.served[queue] = None
            state.preemption_attempts += 1
        spent += _step(state, enforcement.run, now_ns)
    return spent


def _step(state: PartitionState, run: QuotaRun, now_ns: int) -> int:
    """One step of *run*. Returns its cost in decisions, at least 1."""
    if run.plan is None:
        try:
            return max(1, next(run.steps) // LOOKS_PER_DECISION)
        except StopIteration as finished:
            run.plan = finished.value
            return 1
    batch = run.plan.victims[run.at : run.at + BATCH]
    run.at += BATCH
    left = _left(run, run.plan)
    refused = ""
    if batch and left and governing.shadowed(state, quota.KIND):
        would_be = quota.confirm(run.queue, run.plan.ceilings, left, batch)
        _take_down(run, would_be.victims)
        run.stopped = Refusal(Outcome.SHADOW)
    elif batch and left:
        refused = _evict(state, run, quota.confirm(run.queue, run.plan.ceilings, left, batch), now_ns)
    if refused or _is_denied(run) or run.at >= len(run.plan.victims) or not left:
        _finish(state, run, run.plan, refused, now_ns)
    return max(1, len(batch))


def _left(run: QuotaRun, plan: QuotaPlan) -> Amounts:
    """What of the target is still to be freed; what ended by itself since the run began counts as freed."""
    left = {
        t: min(amount - run.freed.get(t, 0), net(run.queue, t) - plan.ceilings[t]) for t, amount in plan.target.items()
    }
    return {t: amount for t, amount in left.items() if amount > 0}


def _evict(state: PartitionState, run: QuotaRun, part: QuotaPlan, now_ns: int) -> str:
    """Have the victims of *part* leave, if the laws allow it. Returns which they break, or nothing."""
    if not part.victims:
        return ""
    refusal = preempting.judge(state, part)
    if refusal is not None:
        return refusal.detail
    most, denial = governing.allowed(state, part.victims, "", now_ns, run)
    if denial is not None:
        run.stopped = Refusal(denial.outcome, denial.detail, denial.retry_ns)
    victims = part.victims[:most]
    governing.charge(state, victims, "", now_ns, run)
    preempting.evict(state, victims, None, f"preempted because queue {run.queue.path} holds more than its max")
    if state.recording:
        state.events.preempted_for_quota(victims, run.queue)
    _take_down(run, victims)
    return ""


def _is_denied(run: QuotaRun) -> bool:
    return run.stopped is not None and run.stopped.outcome is not Outcome.SHADOW


def _take_down(run: QuotaRun, victims: Sequence[Allocation]) -> None:
    for victim in victims:
        run.records.append(preempting.victim_record(victim, victim.priority))
        for t, amount in victim.shape.pairs:
            run.freed[t] = run.freed.get(t, 0) + amount


def _finish(state: PartitionState, run: QuotaRun, plan: QuotaPlan, refused: str, now_ns: int) -> None:
    """Tell what came of *run*, whatever it was, and leave the queue alone from now on."""
    unmet = _left(run, plan)
    outcome = quota.outcome(plan.target, unmet, run.miss, any_victims=bool(run.records))
    freed = {t: run.freed.get(t, 0) for t in plan.target}
    named = state.types.resources
    told = "would be told to leave" if run.stopped and run.stopped.outcome is Outcome.SHADOW else "told to leave"
    detail = (
        f"target {dict(named(plan.target))}, freed {dict(named(freed))}, unmet {dict(named(unmet))}, "
        f"chosen {len(plan.victims)}, {told} {len(run.records)}"
    )
    stopped = run.stopped
    if stopped is not None:
        outcome = stopped.outcome
        detail = f"{detail}; {stopped.detail}" if stopped.detail else detail
    state.preemptions += bool(run.records) and outcome is not Outcome.SHADOW
    state.effects.append(
        PreemptionDecided(
            now_ns,
            state.name,
            quota.KIND,
            "",
            "",
            run.queue.path,
            Outcome.LAW_BROKEN if refused else outcome,
            f"{detail}; {refused}" if refused else detail,
            "",
            tuple(run.records),
        )
    )
    if state.recording and outcome is not Outcome.NOTHING_TO_DO:
        state.events.queues.quota_enforced(run.queue, outcome, detail)
    state.enforcement.run = None
    quota_timers.run_ended(state, run.queue, run.changed, run.grew, now_ns)
    if _is_denied(run):
        quota_timers.resume(state, run.queue, stopped.retry_ns if stopped is not None else None, now_ns)
