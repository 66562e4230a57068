"""Preemption as the partition does it: when an ask may try, what becomes of a plan, and when it may try again.

Who goes is decided by :mod:`core.policies.preemption`; whether that is lawful by :mod:`core.laws`, before anything is
touched. Rules: preemption.md B.1 (preconditions), B.7 (commit and handshake), F (cycle), K3 (re-arming).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

from core import laws
from core.domain.commands import TerminationType
from core.domain.effects import PreemptionDecided, Released, VictimRecord
from core.domain.reasons import Outcome
from core.model.allocations import NO_VICTIMS, NONE_STUCK, Allocation, AskGroup
from core.model.nodes import Node
from core.model.users import Account
from core.partition.books import ledger
from core.partition.preemption import governing
from core.partition.preemption.consulting import MOST_ROUNDS, Dialogue
from core.partition.scheduling import failing, placement
from core.partition.scheduling.waiting import UNSERVED, activate, look_again
from core.partition.state import PartitionState
from core.policies.preemption import guarantee
from core.policies.preemption.entitlement import UNENTITLED, numbers
from core.policies.preemption.plan import AnswerPending, PreemptionPlan, QuotaPlan, Refusal, Spared

ATTEMPT_COST: Final = 200
"""Decisions that one search for victims counts for in a slice's budget."""
ATTEMPTS_PER_LEAF: Final = 10
RETRY_NS: Final = 15 * 10**9
"""Least time between two attempts of one ask, and from the last victim's exit to re-arming."""
REARM_MAX_NS: Final = 600 * 10**9
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
        ask = heappop(due)[2]
        known = ask.pending and state.requests.get(ask.key) is ask and ask.application.state not in UNSERVED
        if not known or ask.triggered or ask.replaces is not None:
            continue
        if ask.group is not None:
            ask.group.attempt_is_due(ask)
            activate(ask.group)
        elif ask.reservation is not None:
            ask.attempt_due = True
            look_again(state, ask.reservation)
        else:  # The shim is being asked about it, or has just refused it: noted until it is back.
            ask.attempt_due = True


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
    for ask in sorted(group.due, key=lambda waiting: waiting.order):
        group.attempt_is_over(ask)
        if attempt(state, ask, now_ns):
            return True
        if state.preemption_attempts != before:
            return False
    return False


