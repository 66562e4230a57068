"""The forecast for preemption on a required node: a dry run of the planner."""

from __future__ import annotations

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.foresight import (
    LIMITED,
    UNLISTED,
    Circumstances,
    PreemptionOutlook,
    PreemptionVerdict,
)  # fmt: skip
from kornel.core.preemption.kind import BOUNDS
from kornel.core.preemption.plan import Refusal
from kornel.core.preemption.required_node import planner as required_node
from kornel.core.preemption.required_node.drive import hold_back
from kornel.core.state.partition_state import PartitionState


def foresee_attempt(state: PartitionState, ask: Allocation, asked: Circumstances) -> PreemptionOutlook | None:
    """Returns the forecast of an attempt for *ask* on its required node; ``None``: it may run on any node."""
    if not ask.spec.required_node:
        return None
    verdict, limited = PreemptionVerdict, asked.limited
    node = state.nodes.get(ask.spec.required_node)
    if node is None or not node.could_hold_shape(ask.shape):
        detail = "the node it must run on is unknown or smaller than the ask"
        return PreemptionOutlook(verdict.FORBIDDEN, "required node", Outcome.REQUIRED_NODE, detail)
    if limited is not None:
        detail = "on a required node victims are looked for only once the quotas admit the ask"
        return PreemptionOutlook(verdict.FORBIDDEN, str(limited.reason), Outcome.REQUIRED_NODE, detail)
    if required_node.room_is_coming(state, node, ask):
        detail = "its node has room" if node.fits_ask(ask) else "room on its node is leaving already"
        return PreemptionOutlook(verdict.NOT_NEEDED, "", "", detail)
    held = hold_back(state, asked.now_ns)
    if held is not None and held.outcome is Outcome.POLICY_OFF:
        return PreemptionOutlook(verdict.FORBIDDEN, UNLISTED, held.outcome, held.detail)
    result = required_node.plan_preemption(state, ask, node)
    if isinstance(result, Refusal):
        return PreemptionOutlook(verdict.NO_VICTIMS, "", result.outcome, result.detail)
    victims = eviction.victim_records(result)
    too_many = budgets.too_many(state, result)
    if too_many is not None:
        held = Refusal(too_many.outcome, too_many.detail)
    if held is not None:
        blocked_by = LIMITED if held.outcome is Outcome.ROUND_LIMIT else f"governor: {BOUNDS[held.outcome].words}"
        return PreemptionOutlook(
            verdict.FORBIDDEN, blocked_by, held.outcome, held.detail, held.retry_ns, node.node_id, victims
        )
    return PreemptionOutlook(
        verdict.WOULD_HELP, "", Outcome.TRIGGERED, f"needs {result.needs}", None, node.node_id, victims
    )
