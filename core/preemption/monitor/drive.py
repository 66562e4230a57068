"""Drives the periodic proportional policy: runs its rounds, sends its notices, and preempts victims whose time is up.

The planner is :mod:`.selection`; :mod:`.laws` judges what it selected. A round is a generator that continues a little
in every slice, so that it never stops other work for long. The next round begins an interval after the end of this one,
so that victims never have less time than their notice says. Rules: preemption.md E, H.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kornel.core.domain.commands import TerminationType
from kornel.core.domain.effects import PreemptionDecided, Released, VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import NO_VICTIMS, Allocation
from kornel.core.model.applications import Application
from kornel.core.model.gang_units import UnitId, unit_of
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.gang_losses import SpareMembers, can_leave_whole, find_whole_gangs
from kornel.core.preemption.monitor import consulting, noticing
from kornel.core.preemption.monitor import laws as monitor_laws
from kornel.core.preemption.monitor.plan import KIND, DuePlace, DueVictim, MonitorPlan, Place, ProposedGang, Selection
from kornel.core.preemption.monitor.selection.round import Memory
from kornel.core.preemption.monitor.selection.selection import select_victims
from kornel.core.preemption.monitor.selection.settings import MonitorSettings, settings_of
from kornel.core.preemption.plan import GangPlan
from kornel.core.preemption.priorities import adjustment_of
from kornel.core.state.asks import reservations
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.notices import Taken

LOOKS_PER_DECISION: Final = 16
"""The number of allocations that can be looked at in the time of one placement."""
KILLS_A_PIECE: Final = 64
"""The number of victims that are asked to leave in one piece of work; each costs about as much as a placement."""
NOTICES_A_PIECE: Final = 256
LONGEST_PAUSE_NS: Final = 600 * 10**9
"""The longest pause before tasks are taken again from a leaf that got its room back."""
LOOKS_A_PIECE: Final = 1_000
_TRIGGERED: Final = Outcome.TRIGGERED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every place needs it."""


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
            spent += max(1, looks // LOOKS_PER_DECISION) if looks else 0  # A class without tasks takes no turn.
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
    _record_each(state, (entry.allocation for entry in spared), Outcome.WITHDRAWN, notices.rounds + 1)
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
        _note_observed(state, selection)
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
        if looked_at >= LOOKS_A_PIECE:
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
            risk = [entry for entry in risks[start_ : start_ + NOTICES_A_PIECE] if _still_there(state, entry[0])]
            noticing.notify_applications(state, application, risk, notices.now_ns)
            _record_each(state, (allocation for allocation, _ in risk), Outcome.NOTIFIED, number)
            yield len(risk) * 4
    if law.broken:
        state.law_violations += len(law.broken)
        _record_decision(
            state, state.root, (), Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in law.broken)
        )
        return
    _take_units(state, [unit for unit in selection.units if unit_of(unit[1].members[0]) not in waiting])
    # Later places may use what the victims of earlier ones leave over, so they may not stand alone if these stay for
    # now.
    yield from _take_due(state, settings, selection, due, None if partial else began)


def _drop_broken(state: PartitionState, selection: Selection) -> None:
    """Leaves out the places of *selection* that break a law, and those that may use what their victims leave over."""
    broken = selection.broken
    for ask, violation in broken.items():
        state.law_violations += 1
        _record_decision(state, ask.queue, (), Outcome.LAW_BROKEN, f"{violation.law}: {ask.key}: {violation.detail}")
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
    if not _still_there(state, victim):
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


def _take_due(
    state: PartitionState, settings: MonitorSettings, selection: Selection, due: Sequence[DuePlace], began: int | None
) -> Generator[int, None, None]:
    """Takes the victims of places that are due, in bounded pieces, except from leaves that are spared now.

    *began*: the slice in which they were selected; ``None``: they are only a part of what was selected.
    """
    notices = state.notices
    freed: set[Node | None] = set()
    """The nodes where a victim may leave now. An ask without victims that uses the remaining room of such a node
    belongs to the same plan."""
    for start_ in range(0, len(due), LOOKS_A_PIECE):
        looked_at = due[start_ : start_ + LOOKS_A_PIECE]
        freed.update([due_victim.allocation.node for place in looked_at for due_victim in place.victims])
        yield LOOKS_A_PIECE // 4
    in_order = yield from _by_node(due)
    paused: dict[Queue, bool] = {}
    taken: dict[Queue, Taken] = {}
    piece: list[DuePlace] = []
    cost = 0
    for place in in_order:
        if not place.victims:
            if place.node in freed:
                piece.append(place)
                cost += 1
            continue
        stays = False
        for due_victim in place.victims:
            leaf = due_victim.allocation.application.queue
            if leaf not in paused:
                noted = None if leaf in state.enforcement else _worth_taking(state, settings, selection, leaf)
                paused[leaf] = noted is None
                if noted is not None:
                    taken[leaf] = noted
            stays = stays or paused[leaf]
        if stays:
            began = None
            continue
        piece.append(place)
        cost += 1 + len(place.victims)
        if cost >= KILLS_A_PIECE:
            if not _take_places(state, settings, selection, piece, taken, stale=notices.slices != began):
                began = None
            yield cost * LOOKS_PER_DECISION
            piece, cost = [], 0
    _take_places(state, settings, selection, piece, taken, stale=notices.slices != began)
    for leaf, noted in taken.items():
        if noted.served:
            notices.taken[leaf.path] = noted
    yield cost * LOOKS_PER_DECISION


