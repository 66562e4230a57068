"""Carries out plans of all kinds: judges a plan, asks the shim to release its victims, and watches for their exits.

The laws of its kind decide whether a plan is lawful before anything is changed. The room that an ask preempts for is
held for it. Rules: preemption.md B.7 (commit and handshake), I (records), K3 (re-arming), K14 (victims that stay).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kornel.core.domain.commands import TerminationType
from kornel.core.domain.effects import PreemptionDecided, Released, VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.laws.verdict import Violation
from kornel.core.model.allocations import NO_VICTIMS, NONE_STUCK, Allocation, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Shape
from kornel.core.policies.guarantees import project_usage
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.budgets import RETRY_NS, may_ever_preempt, set_due, watch_age
from kornel.core.preemption.gang_losses import describe_torn, describe_whole, is_bound, members_of
from kornel.core.preemption.plan import PreemptionPlan, Refusal
from kornel.core.state.asks import moves, questions, reservations
from kornel.core.state.asks.group_domains import is_with_others
from kornel.core.state.asks.savings import could_ever_hold, review_savings
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import backoff
from kornel.core.state.waiting.places import wait_in_line
from kornel.core.state.waiting.rooms import look_again

REARM_MAX_NS: Final = 600 * 10**9


def check_lawful(
    state: PartitionState,
    plan: PreemptionPlan,
    check: Callable[[PartitionView, PreemptionPlan], tuple[Violation, ...]],
) -> Refusal | None:
    """Returns why *plan* must not be applied, according to *check*; ``None``: it may be. A plan that breaks a law is a
    bug of the core, which is refused and counted."""
    if any(victim.released or victim.preempted for victim in plan.victims):
        return Refusal(Outcome.VICTIM_RELEASED)
    return judge_plan(state, check(state, plan))


def judge_plan(state: PartitionState, violations: tuple[Violation, ...]) -> Refusal | None:
    """Counts a check of a plan by the laws. Returns the refusal that its *violations* make up; ``None``: the plan is
    lawful."""
    state.law_checks += 1
    if not violations:
        return None
    state.law_violations += len(violations)
    return Refusal(Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in violations))


def apply_plan(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Marks the victims of *plan*, claims what its ask will use, and asks the shim to release the victims
    (preemption.md B.7)."""
    ask = plan.ask
    # This precedes the marking, because marked allocations count as gone.
    whole, torn = describe_whole(plan.victims), describe_torn(plan.victims)
    evict_victims(
        state,
        plan.victims,
        ask,
        f"preempted for ask {ask.spec.key} of application {ask.application.application_id}",
        now_ns,
    )
    ask.victims = {**ask.victims, **{victim.key: victim for victim in plan.victims}}
    if state.recording:
        state.events.preempted_for_ask(plan.victims, ask, {**whole, **torn})
    ledger.book_claim(state, ask)
    ask.outcome = Outcome.TRIGGERED
    state.preemptions += 1
    watch_exits(state, plan, now_ns, plan.victims)
    detail = _describe_plan(plan, *whole.values(), *torn.values())
    record_decision(state, plan.kind, ask, now_ns, Outcome.TRIGGERED, detail, plan)


def watch_exits(state: PartitionState, plan: PreemptionPlan, now_ns: int, own: tuple[Allocation, ...]) -> None:
    """Checks after a while whether the victims that *plan* relies on have left (preemption.md K14), among them its
    *own*.

    A plan without victims of its own relies on allocations that were leaving the node already; if their room went to
    others, its ask tries elsewhere. Victims that their ask no longer needs are given up as well, because others may
    have claimed their room.
    """
    ask = plan.ask
    leaving = own or tuple([a for a in plan.node.allocations.values() if a.preempted and a not in state.stuck])
    state.run_at(
        now_ns + state.preemption.victim_timeout_ns, partial(_look_at_victims, state, plan, leaving, ask.rearms)
    )
    if not own:
        _watch_room(state, ask, leaving, now_ns)


def _look_at_victims(
    state: PartitionState, plan: PreemptionPlan, leaving: Sequence[Allocation], rearms: int, now_ns: int
) -> None:
    ask = plan.ask
    waits = ask.triggered and ask.rearms == rearms
    stuck = tuple(victim for victim in leaving if victim.preempted and victim not in state.stuck)
    if stuck:
        give_up_victims(state, replace(plan, victims=stuck, adjusted=()), now_ns, waits=waits)
    elif waits and not plan.victims and not ask.victims:
        rearm_ask(state, ask, now_ns)


