"""Preemption as the partition does it: when an ask may try, what becomes of a plan, and when it may try again.

The planners decide who goes; :mod:`core.laws` judges whether that is lawful, before anything is touched. What an ask
preempts for is held for it; an attempt that was refused is repeated when something has changed
(:mod:`core.preemption.guarantee.refusals`). Rules: preemption.md B.1 (preconditions), B.7 (commit and handshake), F
(cycle), K3 (re-arming).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Final

from core.domain.commands import TerminationType
from core.domain.effects import PreemptionDecided, Released, VictimRecord
from core.domain.reasons import Outcome
from core.laws.verdict import Violation
from core.model.allocations import NO_VICTIMS, NONE_STUCK, Allocation, AskGroup
from core.model.nodes import Node
from core.model.users import Account
from core.partition.asks import moves, reservations
from core.partition.books import ledger
from core.partition.state import PartitionState
from core.partition.waiting import failing
from core.partition.waiting.places import offer_attempt
from core.partition.waiting.rooms import UNSERVED, look_again
from core.policies.view import PartitionView
from core.preemption import pacing
from core.preemption.governor import governing
from core.preemption.guarantee import laws
from core.preemption.guarantee import planner as guarantee
from core.preemption.guarantee.changes import Changes
from core.preemption.guarantee.consulting import MOST_ROUNDS, Dialogue
from core.preemption.guarantee.entitlement import entitlement
from core.preemption.guarantee.prospects import Unprepared
from core.preemption.plan import AnswerPending, PreemptionPlan, Refusal, Spared

ATTEMPT_COST: Final = 200
"""Decisions that one search for victims counts for in a slice's budget."""
ATTEMPTS_PER_LEAF: Final = 10
RETRY_NS: Final = 15 * 10**9
"""Time from the last victim's exit to re-arming, and to the next attempt where it hangs on more than the books."""
REARM_MAX_NS: Final = 600 * 10**9
_WAITS_FOR_CHANGE: Final = frozenset(
    {
        Outcome.NO_GUARANTEE, Outcome.ASK_EXCEEDS_GUARANTEE, Outcome.NOT_UNDER_GUARANTEE, Outcome.FENCED_AT_LEAF,
        Outcome.NO_CANDIDATES, Outcome.NO_NODE,
    }
)  # fmt: skip
"""Refusals that hang on the books of the partition alone: nothing comes of another attempt before they change."""
PASS_NS: Final = 100 * 10**6
"""How long an exhausted attempt budget lasts: the idle tick of the scheduling loop."""


def may_ever_preempt(ask: Allocation) -> bool:
    """Whether *ask* is one that guarantee-driven preemption serves at all."""
    return ask.spec.allow_preempt_other and not ask.spec.required_node


def watch(state: PartitionState, ask: Allocation) -> None:
    """Have *ask* considered as soon as it is old enough, and again after every pause."""
    if may_ever_preempt(ask):
        _due_at(state, ask, ask.created_ns + ask.queue.properties.preemption_delay_ns)


def _due_at(state: PartitionState, ask: Allocation, when_ns: int) -> None:
    heappush(state.attempts_due, (when_ns, state.next_number(), ask))


def collect_due(state: PartitionState, now_ns: int) -> None:
    """Note every ask whose time has come, and offer its group again so that placement gets its turn first."""
    due = state.attempts_due
    while due and due[0][0] <= now_ns:
        _offer_attempt(state, heappop(due)[2])
    changed, next_ns = state.refusals.due(state.changes, now_ns, partial(_look_for_changes, state), len(state.nodes))
    for ask in changed:
        _offer_attempt(state, ask)
    if next_ns is not None:
        _look_at_refusals(state, next_ns)


def watch_for_changes(state: PartitionState, now_ns: int) -> None:
    """A slice ends: what it changed may help asks that were refused before, or in it."""
    if state.refusals.empty:
        state.moved.clear()
        state.change_watch.forget()
        return
    if not state.change_watch.watching:
        # What these answers hang on is known from now on; what the slice did after them is not.
        state.refusals.doubt(_look_for_changes(state), state.changes, now_ns)
        if state.refusals.doubted:
            _look_at_refusals(state, max(now_ns + 1, state.refusals.next_look_ns))
    elif state.refusals.should_look(state.changes):
        _look_at_refusals(state, max(now_ns + 1, state.refusals.next_look_ns))