def _by_node(due: Sequence[DuePlace]) -> Generator[int, None, Sequence[DuePlace]]:
    """Sorts *due*, in pieces of work, so that the places of a node are together and keep their order, because then the
    claims on the node are computed less often. The order stays as it is if victims on one node make room on another, or
    if an ask gives up a reservation.
    """
    by_node: dict[Node, list[DuePlace]] = {}
    for looked_at, place in enumerate(due, 1):
        if looked_at % LOOKS_A_PIECE == 0:
            yield LOOKS_A_PIECE // 2
        node = place.node
        if place.ask.reservation is not None:
            return due
        for due_victim in place.victims:
            if due_victim.allocation.node is not node:
                return due
        if node in by_node:
            by_node[node].append(place)
        else:
            by_node[node] = [place]
    return [place for places in by_node.values() for place in places]


def _worth_taking(state: PartitionState, settings: MonitorSettings, selection: Selection, leaf: Queue) -> Taken | None:
    """Returns the record to be kept when tasks are taken from *leaf*, or ``None`` if *leaf* is spared because taking
    from it did not help.

    If *leaf* gets its room back while an ask for which the room was taken still waits, this could be repeated for ever
    (preemption.md K13). So each repetition in a row doubles the pause before the next one, and time without a
    repetition shortens it again.
    """
    notices = state.notices
    now_ns = notices.now_ns
    held = {t: leaf.used[t] - leaf.preempting[t] for t in selection.targets.get(leaf, {})}
    last = notices.taken.get(leaf.path)
    futile = 0
    if last is not None:
        back = all(amount >= last.held.get(t, amount + 1) for t, amount in held.items())
        waiting = any(ask.pending and state.requests.get(ask.key) is ask for ask in last.served)
        shortest_ns = max(settings.max_wait_ns, settings.interval_ns)
        if back and waiting:
            futile = last.futile + 1
            pause_ns = min(shortest_ns << min(futile, 16), LONGEST_PAUSE_NS)
            if now_ns < last.at_ns + pause_ns:
                return None
            while futile and now_ns >= last.at_ns + 2 * pause_ns:
                futile -= 1
                pause_ns *= 2
    return Taken(now_ns, held, futile, {})


def _take_places(
    state: PartitionState,
    settings: MonitorSettings,
    selection: Selection,
    piece: Sequence[DuePlace],
    taken: Mapping[Queue, Taken],
    *,
    stale: bool,
) -> bool:
    """Takes the victims of *piece* for its asks (preemption.md B.7). *stale* tells whether the engine has done other
    work since they were selected.

    Returns false if the governor denies some, so that later places may lack what these would have left over.
    """
    notices = state.notices
    spare = SpareMembers()
    piece = [place for place in piece if _can_take(state, place, spare)]
    if not any(place.victims for place in piece):
        return True
    number, now_ns = notices.rounds, notices.now_ns
    plan = MonitorPlan(number, now_ns, settings.max_wait_ns, tuple(piece), settings.balance)
    state.law_checks += 1
    violations = monitor_laws.check(state, plan)
    if violations and stale:
        # Guarantees and demand may have changed since. The places that are still lawful are found by trying each half.
        half = len(piece) // 2
        if half:
            _take_places(state, settings, selection, piece[:half], taken, stale=True)
            _take_places(state, settings, selection, piece[half:], taken, stale=True)
        return True
    if violations:
        state.law_violations += len(violations)
        leaf = piece[0].ask.queue
        _record_decision(state, leaf, (), Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in violations))
        return True
    gone: dict[Queue, list[Allocation]] = {}
    served: list[tuple[Allocation, Mapping[str, Allocation], int]] = []
    allowed = _allow_places(state, plan)
    leaving = {due_victim.allocation: place.ask for place in allowed for due_victim in place.victims}
    _evict_victims(state, leaving, now_ns)
    for place in allowed:  # Marking a victim has all claims of its node tried.
        ask = place.ask
        victims = {due_victim.allocation.key: due_victim.allocation for due_victim in place.victims}
        _hold_place(state, ask, place.node, victims)
        served.append((ask, victims, ask.rearms))
        for victim in victims.values():
            leaf = victim.application.queue
            taken[leaf].served[ask] = None
            if leaf in gone:
                gone[leaf].append(victim)
            else:
                gone[leaf] = [victim]
    _watch_exits(state, served, now_ns)
    for leaf, allocations in gone.items():
        if state.recording:
            state.events.preempted_for_share(allocations, leaf)
        state.preemptions += 1
        target = state.types.to_resources(selection.targets.get(leaf, {}))
        _record_decision(state, leaf, allocations, Outcome.TRIGGERED, f"round {number}, to give up {target}")
    return len(allowed) == len(piece)


