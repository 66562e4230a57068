"""Whether preemption could make room for an ask, and what stands against it: a dry run of the planners.

Nothing is decided, counted or asked of the shim; the answer is what an attempt would come to without the shim's word.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.effects import VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.partition.state import PartitionState
from kornel.core.preemption import eviction, pacing
from kornel.core.preemption.governor import governing
from kornel.core.preemption.governor.source import BOUNDS
from kornel.core.preemption.guarantee import drive as guarantee_drive
from kornel.core.preemption.guarantee import planner as guarantee
from kornel.core.preemption.guarantee.kind import GUARANTEE
from kornel.core.preemption.plan import PreemptionPlan, Refusal, Spared
from kornel.core.preemption.required_node import planner as required_node
from kornel.core.preemption.required_node.kind import REQUIRED_NODE
from kornel.core.preemption.victim_index import RankedLeaf, VictimIndex
from kornel.core.telling.allocations.explanation import PreemptionOutlook, PreemptionVerdict
from kornel.core.telling.nodes.node_blockers import fits_on
from kornel.core.telling.preemption.periodic_outlook import by_monitor, left_to_monitor
from kornel.core.telling.preemption.protection import protection

_UNLISTED: Final = "preemption.policies"
_LIMITED: Final = "limit of one interval of the preemption cycle"
_NOBODY: Final = frozenset({Outcome.NO_CANDIDATES, Outcome.NO_NODE, Outcome.NO_VICTIM_REQUIRED_NODE})


class ReadingIndex(VictimIndex):
    """Rankings for questions, kept for the next one: those of the partition are put in order by looking at them.

    During one answer allocations do not come or go, so each leaf is compared with its ranking once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[Queue, RankedLeaf] = {}

    def begin(self) -> None:
        """A new answer: nothing is trusted unseen."""
        self._checked.clear()
        self._leaves = {leaf: ranked for leaf, ranked in self._leaves.items() if leaf.applications}

    def of(self, leaf: Queue) -> RankedLeaf:
        checked = self._checked.get(leaf)
        if checked is None:
            checked = self._checked[leaf] = super().of(leaf)
        return checked

    def forget(self, leaf: Queue) -> None:
        """What is known of *leaf* does not hold: something there is supposed to be different."""
        self._leaves.pop(leaf, None)
        self._checked.pop(leaf, None)


def outlook(
    state: PartitionState, ask: Allocation, now_ns: int, *, limited: NotPlaced | None, index: ReadingIndex
) -> PreemptionOutlook:
    """What preemption can do for a pending *ask* that *limited* keeps back (``None``: no limit does)."""
    verdict = PreemptionVerdict
    if ask.triggered:
        left = tuple(_record(victim) for victim in ask.victims.values())
        node_id = ask.reservation.node.node_id if ask.reservation is not None else ""
        detail = f"{len(left)} victims are still to leave" if left else "its victims are gone, the room is being given"
        return PreemptionOutlook(verdict.UNDER_WAY, "", Outcome.TRIGGERED, detail, ask.rearm_ns or None, node_id, left)
    if limited is not None and not limited.preemption_may_help:
        what = f"{limited.account}" if limited.account is not None else f"{limited.queue}"
        return PreemptionOutlook(
            verdict.FORBIDDEN, f"{limited.reason}: preemption cannot help", "", f"victims make no room in {what}"
        )
    if ask.pool is not None:
        return PreemptionOutlook(verdict.FORBIDDEN, "it waits for a placeholder", "", "placeholders preempt, not this")
    if ask.spec.required_node:
        return _on_required_node(state, ask, limited, now_ns)
    if left_to_monitor(state, ask):
        return by_monitor(state, ask)
    if not state.preemption.enabled:
        return PreemptionOutlook(verdict.FORBIDDEN, "preemption.enabled is off", "", "the partition does not preempt")
    if not state.guarantee_preemption:
        return PreemptionOutlook(verdict.FORBIDDEN, _UNLISTED, Outcome.POLICY_OFF, pacing.why_off(state))
    if not ask.spec.allow_preempt_other:
        detail = "its preemption policy lets it preempt nobody"
        return PreemptionOutlook(verdict.FORBIDDEN, "preemption policy of the ask", Outcome.ASK_MAY_NOT_PREEMPT, detail)
    blocked_by, not_before_ns = _waits(state, ask, now_ns)
    result = guarantee.plan(state, ask, index=index, now_ns=now_ns)
    if isinstance(result, PreemptionPlan):
        governed = _governed(state, result, index, now_ns)
        if isinstance(governed, PreemptionOutlook):
            return governed
        result = governed
        held = pacing.foresee(state, ask, now_ns)
        if held is not None:
            return PreemptionOutlook(
                verdict.FORBIDDEN, _LIMITED, held.outcome, held.detail, held.retry_ns, result.node.node_id,
                records(result),
            )  # fmt: skip
        detail = f"needs {result.needs}, fence {result.fence.path}"
        return PreemptionOutlook(
            verdict.WOULD_HELP, blocked_by, Outcome.TRIGGERED, detail, not_before_ns, result.node.node_id,
            records(result),
        )  # fmt: skip
    law = GUARANTEE.ending(result.outcome).words
    nobody = result.outcome in _NOBODY
    return PreemptionOutlook(
        verdict.NO_VICTIMS if nobody else verdict.FORBIDDEN,
        law,
        result.outcome,
        result.detail,
        not_before_ns,
        protected=protection(state, ask, index),
    )


