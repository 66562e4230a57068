"""Passes a firm claim inside a leaf to a more important ask of the same size, which then needs no victims of its own
(preemption.md B.7).

Whoever leaves was asked to for an ask that comes after another one of the same leaf. The other one takes over the
claim, and nobody else has to leave for it; the former holder may try again.
"""

from __future__ import annotations

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import NO_VICTIMS, Allocation, Reservation
from kornel.core.partition.asks import finding, moves, reservations
from kornel.core.partition.books import ledger
from kornel.core.partition.state import PartitionState
from kornel.core.policies.claim_order import comes_before, owing_queues
from kornel.core.preemption import eviction
from kornel.core.preemption.attempts import may_ever_preempt, set_due
from kornel.core.preemption.guarantee.fences import fence_root
from kornel.core.preemption.guarantee.planner import KIND
from kornel.core.preemption.plan import PreemptionPlan


def take_over_claim(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """Gives *ask*, which found no room, the claim of the least important ask of its leaf that comes after it and asks
    for the same. Returns whether there is one."""
    if ask.triggered or not may_ever_preempt(ask) or ask.spec.topology is not None or ask.shape.devices is not None:
        return False
    holders = [holder for holder in ask.queue.claimants if comes_before(ask, holder)]
    for holder in sorted(holders, key=lambda holder: (holder.spec.priority, -holder.created_ns, holder.key)):
        claim = holder.reservation
        if claim is not None and _may_pass_to(state, claim, ask) and _is_lawful(state, claim, ask):
            _pass_on(state, claim, ask, now_ns)
            return True
    return False


def _may_pass_to(state: PartitionState, claim: Reservation, ask: Allocation) -> bool:
    holder, node = claim.ask, claim.node
    if claim.comes_last or holder.place is AskPlace.HELD or holder.spec.required_node:
        return False
    if state.gangs.hold_of(holder) is not None:
        return False
    if not node.schedulable or node.node_id in (ask.refused or ()) or node.node_id in ask.stuck.values():
        return False
    return claim.pairs == ask.shape.pairs


def _is_lawful(state: PartitionState, claim: Reservation, ask: Allocation) -> bool:
    """Tells whether the limits and laws 3 and 4 would have let the victims of *claim* go for *ask*. The others bind it
    less than the holder, which is less important and of the same leaf."""
    holder = claim.ask
    if any(victim.application is ask.application for victim in holder.victims.values()):
        return False
    swaps_in, noted = holder.swaps_in, len(state.gained)
    ledger.unbook_claim(state, holder)
    lawful = finding.exceeded_limit(state, ask) is None and bool(owing_queues(ask, state.guarantee_mode))
    ledger.book_claim(state, holder)
    holder.swaps_in = swaps_in
    del state.gained[noted:]  # It was only supposed, so nobody has gained anything.
    return lawful


def _pass_on(state: PartitionState, claim: Reservation, ask: Allocation, now_ns: int) -> None:
    holder, node, victims = claim.ask, claim.node, claim.ask.victims
    holder.victims = NO_VICTIMS
    moves.end_claim(state, holder)
    reservations.end_reservation(state, claim, requeue=True)
    for victim in victims.values():
        victim.preemptor = ask
    ask.victims = victims
    ledger.book_claim(state, ask)
    ask.outcome = Outcome.TRIGGERED
    reservations.reserve_node(state, ask, node, now_ns)
    ask.attempt_due = False
    plan = PreemptionPlan(KIND, ask, node, (), fence_root(ask))
    eviction.watch_exits(state, plan, now_ns, tuple(victims.values()))
    detail = f"takes over what leaves for ask {holder.spec.key}, which is less important"
    eviction.record_decision(state, KIND, ask, now_ns, Outcome.TRIGGERED, detail, plan)
    if may_ever_preempt(holder):
        set_due(state, holder, now_ns)
