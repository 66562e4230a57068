"""Limits preemption for guarantees: the policy must be on, and the limit of one interval must not be used up.

Every attempt is checked here first, whether it comes from the allocation cycle, a reserved ask or a round. Rules:
preemption.md F4, F7.
"""

from __future__ import annotations

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.shapes import Pairs
from kornel.core.preemption import pacing
from kornel.core.preemption.entitlement import find_entitlement
from kornel.core.preemption.guarantee.search.planner import KIND
from kornel.core.preemption.plan import Refusal
from kornel.core.state.partition_state import PartitionState


def hold_back(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns why *ask* may not preempt now; ``None``: an attempt may be made. Changes nothing, so that forecasts ask
    it too.

    The limit is tested before an attempt, so the last attempt may exceed it (preemption.md F7).
    """
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, why_off(state))
    held = _check_limit(state, ask.shape.pairs, now_ns)
    if held is not None and isinstance(find_entitlement(ask, state.guarantee_mode, state.types.names), Refusal):
        return None  # The ask may not preempt at all. The attempt finds that without a search, and says why.
    return held


def hold_back_attempt(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns the result of :func:`hold_back`, but ``None`` while the shim is asked about *ask*: nothing is decided
    before it has answered, and then this is checked again."""
    return None if ask.dialogue is not None and ask.dialogue.waits else hold_back(state, ask, now_ns)


def why_off(state: PartitionState) -> str:
    """Returns the setting that keeps all asks of this partition from preempting for guarantees."""
    if not state.preemption.enabled:
        return "preemption.enabled is off"
    if KIND not in state.preemption.policies:
        return f"preemption.policies does not list {KIND}"
    return "the periodic monitor is on: asks do not preempt by themselves"


def keep_waiting(state: PartitionState, group: AskGroup, now_ns: int) -> bool:
    """Tells whether the limit holds back the due asks of *group*; if so, has the group offered again later."""
    ask = next(iter(group.due), None)
    held = hold_back_attempt(state, ask, now_ns) if ask is not None else None
    if ask is None or held is None:
        return False
    pacing.note_held_back(state, KIND, ask, held, now_ns, group)
    return True


def is_open(state: PartitionState, now_ns: int) -> bool:
    """Tells whether a round may go on, because the limit is not used up for any type."""
    return _check_limit(state, tuple(state.root.max.items()), now_ns) is None


def _check_limit(state: PartitionState, wanted: Pairs, now_ns: int) -> Refusal | None:
    """Returns which limit is used up for an ask of *wanted*; ``None``: none."""
    if state.preemption.cycle_limit <= 0:
        return Refusal(Outcome.ROUND_LIMIT, "preemption.cycle.limit is 0: nobody preempts for a guarantee")
    return pacing.check_limit(state, KIND, wanted, now_ns)
