"""Drives preemption for guarantees and within a leaf: decides when an ask may try, and when it may try again.

:mod:`..search.planner` chooses the victims; :mod:`..laws` checks whether the plan is lawful before anything is changed.
A refused attempt waits at a gate until something has changed (:mod:`.questions`). Rules: preemption.md B.1
(preconditions), F (cycle).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.preemption_kinds import WITHIN
from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.model.users import Account, AccountKind
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.budgets import RETRY_NS, Ruling, set_due
from kornel.core.preemption.consulting import MOST_ROUNDS, Dialogue
from kornel.core.preemption.entitlement import fence_root, find_entitlement
from kornel.core.preemption.guarantee import laws
from kornel.core.preemption.guarantee.guarantee_record import PASS_NS, GuaranteeRecord
from kornel.core.preemption.guarantee.rules.own_leaf import list_exceeded
from kornel.core.preemption.guarantee.search import planner as guarantee
from kornel.core.preemption.guarantee.search.planner import Within
from kornel.core.preemption.guarantee.search.prospects import Unprepared
from kornel.core.preemption.plan import AnswerPending, PreemptionPlan, Refusal, Spared
from kornel.core.preemption.run_times import is_impatient, next_end, patience_end
from kornel.core.state.asks import group_domains, reservations
from kornel.core.state.books import device_books
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.victim_index import VictimIndex
from kornel.core.state.waiting import failing
from kornel.core.state.waiting.places import offer_attempt
from kornel.core.state.waiting.rooms import UNSERVED
from kornel.shared.readable_amounts import name_some

ATTEMPT_COST: Final = 200
"""The number of decisions as which one search for victims counts in the budget of a slice."""
WAITS_FOR_CHANGE: Final = frozenset(
    {
        Outcome.NO_GUARANTEE, Outcome.ASK_EXCEEDS_GUARANTEE, Outcome.NOT_UNDER_GUARANTEE, Outcome.FENCED_AT_LEAF,
        Outcome.NO_CANDIDATES, Outcome.NO_NODE, Outcome.GANG_INCOMPLETE, Outcome.PREDICATE_REFUSED,
    }
)  # fmt: skip
"""Refusals that depend on the books of the partition and on nodes that the shim refused: another attempt is useless
until the books change or such a node is not left out any more."""

_Plan = Callable[..., PreemptionPlan | Refusal]
"""Plans for one ask: ``plan_preemption``, with all that does not depend on the kind given."""


def collect_due(state: PartitionState, now_ns: int) -> None:
    """Notes every ask that is due to preempt, and offers its group again so that placement has its turn first."""
    due = state.attempts_due
    while due and due[0][0] <= now_ns:
        _offer_attempt(state, heappop(due)[2])
    gate = state.records[GuaranteeRecord].gate
    for ask in gate.let_out(state, now_ns):
        _offer_attempt(state, ask)
    gate.set_timer(state, now_ns)


def put_off(state: PartitionState, ask: Allocation) -> None:
    """Lets *ask* wait with its attempt until the question that is being worked on has its answer, whose ask goes on in
    the next slice, and as long as a max is being enforced (preemption.md H)."""
    ask.attempt_due = False
    state.records[GuaranteeRecord].put_off[ask] = None


def _end_putting_off(state: PartitionState, now_ns: int) -> bool:
    """Makes the asks due whose attempts were put off, if nothing keeps them any more. Returns whether there were
    any."""
    record = state.records[GuaranteeRecord]
    if not record.put_off or record.prospects.behind or state.enforcement.busy:
        return False
    for ask in record.put_off:
        set_due(state, ask, now_ns)
    record.put_off.clear()
    return True


def end_slice(state: PartitionState, now_ns: int) -> None:
    """Lets the asks that were put off try in the next slice if nothing keeps them any more, and notes what has changed
    in this one."""
    _end_putting_off(state, now_ns)
    while state.attempts_due and state.attempts_due[0][2].place >= AskPlace.PLACED:
        heappop(state.attempts_due)  # Nobody has to be woken for an ask that is placed or gone.
    _await_ends(state)
    state.records[GuaranteeRecord].gate.watch(state, now_ns)
    gangs = state.gangs
    for unit_id in list(gangs.attempts):
        if unit_id.find_unit() is None and unit_id not in gangs.holds:
            del gangs.attempts[unit_id]  # The gang no longer waits, because it was placed or is gone.


def _await_ends(state: PartitionState) -> None:
    """Lets refused asks look again at each node where a search of this slice met somebody whom his minimum run time
    protects, when that ends (preemption.md L)."""
    met = state.victim_index.protected
    for node, end_ns in met.items():
        _await_end(state, node, end_ns)
    met.clear()


def _await_end(state: PartitionState, node: Node, end_ns: int) -> None:
    awaited = state.records[GuaranteeRecord].protected
    if end_ns < awaited.get(node, end_ns + 1):
        awaited[node] = end_ns
        state.run_at(end_ns, partial(_note_end, state, node, end_ns))


def _note_end(state: PartitionState, node: Node, end_ns: int, now_ns: int) -> None:
    """Notes *node* as changed, because somebody there has run for his minimum run time. Whom others there keep back as
    well is not woken yet: the gate counts only who may leave by now."""
    record = state.records[GuaranteeRecord]
    if record.protected.get(node) != end_ns:
        return
    del record.protected[node]
    if record.gate.empty or state.nodes.get(node.node_id) is not node:
        return
    node.touch()
    state.changes += 1
    following = next_end(node, now_ns)
    if following is not None:
        _await_end(state, node, following)


def _offer_attempt(state: PartitionState, ask: Allocation) -> None:
    known = ask.pending and state.requests.get(ask.key) is ask and ask.application.state not in UNSERVED
    if not known or ask.triggered or ask.place is AskPlace.REPLACING:
        return
    offer_attempt(state, ask)


def resume_attempts(state: PartitionState, now_ns: int) -> bool:
    """Offers the asks whose attempts were put off, if nothing keeps them any more. Returns whether there were any."""
    if not _end_putting_off(state, now_ns):
        return False
    collect_due(state, now_ns)
    return True


def has_work(state: PartitionState, now_ns: int) -> bool:
    """Tells whether an attempt is due, or something waits for a slice: asks that were refused or put off, or gangs."""
    due, record, gangs = state.attempts_due, state.records[GuaranteeRecord], state.gangs
    if due and (due[0][0] <= now_ns or due[0][2].place >= AskPlace.PLACED):
        return True
    waits = record.put_off or record.prospects.behind or gangs.broken or gangs.attempts
    return bool(waits) or not record.gate.empty


def offer_due(state: PartitionState, now_ns: int) -> None:
    """Renews the attempts of leaves if it is time, and offers the asks whose next attempt is due."""
    record = state.records[GuaranteeRecord]
    record.prospects.begin_slice()
    record.begin_pass(now_ns)
    collect_due(state, now_ns)


def serve_unplaced(state: PartitionState, group: AskGroup, why: NotPlaced, now_ns: int) -> tuple[int, bool]:
    """Lets the due asks of *group*, which found no node, try to preempt, unless the limit holds them back.

    Returns the cost in decisions, and whether the group may stay where it is, because an ask has preempted or others
    are still due.
    """
    cost = 0
    helps = may_preempt(state, group.application.queue) and state.victims_may_help(group.first_ask(), why)
    if helps and not keep_waiting(state, group, now_ns):
        cost = 1 if state.records[GuaranteeRecord].prospects.behind else ATTEMPT_COST
        if try_due_asks(state, group, now_ns) or group.due:
            return cost, True
    if group.due and not helps and why.reason is Unschedulable.USER_QUOTA and why.account is not None:
        cannot_help(state, group.first_ask(), why.account, now_ns)
    return cost, False


def may_preempt(state: PartitionState, leaf: Queue) -> bool:
    """Tells whether asks of *leaf* may preempt by themselves, for their guarantees or within the leaf."""
    return state.guarantee_preemption or state.preempts_within(leaf)


def serve_reserved(state: PartitionState, reservation: Reservation, limited: NotPlaced | None, now_ns: int) -> bool:
    """Lets the ask of *reservation* try to preempt if an attempt is due and victims could help.

    Returns whether it preempted. *limited*: the limit that keeps it back. Who must run there frees nothing elsewhere.
    """
    ask = reservation.ask
    helps = not ask.spec.required_node and (limited is None or state.victims_may_help(ask, limited))
    return ask.attempt_due and helps and may_preempt(state, ask.queue) and attempt_preemption(state, ask, now_ns)


def try_due_asks(state: PartitionState, group: AskGroup, now_ns: int) -> bool:
    """Lets the due asks of *group*, which found no node, try to preempt in order, up to the first one for which victims
    are searched.

    Returns whether that one preempted. The others stay due, so that a slice can end between two searches.
    """
    before = state.preemption_attempts
    for ask in group.next_due():
        group.attempt_is_over(ask)
        if attempt_preemption(state, ask, now_ns):
            return True
        if state.preemption_attempts != before:
            return False
    return False


def attempt_preemption(state: PartitionState, ask: Allocation, now_ns: int) -> bool:
    """Tries to preempt for *ask*. Returns whether that succeeded, so that its victims are asked to leave and a node is
    reserved."""
    found = find_plan(state, ask, now_ns)
    if not isinstance(found, PreemptionPlan):
        return False
    apply_plan(state, found, now_ns)
    return True


def find_plan(state: PartitionState, ask: Allocation, now_ns: int) -> PreemptionPlan | Refusal | None:
    """Returns a plan for *ask* that the laws and the governor allow, or why there is none, which is recorded.

    Returns ``None`` if the attempt is put off, because a max is being enforced, the shim is being asked, or this search
    or that of an ask before it is not complete yet.
    """
    record = state.records[GuaranteeRecord]
    if record.prospects.behind or state.enforcement.busy:
        put_off(state, ask)
        return None
    refused = check_preconditions(state, (ask,), now_ns) if ask.dialogue is None else None
    if refused is not None:
        tell_refusal(state, (ask,), Refusal(refused), now_ns)
        return Refusal(refused)
    # No further question may be asked, and an attempt cannot end without the shim's answers.
    if state.callbacks.full and ask.dialogue is None:
        set_due(state, ask, now_ns + PASS_NS)
        return None
    ask.attempt_due = False
    known = record.gate.known_answer(ask, state.changes, now_ns) if ask.dialogue is None else None
    if known is None and ask.dialogue is None:
        known = _refused_by_law_4(state, ask, now_ns)
    if known is not None:
        tell_refusal(state, (ask,), known, now_ns)
        return known
    # This follows the refusals that need no search, because these do not count against the limit of an interval.
    held = _hold_back_attempt(state, ask, now_ns)
    if held is not None:
        budgets.note_held_back(state, guarantee.KIND, ask, held, now_ns)
        if held.retry_ns is not None:
            set_due(state, ask, held.retry_ns)
        return held
    first_round = ask.dialogue is None
    try:
        result = _plan_attempt(state, ask, now_ns)
    except Unprepared:
        record.prospects.behind = True
        set_due(state, ask, now_ns)
        return None
    # An attempt counts once for its leaf, however many rounds of questions to the shim it takes.
    if first_round:
        record.note_attempt(ask.queue)
    state.preemption_attempts += 1
    state.search_cost += ATTEMPT_COST
    if result is None:
        return None
    would_be: PreemptionPlan | None = None
    if isinstance(result, PreemptionPlan):
        result = _check_plan(state, result) or budgets.note_ruling(
            state, rule_on_plan(state, result, state.victim_index, now_ns, partial(_check_plan, state)), ask, now_ns
        )
    if isinstance(result, PreemptionPlan):
        if not budgets.is_shadowed(state, result.kind):
            return result
        would_be, result = result, Refusal(Outcome.SHADOW)
    tell_refusal(state, (ask,), result, now_ns, would_be)
    if result.outcome in WAITS_FOR_CHANGE and result.retry_ns is None:
        park_ask(state, ask, result, now_ns)
    else:
        set_due(state, ask, max(now_ns + RETRY_NS, result.retry_ns or 0))
    return result


def park_ask(state: PartitionState, ask: Allocation, refusal: Refusal, now_ns: int) -> None:
    """Makes *ask* wait for a change after its *refusal*, or for the time from which minimum run times keep nobody
    back."""
    state.records[GuaranteeRecord].gate.park_ask(ask, refusal, state.changes, now_ns)
    end_ns = patience_end(ask)
    if refusal.protected and end_ns is not None and end_ns > now_ns:
        set_due(state, ask, end_ns)


def apply_plan(state: PartitionState, plan: PreemptionPlan, now_ns: int) -> None:
    """Asks the shim to release the victims of *plan*, and reserves the node for its ask (preemption.md B.7)."""
    ask = plan.ask
    budgets.note_taken(state, plan.kind, plan.victims, ask.queue.path, ask.shape.pairs, now_ns)
    eviction.apply_plan(state, plan, now_ns)
    reservations.reserve_node(state, ask, plan.node, now_ns)
    if ask.shape.devices is not None:
        device_books.keep_devices(plan.node, ask, plan.victims, state.stuck)
    # A result ends the pass, so the next one starts with a full budget (B.1).
    state.records[GuaranteeRecord].attempts_left.pop(ask.queue, None)


def _refused_by_law_4(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns the refusal of *ask* by law 4; ``None``: it is entitled, or may look within its leaf. This needs no
    search, so it does not count as an attempt (preemption.md K17)."""
    if state.preempts_within(ask.queue):
        return None
    entitled = find_entitlement(ask, state.guarantee_mode, state.types.names)
    if not isinstance(entitled, Refusal):
        return None
    park_ask(state, ask, entitled, now_ns)
    return entitled


