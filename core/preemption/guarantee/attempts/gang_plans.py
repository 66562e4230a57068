"""Carries out plans for gangs, at once or in turns of the periodic policy, and watches them.

A plan ends when all members are placed, or is called off. Rules: preemption.md B.7, B.11, H, K3, K14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.reasons import Outcome
from kornel.core.laws.verdict import Law
from kornel.core.model.allocations import NO_VICTIMS, Allocation, sum_amounts
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.model.nodes import Node
from kornel.core.policies.bound_groups import name_domains
from kornel.core.policies.view import PartitionView
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.budgets import RETRY_NS, set_due
from kornel.core.preemption.gang_losses import describe_whole
from kornel.core.preemption.guarantee import laws
from kornel.core.preemption.plan import GangPlan, PreemptionPlan, Refusal
from kornel.core.state.asks import moves, questions, reservations
from kornel.core.state.books import ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.gang_record import GangHold
from kornel.core.state.waiting import failing
from kornel.core.state.waiting.rooms import UNSERVED, activate_group
from kornel.shared.readable_amounts import format_count, format_quantities

MOST_NAMED: Final = 3
"""The most lost places that a decision describes."""


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
        if not can_carry_out(view, self.plan):
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
        return _all_wait(turn) and all(broken.law is Law.UNIT_WHOLE for broken in laws.check(view, turn))

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


def can_carry_out(view: PartitionView, plan: GangPlan) -> bool:
    """Tells whether all members of *plan* still wait for it, and the laws allow it now."""
    return _all_wait(plan) and not laws.check(view, plan)


def _all_wait(plan: GangPlan) -> bool:
    """Tells whether the members of *plan* still wait, and the shim is not being asked about them."""
    return plan.application.state not in UNSERVED and all(ask.place is AskPlace.WAITING for ask in plan.members)


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