def _watch_room(state: PartitionState, ask: Allocation, leaving: Sequence[Allocation], now_ns: int) -> None:
    """Re-arms *ask*, which claimed the room of victims of others, *leaving*, if it is still not placed a while after
    they have left (preemption.md K3).

    An ask with victims of its own is re-armed after the exit of the last one instead.
    """
    state.run_at(now_ns + RETRY_NS, partial(_look_for_room, state, ask, leaving, ask.rearms, False))


def _look_for_room(
    state: PartitionState,
    ask: Allocation,
    leaving: Sequence[Allocation],
    rearms: int,
    gone: bool,
    now_ns: int,
) -> None:
    """Checks every :data:`RETRY_NS` whether the victims *leaving* have left; *gone* tells whether they had at the last
    check."""
    if not ask.triggered or ask.victims or ask.rearms != rearms:
        return
    if gone:
        rearm_ask(state, ask, now_ns)
        return
    left = not any(victim.preempted for victim in leaving)
    state.run_at(now_ns + RETRY_NS, partial(_look_for_room, state, ask, leaving, rearms, left))


def give_up_victims(state: PartitionState, plan: PreemptionPlan, now_ns: int, *, waits: bool) -> None:
    """Stops counting on the victims of *plan*, which do not leave but stay marked. If its ask *waits* for them, it
    tries elsewhere (preemption.md K14)."""
    ask = plan.ask
    waited_s = state.preemption.victim_timeout_ns / 10**9
    detail = f"not gone after {waited_s:g} s"
    hold = state.gangs.hold_of(ask)
    gang_plan = 0 if hold is None else hold.number
    record_decision(state, plan.kind, ask, now_ns, Outcome.VICTIM_STUCK, detail, plan, gang_plan=gang_plan)
    for victim in plan.victims:
        preemptor, victim.preemptor = victim.preemptor, None
        if preemptor is not None:
            preemptor.victims.pop(victim.key, None)
        state.stuck[victim] = ask
        ledger.expect_no_exit(state, victim)
    if not ask.pending:
        return
    nodes = {victim.key: victim.node.node_id for victim in plan.victims if victim.node is not None}
    ask.stuck = {**ask.stuck, **nodes}
    if ask.triggered and (waits or not ask.victims):
        ask.outcome = Outcome.VICTIM_STUCK
        ask.victims = NO_VICTIMS
        rearm_ask(state, ask, now_ns)


def evict_victims(
    state: PartitionState, victims: Sequence[Allocation], preemptor: Allocation | None, message: str, now_ns: int
) -> None:
    """Marks *victims* and asks the shim to release them, for *preemptor* or, if there is none, because of their
    queue."""
    mark_victims(state, dict.fromkeys(victims, preemptor), now_ns)
    state.effects.extend(
        Released(
            state.name,
            victim.application.application_id,
            victim.spec.key,
            TerminationType.PREEMPTED_BY_SCHEDULER,
            message,
            victim.spec.instance,
        )
        for victim in victims
    )


def mark_victims(state: PartitionState, victims: Mapping[Allocation, Allocation | None], now_ns: int) -> None:
    """Marks *victims*, each for the ask that it is mapped to. While whole gangs leave, no new members of theirs are
    placed."""
    state.gangs.lost += sum(map(is_bound, victims))
    moves.mark_victims(state, victims)
    for application in dict.fromkeys(victim.application for victim in victims if is_bound(victim)):
        for_itself = any(p is not None and p.application is application for p in victims.values())
        if not for_itself and not members_of(application):
            backoff.wait_for_gang_exit(state, application, now_ns + state.preemption.victim_timeout_ns)
            _give_back_places(state, application)


def _expects_exits(state: PartitionState, application: Application) -> bool:
    """Tells whether some victim of *application* is still expected to leave."""
    return any(a.preempted and a not in state.stuck for a in application.allocations.values())