def attempt(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """Try to make room for *ask*; on success its victims are told to leave and a node is reserved for it."""
    if state.enforcement.busy:
        _due_at(state, ask, now_ns + PASS_NS)
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
    if ask.dialogue is None and _refused_before(state, ask, now_ns):
        return False
    if ask.dialogue is None:
        state.attempts_left[leaf] = state.attempts_left.get(leaf, ATTEMPTS_PER_LEAF) - 1
        ask.last_attempt_ns = now_ns
    state.preemption_attempts += 1
    result = _plan(state, ask, now_ns)
    if result is None:
        return False
    would_be: PreemptionPlan | None = None
    if isinstance(result, PreemptionPlan):
        result = unlawful(state, result) or _governed(state, result, now_ns)
    if isinstance(result, PreemptionPlan):
        if not governing.shadowed(state, guarantee.KIND):
            governing.charge(state, result.victims, leaf.path, now_ns)
            _apply(state, result, now_ns)
            # A result ends the pass, so the next one starts with a full budget (B.1).
            state.attempts_left.pop(leaf, None)
            return True
        would_be, result = result, Refusal(Outcome.SHADOW)
    if result.outcome in UNENTITLED:
        numbers_now = numbers(ask, state.guarantee_mode)
        state.unentitled.setdefault(leaf, {})[ask.shape] = (numbers_now, result)
    _refused(state, ask, result, now_ns, would_be)
    return False


def _refused(
    state: PartitionState, ask: Allocation, refusal: Refusal, now_ns: int, would_be: PreemptionPlan | None = None
) -> None:
    """Nobody goes for *ask*: say so if that is news, and try again later."""
    failing.note_preemption(ask, refusal.outcome, now_ns)
    if ask.outcome is not refusal.outcome:
        ask.outcome = refusal.outcome
        record(state, guarantee.KIND, ask, now_ns, refusal.outcome, refusal.detail, would_be)
    _due_at(state, ask, max(now_ns + RETRY_NS, refusal.retry_ns or 0))


def _refused_before(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """Whether law 4 refused an equal ask by the very numbers of now: that is no attempt, and costs none (K17)."""
    known = state.unentitled.get(ask.queue, {}).get(ask.shape)
    if known is None or known[0] != numbers(ask, state.guarantee_mode):
        return False
    _refused(state, ask, known[1], now_ns)
    return True


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
        return found if isinstance(found, Refusal) else unlawful(state, found) or found

    asked = state.callbacks.predicates or state.callbacks.preemption_predicates
    return governing.govern(state, plan, now_ns, None if asked else without)


def _plan(state: PartitionState, ask: Allocation, now_ns: int) -> PreemptionPlan | Refusal | None:
    """Victims for *ask*, or why there are none. ``None``: the shim is being asked, and the attempt goes on after it."""
    callbacks = state.callbacks
    dialogue = ask.dialogue
    if dialogue is None and (callbacks.predicates or callbacks.preemption_predicates):
        dialogue = Dialogue(state, ask)
    ask.dialogue = None
    if dialogue is None:
        return guarantee.plan(state, ask, index=state.victim_index, now_ns=now_ns)
    if dialogue.rounds == MOST_ROUNDS:
        return Refusal(Outcome.PREDICATE_REFUSED, f"no agreement with the predicate in {MOST_ROUNDS} rounds")
    if not dialogue.waits:
        dialogue.begin_round(now_ns)
        try:
            return guarantee.plan(state, ask, predicate=dialogue, index=state.victim_index, now_ns=now_ns)
        except AnswerPending:
            pass
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
    if ask.last_attempt_ns is not None and now_ns < ask.last_attempt_ns + RETRY_NS:
        _due_at(state, ask, ask.last_attempt_ns + RETRY_NS)
        return Outcome.CHECKED_RECENTLY
    return None


def unlawful(state: PartitionState, plan: PreemptionPlan) -> Refusal | None:
    """Every plan is checked before it is applied; one that breaks a law is our bug, refused and counted."""
    if any(victim.released or victim.preempted for victim in plan.victims):
        return Refusal(Outcome.VICTIM_RELEASED)
    return judge(state, plan)


def judge(state: PartitionState, plan: PreemptionPlan | QuotaPlan) -> Refusal | None:
    """What the laws say about *plan*; counted."""
    state.law_checks += 1
    violations = laws.check(state, plan)
    if not violations:
        return None
    state.law_violations += len(violations)
    return Refusal(Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in violations))


def _apply(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Have the victims leave, and hold the node (B.7)."""
    for reservation in plan.cancelled:
        placement.unreserve(state, reservation, requeue=True)
    trigger(state, plan, now_ns)
    placement.reserve(state, plan.ask, plan.node, now_ns)


def trigger(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Mark the victims, claim what the ask will use, tell the shim (B.7)."""
    ask = plan.ask
    evict(state, plan.victims, ask, f"preempted for ask {ask.spec.key} of application {ask.application.application_id}")
    ask.victims = {**ask.victims, **{victim.key: victim for victim in plan.victims}}
    if state.recording:
        state.events.preempted(plan.victims, ask)
    ledger.claim(ask)
    ask.outcome = Outcome.TRIGGERED
    state.preemptions += 1
    _watch_exits(state, plan, now_ns)
    record(state, plan.kind, ask, now_ns, Outcome.TRIGGERED, plan=plan)


def _watch_exits(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Look after a while whether the victims of *plan* have left (K14)."""

    def look(at_ns: int) -> None:
        ask = plan.ask
        stuck = tuple(victim for victim in plan.victims if victim.preempted and victim.preemptor is ask)
        if stuck and ask.triggered:
            _give_up_victims(state, replace(plan, victims=stuck, adjusted=()), at_ns)

    state.at(now_ns + state.preemption.victim_timeout_ns, look)


def _give_up_victims(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """The victims of *plan* do not leave: its ask looks for room on other nodes, they stay marked (K14)."""
    ask = plan.ask
    waited_s = state.preemption.victim_timeout_ns / 10**9
    ask.outcome = Outcome.VICTIM_STUCK
    record(state, plan.kind, ask, now_ns, Outcome.VICTIM_STUCK, f"not gone after {waited_s:g} s", plan)
    nodes = {victim.key: victim.node.node_id for victim in plan.victims if victim.node is not None}
    ask.stuck = {**ask.stuck, **nodes}
    for victim in plan.victims:
        victim.preemptor = None
        state.stuck[victim] = ask
    ask.victims = NO_VICTIMS
    rearm(state, ask, now_ns)


def evict(state: PartitionState, victims: Sequence[Allocation], preemptor: Allocation | None, message: str) -> None:
    """Mark *victims* and tell the shim to end them, for *preemptor* or, without one, for their queue's sake."""
    for victim in victims:
        ledger.mark(victim, preemptor)
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
    if waited_for is not None:
        waited_for.stuck = {key: node for key, node in waited_for.stuck.items() if key != victim.key} or NONE_STUCK
    ask = victim.preemptor
    victim.preemptor = None
    if ask is None or ask.victims.pop(victim.key, None) is None or ask.victims:
        return
    ask.victims = NO_VICTIMS
    if not ask.triggered:
        return
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
    ledger.unclaim(ask)
    ask.rearms += 1
    ask.rearm_ns = 0
    if ask.reservation is not None:
        if ask.spec.required_node:
            look_again(state, ask.reservation)
        else:
            placement.unreserve(state, ask.reservation, requeue=True)
    if may_ever_preempt(ask):
        _due_at(state, ask, now_ns)


def give_up_reservation(state: PartitionState, ask: Allocation, now_ns: int) -> None:
    """*ask* has had its node kept for too long in vain: back among its equals, free to try everything again."""
    if ask.triggered:
        rearm(state, ask, now_ns)
    if ask.reservation is not None:
        placement.unreserve(state, ask.reservation, requeue=True)


def give_way(state: PartitionState, node: Node, now_ns: int) -> None:
    """An ask that requires *node* takes its room: whoever waits there for its victims is re-armed at once (H)."""
    for reservation in list(node.reservations.values()):
        if reservation.ask.triggered and not reservation.ask.spec.required_node:
            rearm(state, reservation.ask, now_ns)


def forget(state: PartitionState, ask: Allocation) -> None:
    """*ask* is withdrawn: its claim and reservation go, its victims still leave (B.7)."""
    ledger.unclaim(ask)
    ask.dialogue = None
    ask.attempt_due = False
    for victim in ask.victims.values():
        victim.preemptor = None
    ask.victims = NO_VICTIMS
    if ask.reservation is not None:
        placement.unreserve(state, ask.reservation)


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
