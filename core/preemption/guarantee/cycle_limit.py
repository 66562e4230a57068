"""Limits preemption for guarantees: the policy must be on, and the limit of one interval must not be used up.

Every attempt is checked here first, whether it comes from the allocation cycle, a reserved ask or a round. Rules:
preemption.md F4, F7.
"""

from __future__ import annotations

from kornel.core.domain.readable_amounts import format_quantity
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, AskGroup
from kornel.core.model.shapes import Pairs
from kornel.core.partition.state import PartitionState
from kornel.core.partition.waiting.rooms import UNSERVED, activate_group
from kornel.core.preemption import pacing
from kornel.core.preemption.entitlement import find_entitlement
from kornel.core.preemption.governor.bounds import SECOND_NS
from kornel.core.preemption.guarantee.planner import KIND
from kornel.core.preemption.pace import Totals, Window
from kornel.core.preemption.plan import Refusal


def hold_back(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns why *ask* may not preempt now; ``None``: an attempt may be made.

    The limit is tested before an attempt, so the last attempt may exceed it (preemption.md F7).
    """
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, why_off(state))
    if ask.dialogue is not None and ask.dialogue.waits:
        return None  # Nothing is decided before the shim has answered; then this is checked again.
    window = pacing.current_window(state, KIND, now_ns)
    held = _check_limit(state, window, ask.shape.pairs)
    if held is not None and isinstance(find_entitlement(ask, state.guarantee_mode, state.types.names), Refusal):
        return None  # The ask may not preempt at all. The attempt finds that without a search, and says why.
    return held


def foresee_limit(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Forecasts the result of :func:`hold_back` without dropping, noting or recording anything."""
    if not state.guarantee_preemption:
        return Refusal(Outcome.POLICY_OFF, why_off(state))
    return _check_limit(state, pacing.foreseen_window(state, KIND, now_ns), ask.shape.pairs)


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
    held = hold_back(state, ask, now_ns) if ask is not None else None
    if ask is None or held is None:
        return False
    pacing.note_held_back(state, KIND, ask, held, now_ns)
    if held.retry_ns is not None:
        pacing.wait_until(state, KIND, group, held.retry_ns, _offer_again)
    return True


def is_open(state: PartitionState, now_ns: int) -> bool:
    """Tells whether a round may go on, because the limit is not used up for any type."""
    window = pacing.current_window(state, KIND, now_ns)
    return _check_limit(state, window, tuple(state.root.max.items())) is None


def _offer_again(state: PartitionState, _now_ns: int) -> None:
    """Offers the groups that the limit held back, in scheduling order."""
    pace = state.pace.of_kind(KIND)
    waiting, pace.waiting = pace.waiting, {}
    for group in waiting:
        if isinstance(group, AskGroup) and group.due and group.application.state not in UNSERVED:
            activate_group(group)


def _check_limit(state: PartitionState, window: Window, pairs: Pairs) -> Refusal | None:
    """Returns which limit is used up for an ask of *pairs*; ``None``: none."""
    settings = state.preemption
    share, sizes = settings.cycle_limit, state.root.max
    if share <= 0:
        return Refusal(Outcome.ROUND_LIMIT, "preemption.cycle.limit is 0: nobody preempts for a guarantee")
    most = {t: sizes[t] * share for t, amount in pairs if amount > 0 and sizes.get(t, 0) > 0}

    def reached(totals: Totals) -> int | None:
        return next((t for t, limit in most.items() if totals.amounts.get(t, 0) >= limit), None)

    t = reached(window.totals)
    if t is None:
        return pacing.check_victim_limit(state, KIND, window)
    seconds = settings.cycle_interval_ns / SECOND_NS
    taken, name = window.totals.amounts[t], state.types.names[t]
    served, size = format_quantity(name, taken), format_quantity(name, sizes[t])
    detail = f"served {served} {name} within {seconds:g} s, preemption.cycle.limit is {share:g} of {size}"
    return pacing.refuse_until(state, window, lambda totals: reached(totals) is None, detail)