def _can_take(state: PartitionState, place: DuePlace, spare: SpareMembers) -> bool:
    """Tells whether all victims of *place* still run, and none of them is a member that its gang needs, unless the
    whole gang leaves."""
    victims = [due_victim.allocation for due_victim in place.victims]
    if not all(_still_there(state, victim) for victim in victims):
        return False
    kept = [victim for victim in victims if not spare.may_leave(victim)]
    if not kept:
        return True
    whole = find_whole_gangs(victims)
    return all(victim.application in whole and can_leave_whole(whole[victim.application]) for victim in kept)


def _allow_places(state: PartitionState, plan: MonitorPlan) -> list[DuePlace]:
    """Returns the places of *plan* that the governor allows and that need nothing of those which it denies, and books
    their cost.

    The notices of the other victims stay, so they may be taken later.
    """
    notices = state.notices
    now_ns, decision = notices.now_ns, notices.decision
    by_preemptor: dict[str, list[Allocation]] = {}
    for place in plan.places:
        theirs = by_preemptor.setdefault(place.ask.application.queue.path, [])
        for due_victim in place.victims:
            theirs.append(due_victim.allocation)
    if budgets.note_together(state, KIND, by_preemptor, now_ns, decision):
        return list(plan.places)
    allowed: list[DuePlace] = []
    kept: set[Node | None] = set()
    """The nodes where victims stay."""
    for place in plan.places:
        victims = [due_victim.allocation for due_victim in place.victims]
        preemptor = place.ask.queue.path
        if victims:
            denied = budgets.deny_victims(state, victims, preemptor, now_ns, decision) is not None
            if denied or (place.node in kept and not _stands_without(state, plan, allowed, place)):
                kept |= _nodes_of(place)
                continue
            budgets.note_taken(state, KIND, victims, preemptor, (), now_ns, decision)
        allowed.append(place)
    return [place for place in allowed if place.victims or place.node not in kept]


def _stands_without(state: PartitionState, plan: MonitorPlan, allowed: Sequence[DuePlace], place: DuePlace) -> bool:
    """Tells whether *place* is lawful after those *allowed* before it that free something on its node."""
    before = [other for other in allowed if other.victims and place.node in _nodes_of(other)]
    return not monitor_laws.check(state, replace(plan, places=(*before, place)))


def _nodes_of(place: DuePlace) -> set[Node | None]:
    """Returns the node of *place* and those of its victims, where later places may use what is left over."""
    return {place.node, *(due_victim.allocation.node for due_victim in place.victims)}


def _evict_victims(state: PartitionState, leaving: Mapping[Allocation, Allocation], now_ns: int) -> None:
    """Asks the shim to release the victims *leaving*, each for the ask that it is mapped to."""
    notices, effects, name = state.notices, state.effects, state.name
    eviction.mark_victims(state, leaving, now_ns)
    termination = TerminationType.PREEMPTED_BY_SCHEDULER
    texts: dict[Queue, str] = {}
    for victim in leaving:
        notices.drop_entry(notices.entries[victim.key])
        spec, application = victim.spec, victim.application
        leaf = application.queue
        message = texts.get(leaf)
        if message is None:
            why = f"queue {leaf.path} holds more than its share"
            message = texts[leaf] = f"preempted by the monitor in round {notices.rounds}: {why}"
        effects.append(Released(name, application.application_id, spec.key, termination, message, spec.instance))


def _hold_place(state: PartitionState, ask: Allocation, node: Node, victims: Mapping[str, Allocation]) -> None:
    """Holds the room of *victims*, given by key, for *ask* on *node*, or room that is left over there (preemption.md
    B.7)."""
    if victims:
        ask.victims = {**ask.victims, **victims}
    ledger.book_claim(state, ask)
    ask.outcome = _TRIGGERED
    # While its victims are leaving, there is no room for the ask, and a search for some would cost as much as all the
    # rest.
    reservations.reserve_node(state, ask, node, state.notices.now_ns, at_once=not victims)
    if ask.shape.devices is not None and ask.reservation is not None:
        device_books.keep_devices(node, ask, victims.values(), state.stuck)