def tell_refusal(
    state: PartitionState,
    members: Sequence[Allocation],
    refusal: Refusal,
    now_ns: int,
    would_be: PreemptionPlan | None = None,
) -> None:
    """Records that no victims leave for an ask, or for all *members* of a gang, if its last outcome was another one."""
    first = members[0]
    if first.outcome is not refusal.outcome:
        kind = guarantee.KIND if would_be is None else would_be.kind
        eviction.record_decision(state, kind, first, now_ns, refusal.outcome, refusal.detail, would_be)
    for ask in members:
        failing.note_preemption(ask, refusal.outcome, now_ns)
        ask.outcome = refusal.outcome


def cannot_help(state: PartitionState, ask: Allocation, account: Account, now_ns: int) -> None:
    """Records once, with amounts, that a limit of *account* keeps *ask* back and that no victim can change that
    (preemption.md K18)."""
    if ask.outcome is Outcome.USER_QUOTA:
        return
    names = state.types.names
    held = ", ".join(f"{account.used[t]} of {most} {names[t]}" for t, most in account.max.items())
    detail = f"preemption cannot help: {account} holds {held}"
    if account.kind in (AccountKind.USER, AccountKind.GROUP):
        detail = f"preemption cannot help: {account.kind} {account.name} holds {held} in {account.queue.path}"
    tell_refusal(state, (ask,), Refusal(Outcome.USER_QUOTA, detail), now_ns)


