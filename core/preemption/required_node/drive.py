"""Makes room on the one node on which an ask must run, by preempting tasks there (preemption.md C).

The ask has a reservation on the node already. It needs no age, no guarantee and no remaining attempt, and
``preemption.enabled`` does not matter.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.not_placed import NotPlaced
from kornel.core.policies.claim_order import comes_before
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.consulting import Dialogue
from kornel.core.preemption.plan import AnswerPending, PreemptionPlan, Refusal
from kornel.core.preemption.required_node import laws
from kornel.core.preemption.required_node import planner as required_node
from kornel.core.state.asks import moves
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import failing
from kornel.core.state.waiting.rooms import look_again
from kornel.core.state.waiting.waking import wake_borrowers

ATTEMPT_COST: Final = 10
"""The cost of one such search in a slice's budget, in decisions."""


def has_asks(state: PartitionState) -> bool:
    """Tells whether an ask that must run on its node is to be tried again."""
    return any(map(must_run_there, state.reserved_ready))


def must_run_there(reservation: Reservation) -> bool:
    """Tells whether the ask of *reservation* must run on its node."""
    return bool(reservation.ask.spec.required_node)


def attempt_preemption(state: PartitionState, reservation: Reservation, now_ns: int) -> bool:
    """Preempt the least important tasks on the node so that the ask fits. Returns whether there are victims.

    It has to be called only if the quotas admit the ask. Nothing happens if the ask fits already, or has preempted
    before.
    """
    found = find_plan(state, reservation, now_ns)
    if not isinstance(found, PreemptionPlan):
        return False
    apply_plan(state, reservation, found, now_ns)
    return True


def find_plan(state: PartitionState, reservation: Reservation, now_ns: int) -> PreemptionPlan | Refusal | None:
    """Returns the plan for the ask of *reservation* to preempt on its node now, or why there is none, which is
    recorded. ``None``: none is needed, because the room is there or about to be, and is claimed; or the shim is being
    asked, and the ask tries again after its answer."""
    ask, node = reservation.ask, reservation.node
    if ask.triggered:
        return None
    if required_node.room_is_coming(state, node, ask):
        ask.dialogue = None
        _rank_claim(state, reservation, now_ns, last=False)
        ledger.book_claim(state, ask)
        eviction.watch_exits(state, PreemptionPlan(required_node.KIND, ask, node, (), state.root), now_ns, ())
        device_books.keep_devices(node, ask, (), state.stuck)
        return None
    # No room is coming, so asks that preempt on this node come first until victims leave for this ask.
    _rank_claim(state, reservation, now_ns, last=True)
    if ask.dialogue is not None and ask.dialogue.waits:
        return None
    held = hold_back(state, now_ns)
    if held is not None:
        budgets.note_held_back(state, required_node.KIND, ask, held, now_ns, reservation)
        return held
    state.preemption_attempts += 1
    state.search_cost += ATTEMPT_COST
    would_be: PreemptionPlan | None = None
    result = required_node.plan_preemption(state, ask, node)
    if isinstance(result, PreemptionPlan):
        refusal = eviction.check_lawful(state, result, laws.check) or budgets.refuse_too_many(state, result)
        if refusal is None and not budgets.is_shadowed(state, required_node.KIND):
            try:
                refusal = _consult_shim(state, result, now_ns)
            except AnswerPending:
                return None
            if refusal is None:
                return result
        # A plan in shadow mode is recorded with its would-be victims.
        would_be = result if refusal is None else None
        result = refusal or Refusal(Outcome.SHADOW)
    failing.note_preemption(ask, result.outcome, now_ns)
    if state.recording and result.outcome is Outcome.NO_VICTIM_REQUIRED_NODE:
        state.events.no_victim_on_required_node(ask)
    # The outcome is recorded once: every change on the node is another attempt (scheduling.md 8.4), and most end the
    # same way.
    if ask.outcome is not result.outcome:
        ask.outcome = result.outcome
        eviction.record_decision(state, required_node.KIND, ask, now_ns, result.outcome, result.detail, would_be)
    return result