def _watch_exits(
    state: PartitionState, served: Sequence[tuple[Allocation, Mapping[str, Allocation], int]], now_ns: int
) -> None:
    """Checks after a while whether the victims of each ask have left (preemption.md K14), and whether each ask without
    victims was placed. Each ask comes with the number of times that it had been re-armed."""
    state.run_at(now_ns + state.preemption.victim_timeout_ns, partial(_look_at_served, state, served))


def _look_at_served(
    state: PartitionState, served: Sequence[tuple[Allocation, Mapping[str, Allocation], int]], now_ns: int
) -> None:
    for ask, victims, rearms in served:
        there = ask.pending and state.requests.get(ask.key) is ask
        if not ask.triggered or ask.rearms != rearms or not there:
            continue
        stuck = [victim for victim in victims.values() if victim.preempted and victim.preemptor is ask]
        if stuck:
            _give_up_victims(state, ask, stuck, now_ns)
        elif not victims:
            eviction.rearm_ask(state, ask, now_ns)


def _give_up_victims(state: PartitionState, ask: Allocation, stuck: Sequence[Allocation], now_ns: int) -> None:
    """Makes *ask* try other nodes, because the victims *stuck* do not leave; these stay marked (preemption.md K14)."""
    ask.stuck = {**ask.stuck, **{victim.key: victim.node.node_id for victim in stuck if victim.node is not None}}
    for victim in stuck:
        victim.preemptor = None
        state.stuck[victim] = ask
        ledger.expect_no_exit(state, victim)
    ask.victims = NO_VICTIMS
    by_leaf: dict[Queue, list[Allocation]] = {}
    for victim in stuck:
        by_leaf.setdefault(victim.queue, []).append(victim)
    waited_s = state.preemption.victim_timeout_ns / 10**9
    for leaf, theirs in by_leaf.items():
        _record_decision(state, leaf, theirs, Outcome.VICTIM_STUCK, f"not gone after {waited_s:g} s")
    eviction.rearm_ask(state, ask, now_ns)


def _note_observed(state: PartitionState, selection: Selection) -> None:
    """Records what would have been taken, for leaves where that has changed since the last round."""
    notices = state.notices
    seen: dict[Queue, list[Allocation]] = {}
    for allocation in selection.allocations:
        seen.setdefault(allocation.queue, []).append(allocation)
    observed: dict[str, tuple[str, ...]] = {}
    for leaf, allocations in seen.items():
        observed[leaf.path] = tuple(allocation.key for allocation in allocations)
        if observed[leaf.path] != notices.observed.get(leaf.path):
            target = state.types.to_resources(selection.targets.get(leaf, {}))
            _record_decision(state, leaf, allocations, Outcome.OBSERVED, f"round {notices.rounds}, to give up {target}")
    notices.observed = observed


def _withdraw(state: PartitionState, keys: Iterable[str], now_ns: int) -> None:
    """Withdraws the notices about *keys*, which are no longer at risk."""
    notices = state.notices
    notices.now_ns = now_ns
    entries = [notices.entries[key] for key in keys]
    there = [entry for entry in entries if _still_there(state, entry.allocation)]
    noticing.withdraw_notices(state, there)
    for entry in entries:
        notices.drop_entry(entry)
    _record_each(state, (entry.allocation for entry in there), Outcome.WITHDRAWN, notices.rounds)


def _still_there(state: PartitionState, allocation: Allocation) -> bool:
    """Tells whether *allocation* still runs, and that it is not being released."""
    application = allocation.application
    return (
        application.allocations.get(allocation.key) is allocation
        and not allocation.preempted
        and not allocation.released
        and state.applications.get(application.application_id) is application
    )


def _record_each(state: PartitionState, allocations: Iterable[Allocation], outcome: Outcome, number: int) -> None:
    """Records one decision for each leaf."""
    by_leaf: dict[Queue, list[Allocation]] = {}
    for allocation in allocations:
        by_leaf.setdefault(allocation.queue, []).append(allocation)
    for leaf, theirs in by_leaf.items():
        _record_decision(state, leaf, theirs, outcome, f"round {number}")


def _record_decision(
    state: PartitionState, leaf: Queue, allocations: Sequence[Allocation], outcome: Outcome, detail: str
) -> None:
    adjusted = adjustment_of(leaf, state.root)
    victims = tuple(
        VictimRecord(
            allocation.spec.key,
            allocation.application.application_id,
            leaf.path,
            allocation.node.node_id if allocation.node is not None else "",
            allocation.shape.resources,
            adjusted.of(allocation.priority),
        )
        for allocation in allocations
    )
    state.report_decision(
        PreemptionDecided(state.notices.now_ns, state.name, KIND, "", "", leaf.path, outcome, detail, "", victims)
    )
