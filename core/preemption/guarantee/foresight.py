"""Forecasts preemption for a guarantee, or within a leaf, by a dry run of the planner, the governor and the limits.

Nothing is decided or counted, and the shim is not asked: the forecast is the result of an attempt without the shim's
answers.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.preemption_kinds import WITHIN
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption import eviction
from kornel.core.preemption.entitlement import find_entitlement
from kornel.core.preemption.foresight import (
    LIMITED,
    UNLISTED,
    Circumstances,
    PreemptionOutlook,
    PreemptionVerdict,
)  # fmt: skip
from kornel.core.preemption.guarantee.attempts import drive as guarantee_drive
from kornel.core.preemption.guarantee.guarantee_record import GuaranteeRecord
from kornel.core.preemption.guarantee.protection import tally_protection
from kornel.core.preemption.guarantee.rules.own_leaf import list_exceeded
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.kind import BOUNDS
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.state.partition_state import PartitionState

_NOBODY: Final = frozenset({Outcome.NO_CANDIDATES, Outcome.NO_NODE, Outcome.NO_VICTIM_REQUIRED_NODE})


def foresee_within(state: PartitionState, ask: Allocation, asked: Circumstances) -> PreemptionOutlook | None:
    """Returns the forecast of an attempt within the leaf of *ask*; ``None``: only another kind could make room for
    it."""
    if ask.spec.required_node or not (state.preempts_within(ask.queue) and ask.spec.allow_preempt_other):
        return None
    return _foresee(state, ask, asked, WITHIN.name)


def foresee_attempt(state: PartitionState, ask: Allocation, asked: Circumstances) -> PreemptionOutlook | None:
    """Returns the forecast of an attempt for *ask*; ``None``: only another kind could make room for it."""
    if ask.spec.required_node:
        return None
    if state.preempts_within(ask.queue) and ask.spec.allow_preempt_other:
        entitled = find_entitlement(ask, state.guarantee_mode, state.types.names)
        if not state.guarantee_preemption or isinstance(entitled, Refusal) or list_exceeded(ask):
            return None
    if state.has_periodic_policy and not (state.guarantee_preemption and ask.spec.allow_preempt_other):
        return None
    verdict = PreemptionVerdict
    if not state.preemption.enabled:
        return PreemptionOutlook(verdict.FORBIDDEN, "preemption.enabled is off", "", "the partition does not preempt")
    if not state.guarantee_preemption:
        return PreemptionOutlook(verdict.FORBIDDEN, UNLISTED, Outcome.POLICY_OFF, guarantee_drive.why_off(state))
    if not ask.spec.allow_preempt_other:
        detail = "its preemption policy lets it preempt nobody"
        return PreemptionOutlook(verdict.FORBIDDEN, "preemption policy of the ask", Outcome.ASK_MAY_NOT_PREEMPT, detail)
    return _foresee(state, ask, asked, guarantee.KIND)


def _foresee(state: PartitionState, ask: Allocation, asked: Circumstances, kind: str) -> PreemptionOutlook:
    """Returns the forecast of an attempt of *kind* for *ask*, which may preempt."""
    verdict, index, now_ns = PreemptionVerdict, asked.victims, asked.now_ns
    blocked_by, not_before_ns = _find_delay(state, ask, now_ns)
    result: PreemptionPlan | Refusal
    within = guarantee_drive.find_bounds(state, ask)
    if within is not None and not within.among:
        result = guarantee_drive.refuse_domains(ask)
    else:
        result = guarantee.plan_preemption(state, ask, index=index, now_ns=now_ns, within=within, kind=kind)
    if isinstance(result, PreemptionPlan):
        governed = _govern_plan(state, result, asked)
        if isinstance(governed, PreemptionOutlook):
            return governed
        result = governed
        victims = eviction.victim_records(result)
        held = guarantee_drive.hold_back(state, ask, now_ns)
        if held is not None:
            return PreemptionOutlook(
                verdict.FORBIDDEN, LIMITED, held.outcome, held.detail, held.retry_ns, result.node.node_id, victims
            )
        detail = f"needs {result.needs}, fence {result.fence.path}"
        return PreemptionOutlook(
            verdict.WOULD_HELP, blocked_by, Outcome.TRIGGERED, detail, not_before_ns, result.node.node_id, victims
        )
    result = guarantee_drive.name_roomy_nodes(ask, within, result)
    return PreemptionOutlook(
        verdict.NO_VICTIMS if result.outcome in _NOBODY else verdict.FORBIDDEN,
        "",
        result.outcome,
        result.detail,
        not_before_ns,
        protected=tally_protection(state, ask, index, now_ns) if kind == guarantee.KIND else (),
    )


def _govern_plan(
    state: PartitionState, plan: PreemptionPlan, asked: Circumstances
) -> PreemptionPlan | PreemptionOutlook:
    """Returns *plan*, or a plan with other victims, that the governor would allow now; otherwise, what stands against
    it (preemption.md K13)."""
    found = guarantee_drive.rule_on_plan(state, plan, asked.victims, asked.now_ns).result
    if isinstance(found, Refusal):
        blocked_by = f"governor: {BOUNDS[found.outcome].words}"
        return PreemptionOutlook(
            PreemptionVerdict.FORBIDDEN, blocked_by, found.outcome, found.detail, found.retry_ns, plan.node.node_id,
            eviction.victim_records(plan),
        )  # fmt: skip
    return found


def _find_delay(state: PartitionState, ask: Allocation, now_ns: int) -> tuple[str, int | None]:
    """Returns what delays the next attempt for *ask*, and until when; an empty text: nothing does."""
    record = state.records.get(GuaranteeRecord)  # A question makes none.
    refused = None if record is None else record.gate.question_of(ask)
    retry_ns = 0 if refused is None else refused.not_before_ns
    old_enough_ns = ask.created_ns + ask.queue.properties.preemption_delay_ns
    backoff_ns = ask.application.backoff_until_ns
    not_before_ns = max(retry_ns, old_enough_ns, backoff_ns)
    if not_before_ns > now_ns:
        reasons = {
            old_enough_ns: "preemption.delay of its queue",
            retry_ns: "pause between two searches of equal asks",
            backoff_ns: "back-off of its application",
        }
        return reasons[not_before_ns], not_before_ns
    if state.enforcement.busy:
        return "a lowered max is being enforced", None
    again_ns = None if record is None else record.next_pass_ns(ask.queue, now_ns)
    return ("" if again_ns is None else "attempts of its queue in this pass"), again_ns