def _look_for_changes(state: PartitionState) -> Changes:
    changes = state.change_watch.look(state.nodes, state.moved, state.rules)
    state.moved.clear()
    return changes


def _look_at_refusals(state: PartitionState, when_ns: int) -> None:
    """See that a slice begins at *when_ns*, which looks at refused asks anyway."""
    if state.refusals_looked_at_ns is None or when_ns < state.refusals_looked_at_ns:
        state.refusals_looked_at_ns = when_ns

        def look(_: int) -> None:
            if state.refusals_looked_at_ns == when_ns:
                state.refusals_looked_at_ns = None

        state.at(when_ns, look)


def _offer_attempt(state: PartitionState, ask: Allocation) -> None:
    known = ask.pending and state.requests.get(ask.key) is ask and ask.application.state not in UNSERVED
    if not known or ask.triggered or ask.replaces is not None:
        return
    offer_attempt(state, ask)


def resume(state: PartitionState, now_ns: int) -> None:
    """Nothing is left to enforce: the turn of those that had to wait for it (H)."""
    deferred = state.enforcement.deferred
    for ask in deferred:
        _due_at(state, ask, now_ns)
    deferred.clear()
    collect_due(state, now_ns)


def begin_pass(state: PartitionState, now_ns: int) -> None:
    """Give every leaf its attempts back, at most once per idle tick."""
    if now_ns - state.pass_began_ns >= PASS_NS:
        state.pass_began_ns = now_ns
        state.attempts_left.clear()


def attempt_due(state: PartitionState, group: AskGroup, now_ns: int) -> bool:
    """*group* found no place: let its due asks, in order, try to preempt, up to the first that really searches.

    Whether that one made room. The others stay due, so that a slice can end between two searches.
    """
    before = state.preemption_attempts
    for ask in group.next_due():
        group.attempt_is_over(ask)
        if attempt(state, ask, now_ns):
            return True
        if state.preemption_attempts != before or state.prospects.behind:
            return False
    return False