def rule_on_plan(
    state: PartitionState,
    plan: PreemptionPlan,
    index: VictimIndex,
    now_ns: int,
    check: Callable[[PreemptionPlan], Refusal | None] | None = None,
) -> Ruling:
    """Returns *plan*, or a plan with other victims that passes *check*, if the budgets allow it; otherwise, why not.

    If the shim is asked about victims, no other plan is searched for, because the shim would have to be asked about
    each one.
    """

    def without(spared: Spared) -> PreemptionPlan | Refusal:
        found = guarantee.plan_preemption(
            state, plan.ask, index=index, spared=spared, now_ns=now_ns, within=find_bounds(state, plan.ask),
            kind=plan.kind,
        )  # fmt: skip
        return found if isinstance(found, Refusal) or check is None else check(found) or found

    asked = state.callbacks.predicates or state.callbacks.preemption_predicates
    return budgets.rule_on_plan(state, plan, now_ns, None if asked else without)


def _plan_attempt(state: PartitionState, ask: Allocation, now_ns: int) -> PreemptionPlan | Refusal | None:
    """Returns a plan for *ask*, or why there is none; ``None``: the shim is being asked, and the attempt continues
    after its answer."""
    within = find_bounds(state, ask)
    if within is not None and not within.among:
        return refuse_domains(ask)
    dialogue, callbacks = ask.dialogue, state.callbacks
    if dialogue is None and (callbacks.predicates or callbacks.preemption_predicates):
        dialogue = Dialogue(state, ask)
    if dialogue is not None:
        ask.dialogue = None
        if dialogue.rounds == MOST_ROUNDS:
            dialogue.leave_out_refused(now_ns)
            return Refusal(Outcome.PREDICATE_REFUSED, f"no agreement with the predicate in {MOST_ROUNDS} rounds")
        if dialogue.waits:
            ask.dialogue = dialogue
            return None
        dialogue.begin_round(now_ns)
    plan = partial(
        guarantee.plan_preemption,
        state,
        ask,
        predicate=dialogue,
        index=state.victim_index,
        now_ns=now_ns,
        within=within,
    )
    try:
        found = _plan_by_kinds(state, ask, plan, now_ns)
    except AnswerPending:
        ask.dialogue = dialogue
        return None
    except Unprepared:
        ask.dialogue = dialogue
        raise
    if dialogue is not None:
        dialogue.leave_out_refused(now_ns, None if isinstance(found, Refusal) else found.node)
    return name_roomy_nodes(ask, within, found) if isinstance(found, Refusal) else found