def _governed(
    state: PartitionState, plan: PreemptionPlan, index: ReadingIndex, now_ns: int
) -> PreemptionPlan | PreemptionOutlook:
    """*plan* or a detour that the governor would let pass now; else what stands against it (K13)."""

    def without(spared: Spared) -> PreemptionPlan | Refusal:
        return guarantee.plan(state, plan.ask, index=index, spared=spared, now_ns=now_ns)

    asked = state.callbacks.predicates or state.callbacks.preemption_predicates
    found = governing.govern(state, plan, now_ns, None if asked else without, supposed=True)
    if isinstance(found, Refusal):
        return PreemptionOutlook(
            PreemptionVerdict.FORBIDDEN, f"governor: {BOUNDS[found.outcome].words}", found.outcome, found.detail,
            found.retry_ns, plan.node.node_id, records(plan),
        )  # fmt: skip
    if governing.shadowed(state, guarantee.KIND):
        detail = "preemption.governor.shadow: preemption for guarantees only watches"
        return PreemptionOutlook(
            PreemptionVerdict.FORBIDDEN, "governor: shadow", Outcome.SHADOW, detail, None, found.node.node_id,
            records(found),
        )  # fmt: skip
    return found


def records(plan: PreemptionPlan) -> tuple[VictimRecord, ...]:
    """The victims of *plan* as decisions name them."""
    adjusted = plan.adjusted or (0,) * len(plan.victims)
    return tuple(map(eviction.victim_record, plan.victims, adjusted))


def _waits(state: PartitionState, ask: Allocation, now_ns: int) -> tuple[str, int | None]:
    """What delays the next attempt, and until when; nothing: it may be made at once."""
    refused = state.refusals.waiting(ask)
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
    if state.attempts_left.get(ask.queue, guarantee_drive.ATTEMPTS_PER_LEAF) <= 0:
        return "attempts of its queue in this pass", state.pass_began_ns + guarantee_drive.PASS_NS
    return "", None


def _on_required_node(
    state: PartitionState, ask: Allocation, limited: NotPlaced | None, now_ns: int
) -> PreemptionOutlook:
    verdict = PreemptionVerdict
    node = state.nodes.get(ask.spec.required_node)
    if node is None or not node.could_hold(ask.shape.pairs):
        detail = "the node it must run on is unknown or smaller than the ask"
        return PreemptionOutlook(verdict.FORBIDDEN, "required node", Outcome.REQUIRED_NODE, detail)
    if limited is not None:
        detail = "on a required node victims are looked for only once the quotas admit the ask"
        return PreemptionOutlook(verdict.FORBIDDEN, str(limited.reason), Outcome.REQUIRED_NODE, detail)
    if required_node.room_is_coming(node, ask):
        detail = "its node has room" if fits_on(node, ask) else "room on its node is leaving already"
        return PreemptionOutlook(verdict.NOT_NEEDED, "", "", detail)
    held = pacing.foresee_required(state, now_ns)
    if held is not None and held.outcome is Outcome.POLICY_OFF:
        return PreemptionOutlook(verdict.FORBIDDEN, _UNLISTED, held.outcome, held.detail)
    result = required_node.plan(state, ask, node)
    if isinstance(result, Refusal):
        law = REQUIRED_NODE.ending(result.outcome).words
        return PreemptionOutlook(verdict.NO_VICTIMS, law, result.outcome, result.detail)
    too_many = governing.too_many(state, result)
    if too_many is not None:
        held = Refusal(too_many.outcome, too_many.detail)
    if held is not None:
        blocked_by = _LIMITED if held.outcome is Outcome.ROUND_LIMIT else f"governor: {BOUNDS[held.outcome].words}"
        return PreemptionOutlook(
            verdict.FORBIDDEN, blocked_by, held.outcome, held.detail, held.retry_ns, node.node_id, records(result)
        )
    if governing.shadowed(state, required_node.KIND):
        detail = "preemption.governor.shadow: preemption on required nodes only watches"
        return PreemptionOutlook(
            verdict.FORBIDDEN, "governor: shadow", Outcome.SHADOW, detail, None, node.node_id, records(result)
        )
    return PreemptionOutlook(
        verdict.WOULD_HELP, "", Outcome.TRIGGERED, f"needs {result.needs}", None, node.node_id, records(result)
    )


def _record(victim: Allocation) -> VictimRecord:
    return eviction.victim_record(victim, victim.priority)
