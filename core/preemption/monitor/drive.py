"""Drives the periodic proportional policy: runs its rounds, sends its notices, and says whose time is up.

The planner is :mod:`.selection`; :mod:`.laws` judges what it selected; :mod:`.taking` makes the victims leave. A round
is a generator that continues a little in every slice, so that it never stops other work for long. The next round begins
an interval after the end of this one, so that victims never have less time than their notice says. Rules: preemption.md
E, H.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.preemption import budgets
from kornel.core.preemption.monitor import consulting, noticing, taking
from kornel.core.preemption.monitor import laws as monitor_laws
from kornel.core.preemption.monitor.decisions import note_observed, record_decision, record_each
from kornel.core.preemption.monitor.plan import KIND, DuePlace, DueVictim, Place, ProposedGang, Selection
from kornel.core.preemption.monitor.selection.round import Memory
from kornel.core.preemption.monitor.selection.selection import select_victims
from kornel.core.preemption.monitor.selection.settings import MonitorSettings, settings_of
from kornel.core.preemption.monitor.taking import still_there
from kornel.core.preemption.plan import GangPlan
from kornel.core.state.asks import reservations
from kornel.core.state.partition_state import PartitionState

NOTICES_A_PIECE: Final = 256


def follow_settings(state: PartitionState, now_ns: int) -> None:
    """Runs rounds as now configured, or stops them."""
    notices = state.notices
    listed = KIND in state.preemption.policies
    settings = settings_of(state.preemption.sections.get(KIND)) if listed else None
    if settings is not None and budgets.is_shadowed(state, KIND):
        settings = replace(settings, observe_only=True)
    if settings == notices.settings:
        return
    notices.settings = settings
    notices.generation += 1
    notices.steps = None
    if notices.consultation is not None:
        notices.consultation.call_off()
        notices.consultation = None
    notices.observed = {}
    notices.lacking = {}
    notices.taken.clear()
    notices.places = ()
    notices.left_out_ns = None
    if settings is None or settings.observe_only:
        _withdraw(state, list(notices.entries), now_ns)
        for unit in list(state.gangs.proposed.values()):
            unit.withdraw(state, now_ns)
    if settings is not None:
        _schedule(state, now_ns + settings.interval_ns)


def is_round_under_way(state: PartitionState) -> bool:
    """Tells whether a round has begun, has not ended yet, and does not wait for the shim."""
    return state.notices.steps is not None and not consulting.is_waiting(state)


def advance_round(state: PartitionState, now_ns: int, budget: int) -> int:
    """Continues the round under way for about *budget* decisions. Returns how many were used."""
    notices = state.notices
    notices.now_ns = now_ns
    notices.slices += 1
    spent = 0
    while (steps := notices.steps) is not None and spent < budget and not consulting.is_waiting(state):
        try:
            looks = next(steps)
            spent += max(1, looks // taking.LOOKS_PER_DECISION) if looks else 0  # A class without tasks takes no turn.
        except StopIteration:
            notices.steps = None
            if notices.settings is not None:
                _schedule(state, now_ns + notices.settings.interval_ns)
    return spent


def has_work(state: PartitionState, _now_ns: int) -> bool:
    """Tells whether a round is under way, or rounds were left out and something waits now."""
    notices = state.notices
    return notices.steps is not None or (notices.left_out_ns is not None and has_use_for_round(state))


def resume_rounds(state: PartitionState, now_ns: int) -> None:
    """Gives the next round its time if rounds were left out and something waits now.

    The times of rounds are as if none had been left out, so that an ask does not meet a round sooner than otherwise.
    """
    notices = state.notices
    if notices.left_out_ns is None or not has_use_for_round(state):
        return
    interval_ns = notices.settings.interval_ns
    intervals = max(1, -((notices.left_out_ns - now_ns) // interval_ns))
    _schedule(state, notices.left_out_ns + intervals * interval_ns)
    notices.left_out_ns = None


def has_use_for_round(state: PartitionState) -> bool:
    """Tells whether a round could change anything now: an ask waits, which may have a reservation or be refused, or an
    earlier round has left something to do."""
    waits = state.root.waiting > 0 or state.reservations or state.refused or state.gangs.proposed
    return bool(waits or state.notices.have_use_for_round)


def _schedule(state: PartitionState, when_ns: int) -> None:
    state.run_at(when_ns, partial(_begin_round, state, state.notices.generation))


def _begin_round(state: PartitionState, generation: int, now_ns: int) -> None:
    notices = state.notices
    if notices.generation != generation or notices.settings is None:
        return
    if has_use_for_round(state):
        notices.steps = _run_round(state, notices.settings)
    else:
        notices.left_out_ns = now_ns


def _run_round(state: PartitionState, settings: MonitorSettings) -> Generator[int, None, None]:
    notices = state.notices
    began = notices.slices
    spared = noticing.settle_credits(state)
    record_each(state, (entry.allocation for entry in spared), Outcome.WITHDRAWN, notices.rounds + 1)
    state.enforcement.round_begins()
    accepted = {key for notice in notices.open.values() if notice.accepted for key in notice.entries}
    units = tuple(state.gangs.proposed.values())
    memory = Memory(notices.entries, accepted, notices.offered, notices.checkpoints, notices.places, units)
    judge = monitor_laws.MildestPlaces(state)
    selection = yield from select_victims(
        state, settings, notices.now_ns, memory=memory, spared=state.enforcement, judge=judge
    )
    yield len(selection.places) // 4  # The records of the search have just been freed, which takes time.
    notices.rounds += 1
    notices.lacking = selection.lacking
    _drop_broken(state, selection)
    if settings.observe_only:
        note_observed(state, selection)
        return
    judged_ns = notices.now_ns
    yield from consulting.consult_shim(state, selection)
    _drop_fallen(state, selection, notices.now_ns)
    notices.places = tuple(selection.places)
    for reservation in selection.reservations:
        if state.reservations.get(reservation.ask.key) is reservation:
            reservations.end_reservation(state, reservation, requeue=True)
    yield from _carry_out(state, settings, selection, began, judged_ns)
    _withdraw(state, [key for key in notices.entries if key not in selection.waits], notices.now_ns)
    notices.offered.clear()


def _carry_out(
    state: PartitionState, settings: MonitorSettings, selection: Selection, began: int, judged_ns: int
) -> Generator[int, None, None]:
    """Notifies applications of the victims that this round selected for the first time, and takes those whose time was
    up at *judged_ns*, when the shim was asked about them."""
    notices = state.notices
    number = notices.rounds
    new: dict[Application, list[tuple[Allocation, int]]] = {}
    due: list[DuePlace] = []
    looked_at = 0
    partial = bool(selection.units)  # They change what the round has seen.
    law = monitor_laws.RoundLimit(state.types.names, selection.limits)
    of_units: dict[Allocation, UnitId] = {}
    waiting: set[UnitId] = set()
    """The gangs with victims that are not due yet."""
    for _, turn in selection.units:
        law.count_place(Place(turn.places[0].ask, turn.places[0].node, turn.victims))
        of_units.update(dict.fromkeys(turn.members, unit_of(turn.members[0])))
    for place in selection.places:
        if place.ask not in of_units:
            law.count_place(place)
        looked_at += 1 + len(place.victims)
        if looked_at >= taking.LOOKS_A_PIECE:
            yield 3 * looked_at
            looked_at = 0
        there: list[DueVictim] = []
        for victim in place.victims:
            due_victim = _enter_victim(state, settings, selection, victim, new, judged_ns)
            if due_victim is not None:
                there.append(due_victim)
        if len(there) < len(place.victims):
            partial = True
            waiting.update([of_units[place.ask]] if place.ask in of_units else ())
        elif place.ask not in of_units:
            due.append(DuePlace(place.ask, place.node, tuple(there)))
    for application, risks in new.items():
        for start_ in range(0, len(risks), NOTICES_A_PIECE):
            risk = [entry for entry in risks[start_ : start_ + NOTICES_A_PIECE] if still_there(state, entry[0])]
            noticing.notify_applications(state, application, risk, notices.now_ns)
            record_each(state, (allocation for allocation, _ in risk), Outcome.NOTIFIED, number)
            yield len(risk) * 4
    if law.broken:
        state.law_violations += len(law.broken)
        record_decision(
            state, state.root, (), Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in law.broken)
        )
        return
    _take_units(state, [unit for unit in selection.units if unit_of(unit[1].members[0]) not in waiting])
    # Later places may use what the victims of earlier ones leave over, so they may not stand alone if these stay for
    # now.
    yield from taking.take_due(state, settings, selection, due, None if partial else began)


def _drop_broken(state: PartitionState, selection: Selection) -> None:
    """Leaves out the places of *selection* that break a law, and those that may use what their victims leave over."""
    broken = selection.broken
    for ask, violation in broken.items():
        state.law_violations += 1
        record_decision(state, ask.queue, (), Outcome.LAW_BROKEN, f"{violation.law}: {ask.key}: {violation.detail}")
    if broken:
        places = selection.places
        selection.drop_places(consulting.list_affected(places, [place for place in places if place.ask in broken]))


def _drop_fallen(state: PartitionState, selection: Selection, now_ns: int) -> None:
    """Drops the plans that do not stand, those among them of which the shim has refused a place in this round."""
    chosen = {place.ask for place in selection.places}
    for unit, turn in list(selection.units):
        if not chosen.issuperset(turn.members):
            selection.fallen.append(unit)
            selection.units.remove((unit, turn))
            selection.drop_places([place for place in selection.places if place.ask in set(turn.members)])
    for unit in selection.fallen:
        unit.withdraw(state, now_ns)


def _take_units(state: PartitionState, units: Sequence[tuple[ProposedGang, GangPlan]]) -> None:
    """Makes the victims of *units*, all of which are due, leave, as far as the laws and the governor allow it now."""
    notices = state.notices
    for unit, turn in units:
        state.law_checks += 1
        if not unit.stands(state, turn):
            unit.withdraw(state, notices.now_ns)
        elif not _is_denied(state, turn):
            for victim in turn.victims:
                notices.drop_entry(notices.entries[victim.key])
            unit.carry_out(state, turn, KIND, notices.now_ns)


def _is_denied(state: PartitionState, turn: GangPlan) -> bool:
    """Tells whether the governor lets the victims of *turn* stay for now; their notices stay, too."""
    notices, preemptor = state.notices, turn.application.queue.path
    return bool(turn.victims) and (
        budgets.deny_victims(state, turn.victims, preemptor, notices.now_ns, notices.decision) is not None
    )


def _enter_victim(
    state: PartitionState,
    settings: MonitorSettings,
    selection: Selection,
    victim: Allocation,
    new: dict[Application, list[tuple[Allocation, int]]],
    judged_ns: int,
) -> DueVictim | None:
    """Returns *victim* if its time was up at *judged_ns*. Otherwise, counts it as selected once more or, if it has no
    notice yet, adds it to *new*."""
    notices = state.notices
    if not still_there(state, victim):
        return None
    wait_ns, now_ns = selection.waits[victim.key], judged_ns
    entry = notices.entries.get(victim.key)
    if entry is not None and (
        entry.allocation is not victim
        or entry.first_round + entry.times != notices.rounds
        or entry.deadline_ns > now_ns + wait_ns
    ):
        # It was not selected in every round since its notice, or the notice gave it more time than it would get now: it
        # gets a new notice.
        notices.drop_entry(entry)
        entry = None
    if entry is None:
        entry = noticing.exchange_entry(state, victim)
    if entry is None:
        new.setdefault(victim.application, []).append((victim, wait_ns))
        return None
    entry.times += 1
    if now_ns < max(entry.deadline_ns, entry.notified_ns + settings.max_wait_ns):
        return None
    return DueVictim(victim, entry.notified_ns, entry.first_round, entry.times)


def _withdraw(state: PartitionState, keys: Iterable[str], now_ns: int) -> None:
    """Withdraws the notices about *keys*, which are no longer at risk."""
    notices = state.notices
    notices.now_ns = now_ns
    entries = [notices.entries[key] for key in keys]
    there = [entry for entry in entries if still_there(state, entry.allocation)]
    noticing.withdraw_notices(state, there)
    for entry in entries:
        notices.drop_entry(entry)
    record_each(state, (entry.allocation for entry in there), Outcome.WITHDRAWN, notices.rounds)