def _plan_by_kinds(state: PartitionState, ask: Allocation, plan: _Plan, now_ns: int) -> PreemptionPlan | Refusal:
    """Returns the plan for *ask* of the first kind that has one: for a guarantee, then within its leaf. Whom minimum
    run times protect goes for an ask that has waited for long, but last of all."""
    patient = state.preempts_within(ask.queue)
    found = _plan_first(state, ask, plan, now_ns, patient=patient)
    if patient and isinstance(found, Refusal) and found.protected and is_impatient(ask, now_ns):
        return _plan_first(state, ask, plan, now_ns, patient=False)
    return found


def _plan_first(
    state: PartitionState, ask: Allocation, plan: _Plan, now_ns: int, *, patient: bool
) -> PreemptionPlan | Refusal:
    refused = Refusal(Outcome.POLICY_OFF)
    # For what a limit of its user lacks, nobody goes but in its leaf.
    limited = state.preempts_within(ask.queue) and list_exceeded(ask)
    if state.guarantee_preemption and not limited:
        found = plan(known=state.records[GuaranteeRecord].prospects, patient=patient)
        if isinstance(found, PreemptionPlan) or not state.preempts_within(ask.queue):
            return found
        refused = found
    held = _check_limit(state, ask.shape.pairs, now_ns, WITHIN.name)
    found = held or plan(kind=WITHIN.name, patient=patient)
    if isinstance(found, PreemptionPlan) or refused.outcome is Outcome.POLICY_OFF:
        return found
    detail = f"within {ask.queue.path}: {found.detail}; for a guarantee: {refused.outcome}"
    return replace(found, detail=detail, protected=found.protected or refused.protected)