def _give_back_places(state: PartitionState, application: Application) -> None:
    """Makes the asks of *application* that are held on nodes, have reservations or preempt wait in line."""
    for ask in list(application.asks.values()):
        questions.cancel_question(state, ask)
        if ask.reservation is not None or ask.triggered:
            forget_ask(state, ask)
            wait_in_line(state, ask)
            watch_age(state, ask)


def victim_left(state: PartitionState, victim: Allocation, now_ns: int) -> None:
    """Notes that *victim* is gone. After the last victim of a preemptor, the time until it is re-armed begins
    (preemption.md K3)."""
    waited_for = state.stuck.pop(victim, None)
    if isinstance(waited_for, Allocation):
        waited_for.stuck = {key: node for key, node in waited_for.stuck.items() if key != victim.key} or NONE_STUCK
    application = victim.application
    if application in state.gangs.leaving and not _expects_exits(state, application):
        backoff.end_early(state, application)
    ask = victim.preemptor
    victim.preemptor = None
    if ask is None or ask.victims.pop(victim.key, None) is None or ask.victims:
        return
    ask.victims = NO_VICTIMS
    if not ask.triggered:
        return
    if ask.reservation is not None:
        # The ask is tried now, even if a quota kept it back, because its own victims may have made room there.
        look_again(state, ask.reservation)
    if state.gangs.hold_of(ask) is not None:
        return  # It waits for the victims of its gang; all members are re-armed together.
    ask.rearm_ns = now_ns + _rearm_delay(ask)
    state.run_at(ask.rearm_ns, partial(_rearm_if_waiting, state, ask, ask.rearm_ns))


def _rearm_if_waiting(state: PartitionState, ask: Allocation, due_ns: int, now_ns: int) -> None:
    if ask.triggered and ask.rearm_ns == due_ns and ask.pending:
        rearm_ask(state, ask, now_ns)


def _rearm_delay(ask: Allocation) -> int:
    """Returns how long *ask* waits before it tries again, in nanoseconds: twice as long each time."""
    return min(RETRY_NS << ask.rearms, REARM_MAX_NS)


def rearm_ask(state: PartitionState, ask: Allocation, due_ns: int) -> None:
    """Lets *ask*, which lost the room that it preempted for, try again at *due_ns*, and ends its claim and its
    reservation.

    The reservation of a required node stays.
    """
    moves.end_claim(state, ask)
    ask.rearms += 1
    if ask.reservation is not None:
        if ask.spec.required_node:
            look_again(state, ask.reservation)
        else:
            reservations.end_reservation(state, ask.reservation, requeue=True)
    if may_ever_preempt(ask):
        set_due(state, ask, due_ns)


def review_claims(state: PartitionState, node: Node, now_ns: int) -> None:
    """Ends the claims that *node* can hold no longer, because its size, or what nobody could refuse there (load of
    other schedulers, recovered and resized allocations), has changed (preemption.md B.7)."""
    end_excess_claims(state, node, now_ns, pauses=True)
    leave_too_small(state, node, now_ns)
    review_savings(state, node)


def end_excess_claims(state: PartitionState, node: Node, now_ns: int, *, pauses: bool = False) -> None:
    """Ends the youngest claims of preemptors on *node* while more of what they hold is claimed than there will be.

    They may preempt again elsewhere: at once or, if whoever took the room could take it again and again and so *pauses*
    them, when K3 would have let them. Reservations by age stay, because they come last anyway.
    """
    while (claims := node.claims) is not None:
        short = {t for t in range(len(node.free)) if claims.is_overdrawn(node.free, t)}
        holders = [c for c in claims.in_order() if c.rank == 1 and any(t in short for t, _ in c.pairs)]
        if not holders:
            return
        ask = holders[-1].ask
        if pauses and state.recording:
            state.events.freed_room_taken(holders[-1])
        waits = pauses and node.could_hold_shape(ask.shape)
        rearm_ask(state, ask, max(now_ns, ask.rearm_ns or now_ns + _rearm_delay(ask)) if waits else now_ns)


def leave_too_small(state: PartitionState, node: Node, now_ns: int) -> None:
    """Ends the reservations on *node* of asks that can never run there, because the node, the load of other schedulers
    there or the ask has changed its size, or the node its domain; the asks try elsewhere."""
    for reservation in list(node.reservations.values()):
        ask = reservation.ask
        if not could_ever_hold(node, ask) or not is_with_others(state, ask, node):
            _leave_node(state, reservation, now_ns)


