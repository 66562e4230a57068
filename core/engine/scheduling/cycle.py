"""The allocation cycle: chooses the next ask, places it if it fits, and otherwise lets it preempt if it may.

One call does as much as many cycles of YuniKorn, each of which has one result, and in the same order: after every
result, the choice starts again from the root (scheduling.md 4.1, S-20). An ask that did not fit is set aside until a
change could make a new search succeed.
"""

from __future__ import annotations

from heapq import heappop
from typing import Final

from kornel.core.domain.reasons import Unschedulable
from kornel.core.engine.gangs import approval, gang_savings, gang_turns, replacement, timeouts
from kornel.core.engine.scheduling import limit_savings, loans, progress, reserved, reserving, vetting
from kornel.core.model.allocations import AskGroup
from kornel.core.model.gang_units import GangUnit
from kornel.core.model.not_placed import NotPlaced
from kornel.core.preemption import slices
from kornel.core.state.asks import finding
from kornel.core.state.books.fair_terms import advance_fair_terms
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting import admission, backoff, dependence, failing
from kornel.core.state.waiting.rooms import park_for_domain, park_for_node, park_without_node
from kornel.core.state.waiting.turns import first_group, has_to_wait
from kornel.core.state.waiting.waking import wake_waiting

QUEUES_PER_SLICE: Final = 1_000
"""The most queues whose fair-share denominators one slice computes again while those of all queues are due."""

DOMAINS_PER_UNIT: Final = 25
"""The number of domains in which one decision looks for room; more cost as much as several."""


def run(state: PartitionState, now_ns: int, budget: int) -> tuple[bool, str]:
    """Runs one slice of about *budget* decisions at most. Returns whether there may be more to do at once, and what
    breaks the law of progress with this slice, in words."""
    effects = len(state.effects)
    state.reserving.dues = None
    more, stirred = _run(state, now_ns, budget)
    if state.gained:  # What was placed left others more of what users share.
        wake_waiting(state)
        more = stirred = True
    if not (stirred or more):
        state.progress = ()
        return False, ""
    slices.end_slice(state, now_ns)
    return more, progress.check_progress(state, now_ns, budget, more=more, decided=len(state.effects) > effects)