def attempt(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """Try to make room for *ask*; on success its victims are told to leave and a node is reserved for it."""
    if state.enforcement.busy:
        state.enforcement.deferred[ask] = None
        return False
    refused = _precondition(state, ask, now_ns) if ask.dialogue is None else None
    if refused is not None:
        failing.note_preemption(ask, refused, now_ns)
        if ask.outcome is not refused:
            ask.outcome = refused
            record(state, guarantee.KIND, ask, now_ns, refused)
        return False
    if state.callbacks.full and ask.dialogue is None:
        _due_at(state, ask, now_ns + PASS_NS)
        return False
    leaf = ask.queue
    ask.attempt_due = False
    known = state.refusals.answer(ask, state.changes) if ask.dialogue is None else None
    if known is None and ask.dialogue is None:
        known = _refused_by_law_4(state, ask, now_ns)
    if known is not None:
        _tell_refusal(state, ask, known, now_ns)
        return False
    held = pacing.hold_back(state, ask, now_ns)
    if held is not None:
        pacing.note(state, guarantee.KIND, ask, held, now_ns)
        if held.retry_ns is not None:
            _due_at(state, ask, held.retry_ns)
        return False
    first_round = ask.dialogue is None
    try:
        result = _plan(state, ask, now_ns)
    except Unprepared:
        _due_at(state, ask, now_ns)
        return False
    if first_round:
        state.attempts_left[leaf] = state.attempts_left.get(leaf, ATTEMPTS_PER_LEAF) - 1
    state.preemption_attempts += 1
    if result is None:
        return False
    would_be: PreemptionPlan | None = None
    if isinstance(result, PreemptionPlan):
        result = unlawful(state, result, laws.check) or _governed(state, result, now_ns)
    if isinstance(result, PreemptionPlan):
        if not governing.shadowed(state, guarantee.KIND):
            governing.charge(state, result.victims, leaf.path, now_ns)
            _apply(state, result, now_ns)
            # A result ends the pass, so the next one starts with a full budget (B.1).
            state.attempts_left.pop(leaf, None)
            return True
        would_be, result = result, Refusal(Outcome.SHADOW)
    _tell_refusal(state, ask, result, now_ns, would_be)
    if result.outcome in _WAITS_FOR_CHANGE and result.retry_ns is None:
        state.refusals.note(ask, result, state.changes, now_ns)
    else:
        _due_at(state, ask, max(now_ns + RETRY_NS, result.retry_ns or 0))
    return False


def _refused_by_law_4(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """What law 4 has against *ask*: that takes no search, so it counts as no attempt (K17)."""
    entitled = entitlement(ask, state.guarantee_mode, state.types.names)
    if not isinstance(entitled, Refusal):
        return None
    state.refusals.note(ask, entitled, state.changes, now_ns)
    return entitled


def _tell_refusal(
    state: PartitionState, ask: Allocation, refusal: Refusal, now_ns: int, would_be: PreemptionPlan | None = None
) -> None:
    """Nobody goes for *ask*: say so if that is news."""
    failing.note_preemption(ask, refusal.outcome, now_ns)
    if ask.outcome is not refusal.outcome:
        ask.outcome = refusal.outcome
        record(state, guarantee.KIND, ask, now_ns, refusal.outcome, refusal.detail, would_be)


def cannot_help(state: PartitionState, ask: Allocation, account: Account, now_ns: int) -> None:
    """A limit of *account* keeps *ask* back, and no victim can change that: said once, with the numbers (K18)."""
    if ask.outcome is Outcome.USER_QUOTA:
        return
    ask.outcome = Outcome.USER_QUOTA
    failing.note_preemption(ask, Outcome.USER_QUOTA, now_ns)
    names = state.types.names
    held = ", ".join(f"{account.used[t]} of {most} {names[t]}" for t, most in account.limit.max.items())
    detail = f"preemption cannot help: {account.kind} {account.name} holds {held} in {account.queue.path}"
    record(state, guarantee.KIND, ask, now_ns, Outcome.USER_QUOTA, detail)


def _governed(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> PreemptionPlan | Refusal:
    """*plan*, or a lawful one with other victims, if the governor lets it pass.

    Where the shim has a say about victims there is no second plan: every one would have to be asked about anew.
    """

    def without(spared: Spared) -> PreemptionPlan | Refusal:
        found = guarantee.plan(state, plan.ask, index=state.victim_index, spared=spared, now_ns=now_ns)
        return found if isinstance(found, Refusal) else unlawful(state, found, laws.check) or found

    asked = state.callbacks.predicates or state.callbacks.preemption_predicates
    return governing.govern(state, plan, now_ns, None if asked else without)


def _plan(state: PartitionState, ask: Allocation, now_ns: int) -> PreemptionPlan | Refusal | None:
    """Victims for *ask*, or why there are none. ``None``: the shim is being asked, and the attempt goes on after it."""
    callbacks = state.callbacks
    dialogue = ask.dialogue
    if dialogue is None and (callbacks.predicates or callbacks.preemption_predicates):
        dialogue = Dialogue(state, ask)
    if dialogue is None:
        return guarantee.plan(state, ask, index=state.victim_index, known=state.prospects, now_ns=now_ns)
    ask.dialogue = None
    if dialogue.rounds == MOST_ROUNDS:
        return Refusal(Outcome.PREDICATE_REFUSED, f"no agreement with the predicate in {MOST_ROUNDS} rounds")
    if not dialogue.waits:
        dialogue.begin_round(now_ns)
        try:
            return guarantee.plan(
                state, ask, predicate=dialogue, index=state.victim_index, known=state.prospects, now_ns=now_ns
            )
        except AnswerPending:
            pass
        except Unprepared:
            ask.dialogue = dialogue
            raise
    ask.dialogue = dialogue
    return None


def _precondition(state: PartitionState, ask: Allocation, now_ns: int) -> Outcome | None:
    """The first of B.1's preconditions that fails; asks that only have to wait are made due again."""
    if state.attempts_left.get(ask.queue, ATTEMPTS_PER_LEAF) <= 0:
        _due_at(state, ask, state.pass_began_ns + PASS_NS)
        return Outcome.ATTEMPTS_EXHAUSTED
    if not ask.spec.allow_preempt_other:
        return Outcome.ASK_MAY_NOT_PREEMPT
    if ask.triggered:
        return Outcome.ALREADY_TRIGGERED
    if ask.spec.required_node:
        return Outcome.REQUIRED_NODE
    old_enough = ask.created_ns + ask.queue.properties.preemption_delay_ns
    if now_ns < old_enough:
        _due_at(state, ask, old_enough)
        return Outcome.TOO_YOUNG
    return None


def unlawful(
    state: PartitionState,
    plan: PreemptionPlan,
    check: Callable[[PartitionView, PreemptionPlan], tuple[Violation, ...]],
) -> Refusal | None:
    """Returns what *check* finds against *plan*: one that breaks a law is our bug, refused and counted."""
    if any(victim.released or victim.preempted for victim in plan.victims):
        return Refusal(Outcome.VICTIM_RELEASED)
    return judge(state, check(state, plan))


def judge(state: PartitionState, violations: tuple[Violation, ...]) -> Refusal | None:
    """Count a check of a plan by the laws, and return what its *violations* come to; ``None``: the plan is lawful."""
    state.law_checks += 1
    if not violations:
        return None
    state.law_violations += len(violations)
    return Refusal(Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in violations))


def _apply(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Have the victims leave, and hold what the ask needs on the node (B.7)."""
    trigger(state, plan, now_ns)
    reservations.reserve_node(state, plan.ask, plan.node, now_ns)


def trigger(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Mark the victims, claim what the ask will use, tell the shim (B.7)."""
    ask = plan.ask
    evict(state, plan.victims, ask, f"preempted for ask {ask.spec.key} of application {ask.application.application_id}")
    ask.victims = {**ask.victims, **{victim.key: victim for victim in plan.victims}}
    if state.recording:
        state.events.preempted(plan.victims, ask)
    ledger.claim(state, ask)
    ask.outcome = Outcome.TRIGGERED
    state.preemptions += 1
    pacing.count(state, plan, now_ns)
    _watch_exits(state, plan, now_ns)
    record(state, plan.kind, ask, now_ns, Outcome.TRIGGERED, plan=plan)


def _watch_exits(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Look after a while whether those have left whom *plan* relies on (K14).

    Without victims of its own that is who was leaving the node already. Has their room gone to others, the ask looks
    elsewhere. Victims whose ask needs them no more are given up as well: others may have claimed what they leave.
    """
    ask = plan.ask
    rearms = ask.rearms
    leaving = plan.victims or tuple([a for a in plan.node.allocations.values() if a.preempted and a not in state.stuck])

    def look(at_ns: int) -> None:
        waits = ask.triggered and ask.rearms == rearms
        stuck = tuple(victim for victim in leaving if victim.preempted and victim not in state.stuck)
        if stuck:
            _give_up_victims(state, replace(plan, victims=stuck, adjusted=()), at_ns, waits=waits)
        elif waits and not plan.victims:
            rearm(state, ask, at_ns)

    state.at(now_ns + state.preemption.victim_timeout_ns, look)
    if not plan.victims:
        _watch_room(state, ask, leaving, now_ns)


def _watch_room(state: PartitionState, ask: Allocation, leaving: Sequence[Allocation], now_ns: int) -> None:
    """*ask* claimed what others were *leaving*: when they have been gone for a while in vain, it is re-armed (K3).

    Who has victims of its own hears of the last one's exit.
    """
    _look_for_room(state, ask, leaving, ask.rearms, now_ns, gone=False)


def _look_for_room(
    state: PartitionState, ask: Allocation, leaving: Sequence[Allocation], rearms: int, now_ns: int, *, gone: bool
) -> None:
    """Look after :data:`RETRY_NS` whether those *leaving* have left; *gone*: they had at the look before."""

    def look(at_ns: int) -> None:
        if not ask.triggered or ask.rearms != rearms:
            return
        if gone:
            rearm(state, ask, at_ns)
            return
        left = not any(victim.preempted for victim in leaving)
        _look_for_room(state, ask, leaving, rearms, at_ns, gone=left)

    state.at(now_ns + RETRY_NS, look)


def _give_up_victims(state: PartitionState, plan: PreemptionPlan, now_ns: int, *, waits: bool) -> None:
    """The victims of *plan* do not leave, and stay marked; its ask, if it *waits* for them, looks elsewhere (K14)."""
    ask = plan.ask
    waited_s = state.preemption.victim_timeout_ns / 10**9
    record(state, plan.kind, ask, now_ns, Outcome.VICTIM_STUCK, f"not gone after {waited_s:g} s", plan)
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
        rearm(state, ask, now_ns)


def evict(state: PartitionState, victims: Sequence[Allocation], preemptor: Allocation | None, message: str) -> None:
    """Mark *victims* and tell the shim to end them, for *preemptor* or, without one, for their queue's sake."""
    moves.mark_victims(state, dict.fromkeys(victims, preemptor))
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


def victim_left(state: PartitionState, victim: Allocation, now_ns: int) -> None:
    """A marked victim is gone: once the last one of its preemptor is, the wait until re-arming begins (K3)."""
    waited_for = state.stuck.pop(victim, None)
    if isinstance(waited_for, Allocation):
        waited_for.stuck = {key: node for key, node in waited_for.stuck.items() if key != victim.key} or NONE_STUCK
    ask = victim.preemptor
    victim.preemptor = None
    if ask is None or ask.victims.pop(victim.key, None) is None or ask.victims:
        return
    ask.victims = NO_VICTIMS
    if not ask.triggered:
        return
    if ask.reservation is not None:
        # Its turn has come, also where a quota kept it back that its own victims make room in.
        look_again(state, ask.reservation)
    ask.rearm_ns = now_ns + min(RETRY_NS << ask.rearms, REARM_MAX_NS)
    due_ns = ask.rearm_ns

    def rearm_if_still_waiting(at_ns: int) -> None:
        if ask.triggered and ask.rearm_ns == due_ns and ask.pending:
            rearm(state, ask, at_ns)

    state.at(due_ns, rearm_if_still_waiting)


def rearm(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """*ask* lost the room it preempted for: claim and reservation go, and it may try again.

    The node that an ask must run on stays reserved for it.
    """
    moves.end_claim(state, ask)
    ask.rearms += 1
    ask.rearm_ns = 0
    if ask.reservation is not None:
        if ask.spec.required_node:
            look_again(state, ask.reservation)
        else:
            reservations.end_reservation(state, ask.reservation, requeue=True)
    if may_ever_preempt(ask):
        _due_at(state, ask, now_ns)


def give_way(state: PartitionState, node: Node, now_ns: int) -> None:
    """More is claimed on *node* since an ask must run there: the youngest claims of others give way at once (H).

    Those who preempt may do so again elsewhere. Those who have waited long come last anyway and stay.
    """
    while node.claims is not None and node.claims.exceed(node.free):
        claims = [reservation for reservation in node.claims.in_order() if reservation.rank == 1]
        if not claims:
            return
        rearm(state, claims[-1].ask, now_ns)


def leave_too_small(state: PartitionState, node: Node, now_ns: int) -> None:
    """*node* or a holder changed its size: who can never run there holds nothing there, and looks elsewhere."""
    for reservation in list(node.reservations.values()):
        ask = reservation.ask
        if node.could_hold(ask.shape.pairs):
            continue
        if ask.triggered:
            rearm(state, ask, now_ns)
        if ask.reservation is reservation:
            reservations.end_reservation(state, reservation, requeue=True)


def forget(state: PartitionState, ask: Allocation) -> None:
    """*ask* is withdrawn: its claim and reservation go, its victims still leave (B.7)."""
    moves.end_claim(state, ask)
    state.refusals.forget(ask)
    ask.dialogue = None
    ask.attempt_due = False
    for victim in ask.victims.values():
        victim.preemptor = None
    ask.victims = NO_VICTIMS
    if ask.reservation is not None:
        reservations.end_reservation(state, ask.reservation)


def record(
    state: PartitionState,
    kind: str,
    ask: Allocation,
    now_ns: int,
    outcome: Outcome,
    detail: str = "",
    plan: PreemptionPlan | None = None,
) -> None:
    """Put down how an attempt of *kind* for *ask* ended (preemption.md I)."""
    victims: tuple[VictimRecord, ...] = ()
    if plan is not None:
        adjusted = plan.adjusted or (0,) * len(plan.victims)
        victims = tuple(map(victim_record, plan.victims, adjusted))
        if not detail:
            detail = f"needs {plan.needs}, fence {plan.fence.path}"
            if plan.weighed:
                detail += f"; weighed: {plan.weighed}"
    state.effects.append(
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
        )
    )


def victim_record(victim: Allocation, adjusted_priority: int) -> VictimRecord:
    """*victim* as decisions name it."""
    return VictimRecord(
        victim.spec.key,
        victim.application.application_id,
        victim.queue.path,
        victim.node.node_id if victim.node is not None else "",
        victim.shape.resources,
        adjusted_priority,
    )
