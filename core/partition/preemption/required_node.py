"""Room on the one node that an ask must run on: whoever is in the way there has to go (preemption.md C).

The ask holds a reservation of the node by then. It needs no age, no guarantee and no attempt left, and
``preemption.enabled`` does not matter.
"""

from __future__ import annotations

from typing import Final

from core.domain.reasons import Outcome
from core.model.allocations import Reservation
from core.model.nodes import Node
from core.partition.preemption import governing, preempting
from core.partition.scheduling import failing
from core.partition.scheduling.waiting import look_again
from core.partition.state import PartitionState
from core.policies.preemption import required_node
from core.policies.preemption.plan import PreemptionPlan, Refusal

ATTEMPT_COST: Final = 10
"""Decisions that one such search counts for in a slice's budget."""


def attempt(state: PartitionState, reservation: Reservation, now_ns: int) -> bool:
    """Have the least important tasks leave the node so that the ask fits. Whether any were told to.

    To be called when the quotas admit the ask. Nothing happens if it fits already, or preempted before.
    """
    ask, node = reservation.ask, reservation.node
    if ask.triggered or node.fits(ask.shape.pairs):
        return False
    state.preemption_attempts += 1
    state.required_node_attempts += 1
    would_be: PreemptionPlan | None = None
    result = required_node.plan(state, ask, node)
    if isinstance(result, PreemptionPlan):
        refusal = preempting.unlawful(state, result)
        if refusal is None and not governing.shadowed(state, required_node.KIND):
            preempting.trigger(state, result, now_ns)
            return True
        would_be = result if refusal is None else None
        result = refusal or Refusal(Outcome.SHADOW)
    failing.note_preemption(ask, result.outcome, now_ns)
    if state.recording and result.outcome is Outcome.NO_VICTIM_REQUIRED_NODE:
        state.events.no_victim_on_required_node(ask)
    if ask.outcome is not result.outcome:
        ask.outcome = result.outcome
        preempting.record(state, required_node.KIND, ask, now_ns, result.outcome, result.detail, would_be)
    return False


def newcomer(state: PartitionState, node: Node) -> None:
    """Something runs on *node* now that was not placed there: it may be in the way of those who must run there."""
    for reservation in node.reservations.values():
        if reservation.ask.spec.required_node:
            look_again(state, reservation)
