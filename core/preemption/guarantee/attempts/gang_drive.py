"""Preemption for a gang as a unit: it decides when a gang may try, and finds other places for members that lost theirs.

For a gang that found no open room for all its members, one plan is searched (:mod:`.gang_attempts`). No victim is asked
to leave before there is a place for every member, the shim has approved all of them, and the laws (:mod:`..laws`)
and the governor permit the plan (:mod:`.gang_plans`). From then on room is held for all members. A member that loses
its place gets another one; if there is none, all members give up their places. Rules: preemption.md B.11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import GangUnit, UnitId
from kornel.core.model.not_placed import NotPlaced
from kornel.core.model.users import Account
from kornel.core.policies import user_limits
from kornel.core.policies.bound_groups import bind_groups, find_misplaced
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.budgets import RETRY_NS, set_due
from kornel.core.preemption.guarantee.attempts import drive
from kornel.core.preemption.guarantee.attempts.gang_attempts import GangAttempt, advance_search, is_proposing
from kornel.core.preemption.guarantee.attempts.gang_consulting import GangDialogue
from kornel.core.preemption.guarantee.attempts.gang_plans import GangProposal, apply_plan, call_off, can_carry_out
from kornel.core.preemption.guarantee.guarantee_record import PASS_NS, GuaranteeRecord
from kornel.core.preemption.guarantee.search.planner import KIND
from kornel.core.preemption.plan import GangPlan, Refusal
from kornel.core.state.asks import questions
from kornel.core.state.asks.savings import give_back
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold
from kornel.core.state.waiting.gathering import describe_missing, forms_unit, minimum_by_group
from kornel.core.state.waiting.rooms import UNSERVED, look_again


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
    proposing = is_proposing(state)
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
    found = advance_search(state, attempt, members, now_ns, mends=False)
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
    unit.refusal = found
    drive.tell_refusal(state, members, found, now_ns)
    if found.outcome in drive.WAITS_FOR_CHANGE and found.retry_ns is None:
        for ask in _one_of_each_size(members):
            drive.park_ask(state, ask, found, now_ns)
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
        unit.refusal = Refusal(refused)
        drive.tell_refusal(state, members, unit.refusal, now_ns)
        return False
    if state.callbacks.full:
        unit.no_attempt_is_due()
        set_due(state, first, now_ns + PASS_NS)
        return False
    known = record.gate.known_answer(first, state.changes, now_ns)
    if known is not None:
        unit.no_attempt_is_due()
        unit.refusal = known
        drive.tell_refusal(state, members, known, now_ns)
        return False
    held = None if is_proposing(state) else drive.hold_back(state, first, now_ns)
    if held is not None:
        unit.no_attempt_is_due()
        unit.refusal = held
        budgets.note_held_back(state, KIND, first, held, now_ns)
        set_due(state, first, held.retry_ns if held.retry_ns is not None else now_ns + RETRY_NS)
        return False
    return True


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
    if proposal is not None and set(lost) == set(proposal.plan.members) and can_carry_out(state, proposal.plan):
        del state.gangs.broken[unit_id]
        return
    full = _exceeded_account(unit_id.application, lost)
    if full is not None:
        call_off(state, unit_id, f"the limit of {full} keeps it back", now_ns)
        return
    attempt = state.gangs.attempts.get(unit_id)
    if attempt is None:
        attempt = state.gangs.attempts[unit_id] = GangAttempt(GangDialogue(state, unit_id))
    found = advance_search(state, attempt, lost, now_ns, mends=True)
    if found is None:
        if attempt.dialogue.waits:
            del state.gangs.broken[unit_id]
        return
    del state.gangs.attempts[unit_id]
    state.preemption_attempts += 1
    if isinstance(found, GangPlan) and is_proposing(state) and found.victims:
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
    if not (state.guarantee_preemption or is_proposing(state)):
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
    for ask in find_misplaced(state.topology, hold.members):
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
    return user_limits.find_exceeded_by([ask for ask in lost if not ask.triggered])


def _one_of_each_size(members: Sequence[Allocation]) -> list[Allocation]:
    return list({ask.shape: ask for ask in reversed(members)}.values())