def find_bounds(state: PartitionState, ask: Allocation) -> Within | None:
    """Returns the nodes among which victims may make room for *ask* if its group requires a domain; ``None``: any
    nodes."""
    among = group_domains.nodes_for_victims(state, ask)
    if among is None:
        return None
    # Victims are chosen by amounts, and might leave devices that the ask cannot use.
    return Within(fence_root(ask), _allow_node, [] if ask.shape.devices is not None else among)


def refuse_domains(ask: Allocation) -> Refusal:
    """Returns the refusal of *ask* if no domain would have room for its group with one more place, or if it also wants
    devices."""
    if ask.shape.devices is not None:
        return Refusal(Outcome.NO_NODE, "it requires a domain and wants devices, and victims are chosen by amounts")
    level = "" if ask.spec.topology is None else ask.spec.topology.level
    return Refusal(Outcome.NO_NODE, f"no {level} would hold its group if one place there were freed")


def name_roomy_nodes(ask: Allocation, within: Within | None, refusal: Refusal) -> Refusal:
    """Returns *refusal*; if its group lacks one more place in a domain, with the nodes there that have room for *ask*.

    Victims make room only on nodes that have none for the ask, because a decision claims room for one ask. So a place
    for another member, which could be freed on such a node, is not counted.
    """
    if within is None or within.among is None or refusal.outcome is not Outcome.NO_NODE:
        return refusal
    level = "" if ask.spec.topology is None else ask.spec.topology.level
    roomy = [
        f"{node.node_id} of {domain.name}"
        for node in within.among
        if node.schedulable and node.has_room_for(ask.shape)
        for domain in node.domains
        if domain.level.name == level
    ]
    if not roomy:
        return refusal
    why = f"room on {name_some(roomy)} is for one member, and nobody leaves the same node for another one"
    return replace(refusal, detail=f"its group lacks one more place: {why}; {refusal.detail}")


