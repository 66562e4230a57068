"""Preemption for a gang as a unit: it decides when a gang may try, carries out the plan, and keeps all places of the
gang.

For a gang that found no open room for all its members, one plan is searched (:mod:`..gangs.search`). No victim is asked
to leave before there is a place for every member, the shim has approved all of them, and the laws (:mod:`..gang_laws`)
and the governor permit the plan. From then on room is held for all members. A member that loses its place gets another
one; if there is none, all members give up their places. Rules: preemption.md B.11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import NO_VICTIMS, Allocation, sum_amounts
from kornel.core.model.applications import Application
from kornel.core.model.domains import Domain
from kornel.core.model.gang_units import GangUnit, UnitId, unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.users import Account
from kornel.core.policies import user_limits
from kornel.core.policies.view import PartitionView
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.budgets import RETRY_NS, set_due
from kornel.core.preemption.gang_losses import describe_whole
from kornel.core.preemption.guarantee import gang_laws
from kornel.core.preemption.guarantee.attempts import drive
from kornel.core.preemption.guarantee.attempts.gang_consulting import GangDialogue
from kornel.core.preemption.guarantee.gangs.domains import bind_groups, name_domains
from kornel.core.preemption.guarantee.gangs.search import GangSearch, Refused, Tools
from kornel.core.preemption.guarantee.guarantee_record import PASS_NS, GuaranteeRecord
from kornel.core.preemption.guarantee.search.planner import KIND
from kornel.core.preemption.guarantee.search.prospects import Unprepared
from kornel.core.preemption.plan import GangPlan, PreemptionPlan, Refusal
from kornel.core.state.asks import moves, questions, reservations
from kornel.core.state.asks.savings import give_back, lift_saved
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold
from kornel.core.state.waiting import failing
from kornel.core.state.waiting.gathering import describe_missing, forms_unit, minimum_by_group
from kornel.core.state.waiting.rooms import UNSERVED, activate_group, look_again
from kornel.shared.readable_amounts import format_count, format_quantities

MOST_RESTARTS: Final = 4
"""The most times that a search begins again because something has changed. After that, it continues in spite of
changes."""


MOST_NAMED: Final = 3
"""The most lost places that a decision describes."""


class GangAttempt:
    """The progress of an attempt of one gang, which continues from slice to slice."""

    __slots__ = ("dialogue", "restarts", "search")

    def __init__(self, dialogue: GangDialogue) -> None:
        self.search: GangSearch | None = None
        self.restarts = 0
        self.dialogue: Final = dialogue


@dataclass(frozen=True, slots=True)
class GangProposal:
    """A plan for a gang that the periodic policy carries out, some victims in each of its turns (preemption.md B.11).

    *plan* is what is still to be done: the members without a place, all of them at first.
    """

    plan: GangPlan

    def choose_turn(self, view: PartitionView, admits: Callable[[Sequence[Allocation]], bool]) -> GangPlan | None:
        """Returns the part of the plan that comes next; ``None``: the plan does not stand any more.

        That are all places for which nobody leaves, the first node where somebody does, and further nodes while
        *admits* allows their victims too. If the laws do not allow this part by itself, it is larger.
        """
        if not _can_carry_out(view, self.plan):
            return None
        nodes: dict[Node, list[PreemptionPlan]] = {}
        for place in self.plan.places:
            nodes.setdefault(place.node, []).append(place)
        turn = replace(self.plan, places=())
        for places in sorted(nodes.values(), key=lambda places: any(place.victims for place in places)):
            larger = replace(turn, places=(*turn.places, *places))
            if turn.victims and not admits(larger.victims) and self.stands(view, turn):
                break
            turn = larger
        return turn

    def stands(self, view: PartitionView, turn: GangPlan) -> bool:
        """Tells whether the laws allow *turn*, a part of the plan, by itself."""
        return _all_wait(turn) and all(broken.law is Law.UNIT_WHOLE for broken in gang_laws.check(view, turn))

    def carry_out(self, state: PartitionState, turn: GangPlan, kind: str, now_ns: int) -> None:
        """Makes the victims of *turn*, a part of the plan, leave as a decision of *kind*. What is left of the plan
        comes in later turns."""
        unit_id, served = unit_of(turn.places[0].ask), set(turn.members)
        rest = tuple(place for place in self.plan.places if place.ask not in served)
        places = tuple(replace(place, kind=kind) for place in turn.places)
        apply_plan(state, replace(turn, kind=kind, places=places), now_ns)
        if rest:
            state.gangs.proposed[unit_id] = GangProposal(replace(self.plan, places=rest, mends=True))
        else:
            del state.gangs.proposed[unit_id]

    def withdraw(self, state: PartitionState, now_ns: int) -> None:
        """Drops the plan, so that another one is sought for the same members."""
        unit_id = unit_of(self.plan.places[0].ask)
        state.gangs.proposed.pop(unit_id, None)
        if unit_id in state.gangs.holds:
            state.gangs.broken[unit_id] = None
        else:
            set_due(state, self.plan.places[0].ask, now_ns)


def _can_carry_out(view: PartitionView, plan: GangPlan) -> bool:
    return _all_wait(plan) and not gang_laws.check(view, plan)


def _all_wait(plan: GangPlan) -> bool:
    """Tells whether the members of *plan* still wait, and the shim is not being asked about them."""
    return plan.application.state not in UNSERVED and all(ask.place is AskPlace.WAITING for ask in plan.members)


def _is_proposing(state: PartitionState) -> bool:
    """Tells whether the periodic policy carries out the plans for gangs (preemption.md H)."""
    return state.has_periodic_policy and not state.guarantee_preemption


def serve_unit(
    state: PartitionState, unit: GangUnit | GangHold, members: Sequence[Allocation], why: NotPlaced, now_ns: int
) -> tuple[int, bool]:
    """Makes the gang of *unit*, whose *members* find no open room for all of them, try to preempt if an attempt is due.
    It keeps places that it saves by age until there is a plan.

    Returns the cost in decisions, and whether the unit may stay where it is because it has preempted or continues to
    try.
    """
    record = state.records[GuaranteeRecord]
    if not unit.due:
        return 0, False
    first = members[0]
    proposing = _is_proposing(state)
    if not ((state.guarantee_preemption or proposing) and why.preemption_may_help):
        if why.reason is Unschedulable.USER_QUOTA and why.account is not None:
            drive.cannot_help(state, first, why.account, now_ns)
        return 0, False
    if unit.id in state.gangs.proposed:
        unit.no_attempt_is_due()
        return 0, False
    if state.enforcement.busy:
        unit.no_attempt_is_due()
        drive.put_off(state, first)
        return 0, False
    attempt = state.gangs.attempts.get(unit.id)
    if attempt is not None and attempt.dialogue.waits:
        unit.no_attempt_is_due()
        return 0, False
    if record.prospects.behind:
        unit.no_attempt_is_due()
        drive.put_off(state, first)
        return 1, False
    if attempt is None:
        if not _may_begin(state, unit, members, now_ns):
            return 0, False
        attempt = state.gangs.attempts[unit.id] = GangAttempt(GangDialogue(state, unit.id))
        record.note_attempt(first.queue)
    found = _advance_search(state, attempt, members, now_ns, mends=False)
    if found is None:
        if attempt.dialogue.waits:
            unit.no_attempt_is_due()
            return drive.ATTEMPT_COST, False
        if record.prospects.behind:
            # The question of a member takes another step, in the next slice.
            unit.no_attempt_is_due()
            set_due(state, first, now_ns)
            return drive.ATTEMPT_COST, False
        return drive.ATTEMPT_COST, True
    del state.gangs.attempts[unit.id]
    state.preemption_attempts += 1
    unit.no_attempt_is_due()
    if isinstance(found, GangPlan):
        unit.refusal = None
        if unit.id in state.gangs.holds:
            give_back(state, unit.id)
        if proposing:
            state.gangs.proposed[unit.id] = GangProposal(found)
            return drive.ATTEMPT_COST, False
        apply_plan(state, found, now_ns)
        # A result ends the pass, so the next one starts with a full budget (B.1).
        record.attempts_left.pop(first.queue, None)
        return drive.ATTEMPT_COST, True
    refused = attempt.dialogue.describe_refused()
    if refused and found.outcome is Outcome.GANG_INCOMPLETE:
        found = replace(found, detail=f"{found.detail}; {refused}")
    _tell_refusal(state, unit, members, found, now_ns)
    if found.outcome in drive.WAITS_FOR_CHANGE and found.retry_ns is None:
        for ask in _one_of_each_size(members):
            record.gate.park_ask(ask, found, state.changes, now_ns)
    else:
        set_due(state, first, max(now_ns + RETRY_NS, found.retry_ns or 0))
    return drive.ATTEMPT_COST, False


def _may_begin(state: PartitionState, unit: GangUnit | GangHold, members: Sequence[Allocation], now_ns: int) -> bool:
    """Tells whether an attempt of *unit* may begin now. If not, it notes the reason and the time when it may."""
    record = state.records[GuaranteeRecord]
    first = members[0]
    refused = drive.check_preconditions(state, members, now_ns)
    if refused is not None:
        unit.no_attempt_is_due()
        _tell_refusal(state, unit, members, Refusal(refused), now_ns)
        return False
    if state.callbacks.full:
        unit.no_attempt_is_due()
        set_due(state, first, now_ns + PASS_NS)
        return False
    known = record.gate.known_answer(first, state.changes)
    if known is not None:
        unit.no_attempt_is_due()
        _tell_refusal(state, unit, members, known, now_ns)
        return False
    held = None if _is_proposing(state) else drive.hold_back(state, first, now_ns)
    if held is not None:
        unit.no_attempt_is_due()
        unit.refusal = held
        budgets.note_held_back(state, KIND, first, held, now_ns)
        set_due(state, first, held.retry_ns if held.retry_ns is not None else now_ns + RETRY_NS)
        return False
    return True


def _advance_search(
    state: PartitionState, attempt: GangAttempt, members: Sequence[Allocation], now_ns: int, *, mends: bool
) -> GangPlan | Refusal | None:
    """Takes one step of *attempt*, as if *members* held nothing. Returns a plan that may be carried out now, the
    refusal if there is none, or ``None`` if further steps are needed or the shim is being asked."""
    with lift_saved(state, [ask.reservation for ask in members if ask.reservation is not None]) as nodes:
        found = _take_step(state, attempt, members, now_ns, mends=mends)
    state.records[GuaranteeRecord].prospects.doubt_nodes(nodes)
    return found


def _take_step(
    state: PartitionState, attempt: GangAttempt, members: Sequence[Allocation], now_ns: int, *, mends: bool
) -> GangPlan | Refusal | None:
    record = state.records[GuaranteeRecord]
    search, refused = attempt.search, _refused_nodes(members)
    if search is None or not search.is_about(members, refused):
        search = attempt.search = GangSearch(members, state.marks, mends=mends, refused=refused)
    elif search.marks != state.marks and attempt.restarts < MOST_RESTARTS:
        attempt.restarts += 1
        search = attempt.search = GangSearch(members, state.marks, mends=mends, refused=refused)
    tools = Tools(state.node_order, state.victim_index, record.prospects)
    try:
        found = search.take_step(state, tools, now_ns)
    except Unprepared:
        record.prospects.behind = True
        return None
    if not isinstance(found, GangPlan):
        return found
    attempt.search = None
    if search.marks != state.marks and gang_laws.check(state, found) and attempt.restarts < 2 * MOST_RESTARTS:
        # The plan was right for the state at the beginning of the search, so this is no bug, and the search begins
        # again.
        attempt.restarts += 1
        return None
    asked = attempt.dialogue.ask_about(found, now_ns)
    if asked is not None:
        return asked if isinstance(asked, Refusal) else None
    return _approve_plan(state, found, now_ns)


def _approve_plan(state: PartitionState, plan: GangPlan, now_ns: int) -> GangPlan | Refusal:
    """Returns *plan* if the laws and the governor permit it now, otherwise the refusal."""
    if any(victim.released or victim.preempted for victim in plan.victims):
        return Refusal(Outcome.VICTIM_RELEASED)
    broken = eviction.judge_plan(state, gang_laws.check(state, plan))
    if broken is not None:
        return broken
    if _is_proposing(state):
        return plan  # The periodic policy asks the governor before each turn.
    refusal = budgets.refuse_too_many(state, plan)
    if refusal is not None:
        return refusal
    if plan.victims:
        denied = budgets.deny_victims(state, plan.victims, plan.application.queue.path, now_ns)
        if denied is not None:
            return Refusal(denied.outcome, denied.detail, retry_ns=denied.retry_ns)
    if budgets.is_shadowed(state, KIND):
        for place in plan.places:
            if place.victims:
                eviction.record_decision(state, KIND, place.ask, now_ns, Outcome.SHADOW, plan=place)
        return Refusal(Outcome.SHADOW)
    return plan


def apply_plan(state: PartitionState, plan: GangPlan, now_ns: int) -> None:
    """Makes the victims of *plan* leave, and holds a place for every member, in one decision (B.7)."""
    application, number = plan.application, len(plan.places)
    unit_id = unit_of(plan.places[0].ask)
    # This precedes the marking, because marked allocations count as gone.
    whole = describe_whole(plan.victims)
    relied_on = [a for place in plan.places for a in place.node.allocations.values() if a.preempted]
    served = tuple(sorted(sum_amounts(place.ask for place in plan.places).items()))
    budgets.note_taken(state, plan.kind, plan.victims, application.queue.path, served, now_ns)
    hold = state.gangs.holds.get(unit_id)
    if hold is None:
        hold = state.gangs.holds[unit_id] = GangHold(plan.kind, now_ns)
        state.preemptions += 1
    elif unit_id not in state.gangs.proposed:
        hold.mended += 1
    if not hold.number:
        hold.number = state.gangs.planned = state.gangs.planned + 1
    for place in plan.places:
        ask = place.ask
        if place.victims:
            one = f"ask {ask.spec.key}, one of a gang, of application {application.application_id}"
            eviction.evict_victims(state, place.victims, ask, f"preempted for {one} (plan {hold.number})", now_ns)
            ask.victims = {**ask.victims, **{victim.key: victim for victim in place.victims}}
            if state.recording:
                state.events.preempted_for_ask(place.victims, ask, whole, hold.number)
    for place in plan.places:
        ledger.book_claim(state, place.ask)
        place.ask.outcome = Outcome.TRIGGERED
        failing.note_preemption(place.ask, Outcome.TRIGGERED, now_ns)
        hold.members[place.ask] = None
    domains = name_domains(state.topology, {place.ask: place.node for place in plan.places})
    got = f"{format_count(number, 'member')} of a gang get {'other places' if plan.mends else 'places'}"
    detail = "; ".join([f"{got} in {domains}" if domains else got, *whole.values()])
    for place in plan.places:
        reservations.reserve_node(state, place.ask, place.node, now_ns)
        if place.devices and place.node.devices is not None:
            place.node.devices.keep(place.ask, place.devices)
        if place.victims or not plan.victims:
            eviction.record_decision(
                state, plan.kind, place.ask, now_ns, Outcome.TRIGGERED, detail, place, gang_plan=hold.number
            )
    state.gangs.broken.pop(unit_id, None)
    hold.lost = ()
    hold.relied_on.update(dict.fromkeys(relied_on))
    hold.wait_from_ns = 0
    if plan.victims:
        hold.evicted += len(plan.victims)
        for victim in plan.victims:
            for t, amount in victim.shape.pairs:
                hold.freed[t] = hold.freed.get(t, 0) + amount
        _watch_victims(state, plan, now_ns)
    if not plan.mends:
        _watch_hold(state, unit_id, hold, now_ns)


def _watch_victims(state: PartitionState, plan: GangPlan, now_ns: int) -> None:
    """Check after the timeout whether the victims of *plan* have left (K14). A member that waits for a victim that has
    not left loses its place."""
    state.run_at(now_ns + state.preemption.victim_timeout_ns, partial(_look_at_victims, state, plan))


def _look_at_victims(state: PartitionState, plan: GangPlan, now_ns: int) -> None:
    for place in plan.places:
        stuck = tuple(victim for victim in place.victims if victim.preempted and victim not in state.stuck)
        if stuck:
            waits = place.ask.triggered and any(victim.key in place.ask.victims for victim in stuck)
            eviction.give_up_victims(state, replace(place, victims=stuck, adjusted=()), now_ns, waits=waits)


def _watch_hold(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    """Check from time to time whether the gang *unit_id* still waits although no victim is leaving any more
    (K3)."""
    state.run_at(now_ns + RETRY_NS, partial(_look_at_hold, state, unit_id, hold))


def _look_at_hold(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> None:
    if state.gangs.holds.get(unit_id) is not hold:
        return
    leaving = hold.victims_left() or any(v.preempted and v not in state.stuck for v in hold.relied_on)
    if leaving or unit_id in state.gangs.vetting or unit_id in state.gangs.proposed:
        hold.wait_from_ns = 0
    elif not hold.wait_from_ns:
        # The last victim may have left a moment ago, so the gang has its turn before the plan is called off.
        hold.wait_from_ns = now_ns
    elif now_ns - hold.wait_from_ns >= RETRY_NS:
        call_off(state, unit_id, f"its victims have left, and {_why_no_room(hold)}", now_ns)
        return
    _watch_hold(state, unit_id, hold, now_ns)


def _why_no_room(hold: GangHold) -> str:
    """Returns the reason why a gang waits although no victim of its plan is left."""
    places = [ask.reservation for ask in hold.members if ask.reservation is not None]
    full = [place.node.node_id for place in places if not place.node.fits_holder(place)]
    return f"node {full[0]} has no room for it" if full else "a limit or the shim keeps it back"


def any_broken(state: PartitionState) -> bool:
    """Tells whether a gang has lost a place that has not been replaced yet."""
    return bool(state.gangs.broken) and bool(_find_broken(state))


def mend_broken(state: PartitionState, now_ns: int, budget: int) -> None:
    """Finds new places for members that lost theirs, or calls off the plans of their gangs, for about *budget*
    decisions."""
    left = budget
    while left > 0 and (broken := _find_broken(state)) and not state.records[GuaranteeRecord].prospects.behind:
        _mend_hold(state, broken[0], now_ns)
        left -= drive.ATTEMPT_COST


def _find_broken(state: PartitionState) -> list[UnitId]:
    """Returns the gangs that have lost places which victims leave for; places saved by age are not mended here."""
    holds = state.gangs.holds
    return [unit_id for unit_id in state.gangs.broken if unit_id not in holds or not holds[unit_id].by_age]


def _mend_hold(state: PartitionState, unit_id: UnitId, now_ns: int) -> None:
    hold = state.gangs.holds.get(unit_id)
    if hold is None:
        del state.gangs.broken[unit_id]
        return
    if unit_id in state.gangs.vetting:
        # The shim need not be asked about members that lost their places, and the others are held by their
        # reservations.
        questions.call_off_vetting(state, unit_id)
    for ask in [ask for ask in hold.members if state.requests.get(ask.key) is not ask or not ask.pending]:
        del hold.members[ask]
    why = _why_not_whole(state, unit_id, now_ns)
    if why:
        call_off(state, unit_id, why, now_ns)
        return
    lost = _find_lost(state, unit_id, hold, now_ns)
    if not lost:
        del state.gangs.broken[unit_id]
        for ask in hold.members:
            if ask.reservation is not None:
                look_again(state, ask.reservation)
        return
    proposal = state.gangs.proposed.get(unit_id)
    if proposal is not None and set(lost) == set(proposal.plan.members) and _can_carry_out(state, proposal.plan):
        del state.gangs.broken[unit_id]
        return
    full = _exceeded_account(unit_id.application, lost)
    if full is not None:
        call_off(state, unit_id, f"the limit of {full} keeps it back", now_ns)
        return
    attempt = state.gangs.attempts.get(unit_id)
    if attempt is None:
        attempt = state.gangs.attempts[unit_id] = GangAttempt(GangDialogue(state, unit_id))
    found = _advance_search(state, attempt, lost, now_ns, mends=True)
    if found is None:
        if attempt.dialogue.waits:
            del state.gangs.broken[unit_id]
        return
    del state.gangs.attempts[unit_id]
    state.preemption_attempts += 1
    if isinstance(found, GangPlan) and _is_proposing(state) and found.victims:
        state.gangs.proposed[unit_id] = GangProposal(found)
        del state.gangs.broken[unit_id]
    elif isinstance(found, GangPlan):
        state.gangs.proposed.pop(unit_id, None)
        apply_plan(state, replace(found, kind=hold.kind), now_ns)
    else:
        keys = ", ".join(ask.spec.key for ask in lost[:3])
        call_off(state, unit_id, f"no other place for {keys}: {found.outcome} {found.detail}".rstrip(), now_ns)


def _why_not_whole(state: PartitionState, unit_id: UnitId, now_ns: int) -> str:
    """Returns the reason why the gang *unit_id* may no longer be placed as a whole, or an empty text if it may."""
    application = unit_id.application
    if application.state in UNSERVED:
        return f"the application is {application.state}"
    if not (state.guarantee_preemption or _is_proposing(state)):
        return drive.why_off(state)
    level = bind_groups(state.topology, list(state.gangs.holds[unit_id].members))
    if isinstance(level, str):
        return f"the topology has no level {level}"
    if not forms_unit(state, unit_id):
        return "its members are placed one by one now"
    return describe_missing(unit_id, now_ns)


def _find_lost(state: PartitionState, unit_id: UnitId, hold: GangHold, now_ns: int) -> list[Allocation]:
    """Returns the members for which places have to be found. Other members of the gang replace those that are gone, as
    far as there are any: the minimum of a task group counts tasks too that have ended."""
    for ask in _find_misplaced(state, hold):
        eviction.rearm_ask(state, ask, now_ns)
    lost = [ask for ask in hold.members if ask.reservation is None]
    unit = unit_id.find_unit()
    others = [] if unit is None else [ask for ask in unit.asks() if ask not in hold.members]
    there = Counter(ask.spec.task_group for ask in hold.members)
    for name, least in minimum_by_group(unit_id).items():
        lost += [ask for ask in others if ask.spec.task_group == name][: max(0, least - there[name])]
    return lost


def _exceeded_account(application: Application, lost: Sequence[Allocation]) -> Account | None:
    """Returns the user or group whose limit does not let the members *lost* run, for which places are to be found,
    beside what others of theirs hold and claim by now; ``None``: all limits do."""
    wanted = sum_amounts(ask for ask in lost if not ask.triggered)
    return user_limits.find_exceeded(application.accounts, tuple(wanted.items()))


def _find_misplaced(state: PartitionState, hold: GangHold) -> list[Allocation]:
    """Returns the members that require a domain and hold room outside the domain of their group, because nodes have
    changed their domains."""
    found: list[Allocation] = []
    holding = [ask for ask in hold.members if ask.reservation is not None]
    bound = bind_groups(state.topology, holding)
    for group in [] if isinstance(bound, str) else bound:
        members: dict[Domain | None, list[Allocation]] = {}
        for ask in group.asks:
            assert ask.reservation is not None, "looked at a moment ago"
            members.setdefault(group.domain_of(ask.reservation.node), []).append(ask)
        if None not in members and group.admits({d.path: len(asks) for d, asks in members.items() if d is not None}):
            continue
        # All members of a single slice belong to the domain with most of them; of several slices, the incomplete ones
        # are lost.
        home = max(members, key=lambda d: (0, 0) if d is None else (len(members[d]), len(d.nodes)))
        for domain, asks in members.items():
            whole = domain is home if group.slice_size >= len(group.asks) else len(asks) % group.slice_size == 0
            if domain is None or not whole:
                found += asks
    return found


def call_off(state: PartitionState, unit_id: UnitId, why: str, now_ns: int) -> None:
    """Gives up all places of the gang *unit_id*, in one decision. No further victim has to leave."""
    hold = state.gangs.holds.pop(unit_id)
    state.gangs.called_off += 1
    state.gangs.broken.pop(unit_id, None)
    state.gangs.proposed.pop(unit_id, None)
    state.gangs.attempts.pop(unit_id, None)
    if unit_id in state.gangs.vetting:
        questions.call_off_vetting(state, unit_id)
    members = [ask for ask in hold.members if state.requests.get(ask.key) is ask and ask.pending]
    for ask in members:
        moves.end_claim(state, ask)
        for victim in ask.victims.values():
            victim.preemptor = None
        ask.victims = NO_VICTIMS
        ask.outcome = Outcome.UNIT_CALLED_OFF
        failing.note_preemption(ask, Outcome.UNIT_CALLED_OFF, now_ns)
    for ask in members:
        if ask.reservation is not None:
            reservations.end_reservation(state, ask.reservation, requeue=True)
    unit = unit_id.find_unit()
    if unit is not None:
        # Members that had lost their places were back in line before, and were to wait for the others there.
        activate_group(unit)
    if not members:
        return
    cost = f"{format_count(hold.evicted, 'victim was', 'victims were')} asked to leave"
    if hold.evicted:
        names = state.types.names
        cost += f", with {format_quantities({names[t]: amount for t, amount in sorted(hold.freed.items())})}"
    lost = [_describe_loss(state, ask, node_id) for ask, node_id in hold.lost[:MOST_NAMED]]
    refusal = Refusal(Outcome.UNIT_CALLED_OFF, "; ".join([*dict.fromkeys(lost), why, cost]))
    eviction.record_decision(
        state, hold.kind, members[0], now_ns, refusal.outcome, refusal.detail, gang_plan=hold.number
    )
    if unit is not None:
        unit.refusal = refusal
        unit.no_attempt_is_due()
    set_due(state, members[0], now_ns + RETRY_NS)


def _describe_loss(state: PartitionState, ask: Allocation, node_id: str) -> str:
    """Returns what has changed, so that *ask* could not keep its place on the node *node_id*."""
    node = state.nodes.get(node_id)
    if node is None:
        return f"node {node_id} was removed"
    if not node.schedulable:
        return f"node {node_id} was closed"
    if not node.could_hold_shape(ask.shape):
        return f"node {node_id} is too small for {ask.spec.key} now"
    stuck = [key for key, where in ask.stuck.items() if where == node_id]
    if stuck:
        return f"{stuck[0]} does not leave node {node_id}"
    if node_id in (ask.refused or ()):
        return f"the shim refuses {ask.spec.key} on node {node_id}"
    if state.requests.get(ask.key) is not ask or not ask.pending:
        return f"{ask.spec.key} was withdrawn or placed by the shim"
    first = [r.ask.spec.key for r in node.reservations.values() if r.ask.spec.required_node]
    if first:
        return f"{first[0]}, which must run on node {node_id}, comes first there"
    return f"{ask.spec.key} lost its place on node {node_id}, which has changed"


def count_steps_left(state: PartitionState) -> int:
    """Returns the number of steps that the searches of all gangs have left together."""
    attempts = state.gangs.attempts.values()
    return sum(attempt.search.steps_left for attempt in attempts if attempt.search is not None)


def _refused_nodes(members: Sequence[Allocation]) -> Refused:
    """Returns, by member, the nodes that the shim has refused for it, and those on which it has waited for victims in
    vain."""
    found: dict[Allocation, frozenset[str]] = {}
    for ask in members:
        nodes = frozenset({*(ask.refused or ()), *ask.stuck.values()})
        if nodes:
            found[ask] = nodes
    return found


def _one_of_each_size(members: Sequence[Allocation]) -> list[Allocation]:
    return list({ask.shape: ask for ask in reversed(members)}.values())


def _tell_refusal(
    state: PartitionState, unit: GangUnit | GangHold, members: Sequence[Allocation], refusal: Refusal, now_ns: int
) -> None:
    """Record that no victims leave for the gang of *unit*, if the last outcome was another one."""
    first, unit.refusal = members[0], refusal
    if first.outcome is not refusal.outcome:
        eviction.record_decision(state, KIND, first, now_ns, refusal.outcome, refusal.detail)
    for ask in members:
        failing.note_preemption(ask, refusal.outcome, now_ns)
        ask.outcome = refusal.outcome