def review_size(state: PartitionState, ask: Allocation, before: Shape, now_ns: int) -> None:
    """Ends the claim of *ask*, which had the size *before*, on a node that is too small for it now, and a firm one for
    the amounts of which too little leaves, or which a limit would not admit (preemption.md B.7)."""
    if ask.reservation is None:
        return
    node, former = ask.reservation.node, dict(before.pairs)
    leave_too_small(state, node, now_ns)
    more = tuple([(t, amount) for t, amount in ask.shape.pairs if amount > former.get(t, 0)])
    if not ask.triggered or not more or state.gangs.hold_of(ask) is not None:  # Gangs are repaired.
        return
    # Its claim counts there already.
    queues, own = ask.queue.lineage(), {t: -amount for t, amount in more}
    limited = not all(account.admits(more, own) for account in ask.accounts)
    limited = limited or any(
        # A queue that is above its max already gets no fuller.
        project_usage(queue, t) > max(queue.max.get(t, math.inf), queue.used[t])
        for queue in queues
        for t, _ in more
    )
    if limited or node.is_overdrawn(more):
        rearm_ask(state, ask, now_ns)


def leave_drained(state: PartitionState, node: Node, now_ns: int) -> None:
    """Ends the claims on *node*, which takes no more work, but for asks that must run there. The asks look elsewhere;
    victims that were asked to leave do so all the same (preemption.md B.7)."""
    for reservation in list(node.reservations.values()):
        if not reservation.ask.spec.required_node:
            _leave_node(state, reservation, now_ns)


def _leave_node(state: PartitionState, reservation: Reservation, now_ns: int) -> None:
    ask = reservation.ask
    if ask.triggered:
        rearm_ask(state, ask, now_ns)
    if ask.reservation is reservation:
        reservations.end_reservation(state, reservation, requeue=True)


def forget_ask(state: PartitionState, ask: Allocation) -> None:
    """Ends the claim and the reservation of *ask*, which is withdrawn; its victims still leave (preemption.md B.7)."""
    moves.end_claim(state, ask)
    for record in state.records.values():
        record.forget_ask(ask)
    ask.dialogue = None
    ask.attempt_due = False
    for victim in ask.victims.values():
        victim.preemptor = None
    ask.victims = NO_VICTIMS
    if ask.reservation is not None:
        reservations.end_reservation(state, ask.reservation)


def record_decision(
    state: PartitionState,
    kind: str,
    ask: Allocation,
    now_ns: int,
    outcome: Outcome,
    detail: str = "",
    plan: PreemptionPlan | None = None,
    *,
    gang_plan: int = 0,
) -> None:
    """Records how an attempt of *kind* for *ask* ended (preemption.md I). *gang_plan*: the number of the plan for a
    gang that it belongs to."""
    victims: tuple[VictimRecord, ...] = ()
    if plan is not None:
        victims = victim_records(plan)
        detail = detail or _describe_plan(plan)
    if gang_plan:
        detail = f"plan {gang_plan}: {detail}"
    state.report_decision(
        PreemptionDecided(
            now_ns,
            state.name,
            kind,
            ask.spec.key,
            ask.application.application_id,
            ask.queue.path,
            outcome,
            detail,
            plan.node.node_id if plan is not None else "",
            victims,
            gang_plan,
        )
    )


def _describe_plan(plan: PreemptionPlan, *notes: str) -> str:
    weighed = (f"weighed: {plan.weighed}",) if plan.weighed else ()
    return "; ".join([f"needs {plan.needs}, fence {plan.fence.path}", *notes, *weighed])


def victim_records(plan: PreemptionPlan) -> tuple[VictimRecord, ...]:
    """Returns the victims of *plan* as decisions record them."""
    return tuple(map(victim_record, plan.victims, plan.adjusted or (0,) * len(plan.victims)))


def victim_record(victim: Allocation, adjusted_priority: int) -> VictimRecord:
    """Returns *victim* as decisions record it."""
    return VictimRecord(
        victim.spec.key,
        victim.application.application_id,
        victim.queue.path,
        victim.node.node_id if victim.node is not None else "",
        victim.shape.resources,
        adjusted_priority,
    )