def _consult_shim(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> Refusal | None:
    """Asks the shim whether the ask of *plan* would run there once its victims, and those that leave already, are gone
    or, if the shim answers no such questions, whether it might run there at all. Returns why nobody is to leave.

    Raises :class:`AnswerPending` while the shim is being asked.
    """
    ask, node, callbacks = plan.ask, plan.node, state.callbacks
    ask.attempt_due = False
    if not (callbacks.predicates or callbacks.preemption_predicates):
        return None
    dialogue = ask.dialogue = ask.dialogue or Dialogue(state, ask)
    # A no holds also if the victims would be others by now.
    dialogue.leave_out_refused(now_ns)
    if node.node_id in (ask.refused or ()):
        ask.dialogue = None
        return Refusal(Outcome.PREDICATE_REFUSED, f"the predicate refused {node.node_id}")
    dialogue.begin_round(now_ns)
    gone = (*required_node.list_leaving(state, node), *plan.victims) if callbacks.preemption_predicates else ()
    dialogue(ask, node, gone, len(gone) - 1)
    ask.dialogue = None
    return None


def hold_back(state: PartitionState, now_ns: int) -> Refusal | None:
    """Returns why no ask may preempt on its required node now; ``None``: an attempt may be made. Changes nothing, so
    that forecasts ask it too."""
    if required_node.KIND not in state.preemption.policies:
        return Refusal(Outcome.POLICY_OFF, f"preemption.policies does not list {required_node.KIND}")
    return budgets.check_limit(state, required_node.KIND, (), now_ns)


def apply_plan(state: PartitionState, reservation: Reservation, plan: PreemptionPlan, now_ns: int) -> None:
    """Carries out *plan* for *reservation*, which comes first on its node from now on."""
    budgets.note_taken(state, plan.kind, plan.victims, None, plan.ask.shape.pairs, now_ns)
    eviction.apply_plan(state, plan, now_ns)
    device_books.keep_devices(plan.node, reservation.ask, plan.victims, state.stuck)
    _rank_claim(state, reservation, now_ns, last=False)


def _rank_claim(state: PartitionState, reservation: Reservation, now_ns: int, *, last: bool) -> None:
    """Ranks the claim of *reservation*: before asks that preempt on its node while its victims leave, or *last*."""
    node = reservation.node
    if reservation.comes_last is not last:
        equals = [r for r in node.reservations.values() if last and r.comes_last and must_run_there(r)]
        node.rank_claim(reservation, [r for r in equals if comes_before(r.ask, reservation.ask)], last=last)
        if last:
            state.reserving.saved[reservation] = None
        else:
            del state.reserving.saved[reservation]
        state.node_order.refresh_node(node)
        state.changes += 1
        if last and node.claims is not None:
            # The room that it held is now open to asks that preempt there, and is lent to those who come before it.
            for other in [claim for claim in node.claims.to_wake(node.free) if claim is not reservation]:
                look_again(state, other)
            wake_borrowers(state, node)
    if not last:
        eviction.end_excess_claims(state, node, now_ns)


def serve_reserved(state: PartitionState, reservation: Reservation, limited: NotPlaced | None, now_ns: int) -> bool:
    """Tries to make room for the ask of *reservation* on its required node, if neither a limit nor the shim keeps the
    ask from running there. A no of the shim ends what is claimed firmly for it; the room stays saved.

    Returns whether the release of victims was asked for.
    """
    ask = reservation.ask
    if not ask.spec.required_node:
        return False
    if reservation.node.node_id in (ask.refused or ()):
        moves.end_claim(state, ask)
        _rank_claim(state, reservation, now_ns, last=True)
        return False
    return limited is None and attempt_preemption(state, reservation, now_ns)


def look_at_node(state: PartitionState, allocation: Allocation, _now_ns: int) -> None:
    """Try again the asks that must run on the node of *allocation*, which may block them without having been placed, or
    may be preempted for them from now on."""
    if allocation.node is None:
        return
    for reservation in allocation.node.reservations.values():
        if reservation.ask.spec.required_node:
            look_again(state, reservation)