def _run(state: PartitionState, now_ns: int, budget: int) -> tuple[bool, bool]:
    """Returns whether there may be more to do at once, and whether anything was tried or there was work for a kind."""
    # Timers run before anything is chosen, so that an ask whose pause or delay ends now takes part in this slice.
    timers = state.timers
    while timers and timers[0][0] <= now_ns:
        heappop(timers)[2](now_ns)
    if state.gangs.timed_out:
        timeouts.give_up_expired(state, now_ns)
    if stirred := slices.any_has_work(state, now_ns):
        slices.resume_waiting(state, now_ns)
    if state.reserving.short and limit_savings.is_due(state, now_ns):
        # Those whose attempts to preempt are due would no longer be found at their limits. Pauses bound the cost.
        limit_savings.choose_savers(state, now_ns)
        stirred = True
    if stirred:
        slices.offer_due(state, now_ns)
    if state.waiting_for_turn or state.gangs.waiting_for_turn:
        dependence.wake_those_behind(state)
    unfinished = False
    # This is done before the first choice, because queues are ordered by these shares, and once for all changes of
    # nodes.
    if state.fair_terms_stale or state.fair_terms_steps is not None:
        unfinished = advance_fair_terms(state, QUEUES_PER_SLICE)
        wake_waiting(state)
    if not (stirred and slices.any_busy(state)):
        left = _run_decisions(state, now_ns, budget)
        stirred = stirred or left < budget
        # A gang may lose a place in this slice, to an ask with a required node: it is given another one in the next.
        return left <= 0 or (stirred and slices.any_busy(state)) or unfinished, stirred
    # Asks come first even then, so that asks with a required node preempt before kinds of preemption that are busy.
    # Busy kinds follow in the order of the registry (preemption.md H); a kind that stays busy leaves half of its share
    # to the next one.
    half = share = max(1, budget // 2)
    more = _run_decisions(state, now_ns, half) <= 0
    for driver in slices.busy_drivers(state):
        driver.advance(state, now_ns, share)
        # A gang that had to give its places back waits in line again within this slice, not only from the next one on.
        if slices.resume_waiting(state, now_ns) or (not driver.is_busy(state) and first_group(state) is not None):
            more = _run_decisions(state, now_ns, half) <= 0
        if driver.is_busy(state):
            share = max(1, share // 2)
    return more or slices.any_busy(state) or unfinished, True


def _run_decisions(state: PartitionState, now_ns: int, budget: int) -> int:
    """Decides until nothing is left to do or *budget* is used up. Returns what is left of that."""
    # The steps are in the order of the rules, and after every result the choice starts again from the first one
    # (scheduling.md 4.1). If no further question to the shim may be open, all asks wait, because the shim could not be
    # asked about their nodes.
    callbacks = state.callbacks
    while budget > 0 and not (callbacks.predicates and callbacks.full):
        if state.gangs.broken and gang_savings.mend_broken(state, now_ns):
            budget -= 1
        elif state.reserved_ready and (spent := reserved.serve(state, now_ns)):
            budget -= spent
        elif state.gangs.to_match:
            settle = approval.seek_approval if callbacks.predicates else None
            budget -= replacement.serve(state, now_ns, budget, settle=settle)
        elif state.reserving.short and limit_savings.is_due(state, now_ns):
            budget -= limit_savings.choose_savers(state, now_ns)
        elif (group := first_group(state)) is not None:
            # Some for whom there is too little now may have been put to sleep by that, and begin to save before it.
            if not (state.reserving.short and limit_savings.is_due(state, now_ns)):
                budget -= _serve(state, group, now_ns)
        elif reserving.is_due(state, now_ns):
            budget -= reserving.advance_round(state, now_ns)
        elif loans.is_due(state, now_ns):
            budget -= loans.review_loans(state, now_ns)
        else:
            break
    return budget


def _serve(state: PartitionState, group: AskGroup, now_ns: int) -> int:
    """Places the first ask of *group*, preempts for an ask of it, or sets the group aside. Returns the cost in
    decisions."""
    if group.is_unit:
        assert isinstance(group, GangUnit)
        return 1 if has_to_wait(state, group) else gang_turns.serve_gang(state, group, now_ns)
    ask, cost = group.first_ask(), 1
    if ask.spec.topology is not None and state.topology is not None:
        cost += len(state.topology.domains) // DOMAINS_PER_UNIT
    found = finding.find_node(state, ask)
    if state.reserving.saved and isinstance(found, NotPlaced):
        found = loans.find_lent_node(state, ask, found)
    if not isinstance(found, NotPlaced):
        if not has_to_wait(state, group):
            vetting.place_vetted(state, ask, found, now_ns)
        return cost
    if ask.queue.claimants and (left := slices.take_over_for_group(state, group, now_ns)) is not None:
        reserving.keep_room(state, left, now_ns)
        return 1
    failing.note_unplaced(ask, found.reason, now_ns)
    if found.reason is Unschedulable.REQUIRED_NODE and reserved.insist_on_node(state, ask, now_ns):
        return 1
    ask.missed += 1
    # Preemption comes after placement, because an ask that fits on some node must not preempt.
    if group.due:
        spent, stays = slices.serve_unplaced(state, group, found, now_ns)
        cost += spent
        if stays:
            return cost
    if found.reason is Unschedulable.REFUSED_BY_PREDICATE:
        vetting.refused_everywhere(state, ask, now_ns)
        reserving.wait_for_age(state, ask, now_ns)
    else:
        set_aside(state, group, found, now_ns)
    return cost


def set_aside(state: PartitionState, group: AskGroup, why: NotPlaced, now_ns: int) -> None:
    """Parks *group*, which found no node, in the waiting room for what it lacks according to *why*."""
    gate = why.account or why.queue
    if gate is not None and why.reason is Unschedulable.APPLICATION_LIMIT:
        admission.keep_from_starting(state, group.application, gate)
    elif gate is not None:
        limit_savings.park_short(state, group, group.shape, gate, now_ns)
    elif why.reason is Unschedulable.REQUIRED_NODE:
        park_for_node(state, group)
    elif why.reason is Unschedulable.NO_FITTING_DOMAIN:
        park_for_domain(state, group)
        reserving.wait_for_age(state, group.first_ask(), now_ns)
    else:
        park_without_node(state, group, group.shape)
        backoff.count_unplaced(state, group, now_ns)
        reserving.wait_for_age(state, group.first_ask(), now_ns)