def _allow_node(_node: Node) -> bool:
    return True


def check_preconditions(state: PartitionState, members: Sequence[Allocation], now_ns: int) -> Outcome | None:
    """Returns the first precondition (preemption.md B.1) that fails for an ask or for any of *members* of a gang;
    ``None``: all hold. If they only have to wait, the first one is made due again."""
    first, record = members[0], state.records[GuaranteeRecord]
    record.begin_pass(now_ns)  # A slice in which nothing was due at its beginning has not done so.
    again_ns = record.next_pass_ns(first.queue, now_ns)
    if again_ns is not None:
        set_due(state, first, again_ns)
        return Outcome.ATTEMPTS_EXHAUSTED
    if not all(ask.spec.allow_preempt_other for ask in members):
        return Outcome.ASK_MAY_NOT_PREEMPT
    if any(ask.triggered for ask in members):
        return Outcome.ALREADY_TRIGGERED
    if any(ask.spec.required_node for ask in members):
        return Outcome.REQUIRED_NODE
    old_enough = max(ask.created_ns for ask in members) + first.queue.properties.preemption_delay_ns
    if now_ns < old_enough:
        set_due(state, first, old_enough)
        return Outcome.TOO_YOUNG
    return None


def hold_back(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns why *ask* may not preempt now: the policy is off, or the limit of one interval is used up; ``None``: an
    attempt may be made. Changes nothing, so that forecasts ask it too."""
    if not may_preempt(state, ask.queue):
        return Refusal(Outcome.POLICY_OFF, why_off(state))
    held = _check_limit(state, ask.shape.pairs, now_ns) if state.guarantee_preemption else None
    refused = not state.guarantee_preemption or (
        held is not None and isinstance(find_entitlement(ask, state.guarantee_mode, state.types.names), Refusal)
    )
    if refused and state.preempts_within(ask.queue):
        return _check_limit(state, ask.shape.pairs, now_ns, WITHIN.name)
    # An ask that may not preempt at all is not held back: the attempt finds that without a search, and says why.
    return None if refused else held


def _hold_back_attempt(state: PartitionState, ask: Allocation, now_ns: int) -> Refusal | None:
    """Returns the result of :func:`hold_back`, but ``None`` while the shim is asked about *ask*: nothing is decided
    before it has answered, and then this is checked again."""
    return None if ask.dialogue is not None and ask.dialogue.waits else hold_back(state, ask, now_ns)


def why_off(state: PartitionState) -> str:
    """Returns the setting that keeps all asks of this partition from preempting for guarantees."""
    if not state.preemption.enabled:
        return "preemption.enabled is off"
    if guarantee.KIND not in state.preemption.policies:
        return f"preemption.policies does not list {guarantee.KIND}"
    return "the periodic monitor is on: asks do not preempt by themselves"


def keep_waiting(state: PartitionState, group: AskGroup, now_ns: int) -> bool:
    """Tells whether the limit holds back the due asks of *group*; if so, has the group offered again later."""
    ask = next(iter(group.due), None)
    held = _hold_back_attempt(state, ask, now_ns) if ask is not None else None
    if ask is None or held is None:
        return False
    budgets.note_held_back(state, guarantee.KIND, ask, held, now_ns, group)
    return True


def is_open(state: PartitionState, now_ns: int) -> bool:
    """Tells whether a round may go on, because the limit is not used up for any type."""
    return _check_limit(state, tuple(state.root.max.items()), now_ns) is None


def _check_limit(state: PartitionState, wanted: Pairs, now_ns: int, kind: str = guarantee.KIND) -> Refusal | None:
    """Returns which limit of *kind* is used up for an ask of *wanted*; ``None``: none."""
    if state.preemption.cycle_limit <= 0:
        return Refusal(Outcome.ROUND_LIMIT, "preemption.cycle.limit is 0: nobody preempts for a guarantee")
    return budgets.check_limit(state, kind, wanted, now_ns)


def _check_plan(state: PartitionState, plan: PreemptionPlan) -> Refusal | None:
    """Returns why the laws do not allow *plan*; ``None``: they do."""
    return eviction.check_lawful(state, plan, laws.check)
