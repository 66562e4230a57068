"""Makes the victims of a round leave whose time is up, in bounded pieces, except from leaves that are spared now.

Rules: preemption.md B.7, E, K13, K14.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kornel.core.domain.commands import TerminationType
from kornel.core.domain.effects import Released
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import NO_VICTIMS, Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption import budgets, eviction
from kornel.core.preemption.gang_losses import SpareMembers, can_leave_whole, find_whole_gangs
from kornel.core.preemption.monitor import laws as monitor_laws
from kornel.core.preemption.monitor.decisions import record_decision
from kornel.core.preemption.monitor.plan import KIND, DuePlace, MonitorPlan, Selection
from kornel.core.preemption.monitor.selection.settings import MonitorSettings
from kornel.core.state.asks import reservations
from kornel.core.state.books import device_books, ledger
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.records.notices import Taken

LOOKS_PER_DECISION: Final = 16
"""The number of allocations that can be looked at in the time of one placement."""
KILLS_A_PIECE: Final = 64
"""The number of victims that are asked to leave in one piece of work; each costs about as much as a placement."""
LONGEST_PAUSE_NS: Final = 600 * 10**9
"""The longest pause before tasks are taken again from a leaf that got its room back."""
LOOKS_A_PIECE: Final = 1_000
_TRIGGERED: Final = Outcome.TRIGGERED
"""Kept as a constant, because reading a member from its class costs as much as a call, and every place needs it."""


def take_due(
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
        record_decision(state, leaf, (), Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in violations))
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
        record_decision(state, leaf, allocations, Outcome.TRIGGERED, f"round {number}, to give up {target}")
    return len(allowed) == len(piece)


def _can_take(state: PartitionState, place: DuePlace, spare: SpareMembers) -> bool:
    """Tells whether all victims of *place* still run, and none of them is a member that its gang needs, unless the
    whole gang leaves."""
    victims = [due_victim.allocation for due_victim in place.victims]
    if not all(still_there(state, victim) for victim in victims):
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
        record_decision(state, leaf, theirs, Outcome.VICTIM_STUCK, f"not gone after {waited_s:g} s")
    eviction.rearm_ask(state, ask, now_ns)


def still_there(state: PartitionState, allocation: Allocation) -> bool:
    """Tells whether *allocation* still runs, and that it is not being released."""
    application = allocation.application
    return (
        application.allocations.get(allocation.key) is allocation
        and not allocation.preempted
        and not allocation.released
        and state.applications.get(application.application_id) is application
    )
