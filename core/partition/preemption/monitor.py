"""The periodic proportional policy as the partition does it: rounds, notices, and what happens when time is up.

Who should go is decided by :mod:`core.policies.preemption.monitor`, whether that is lawful by :mod:`core.laws.monitor`.
A round is a generator that is moved on a little in every slice, so that it never stops other work for long; the next
one begins an interval after it has ended, so that a notice is never younger than it claims. Rules: preemption.md E, H.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from core.domain.commands import TerminationType
from core.domain.effects import PreemptionDecided, Released, VictimRecord
from core.domain.reasons import Outcome
from core.laws import monitor as monitor_laws
from core.model.allocations import Allocation
from core.model.applications import Application
from core.model.notices import Taken
from core.model.queues import Queue
from core.partition.books import ledger
from core.partition.preemption import noticing
from core.partition.scheduling import placement
from core.partition.state import PartitionState
from core.policies.preemption.monitor.plan import KIND, Doomed, MonitorPlan, Selection
from core.policies.preemption.monitor.selection import select
from core.policies.preemption.monitor.settings import MonitorSettings, settings_of
from core.policies.preemption.priorities import adjustment

LOOKS_PER_DECISION: Final = 16
"""Allocations that can be looked at in the time of one placement."""
KILLS_A_PIECE: Final = 64
"""Victims told to leave at a time; each costs about as much as a placement."""
NOTICES_A_PIECE: Final = 256
LONGEST_PAUSE_NS: Final = 600 * 10**9
"""Between two times of taking from a leaf what it gets back."""
LOOKS_A_PIECE: Final = 1_000


def start(state: PartitionState, now_ns: int) -> None:
    """Have rounds from now on as configured, or none any more."""
    notices = state.notices
    listed = KIND in state.preemption.policies
    settings = settings_of(state.preemption.monitor) if listed else None
    if settings == notices.settings:
        return
    notices.settings = settings
    notices.generation += 1
    notices.steps = None
    notices.observed = {}
    notices.taken.clear()
    if settings is None or settings.observe_only:
        _withdraw(state, list(notices.entries), now_ns)
    if settings is not None:
        _schedule(state, now_ns + settings.interval_ns)


def advance(state: PartitionState, now_ns: int, budget: int) -> int:
    """Go on with the round under way for about *budget* decisions. Returns how many it was."""
    notices = state.notices
    notices.now_ns = now_ns
    notices.slices += 1
    spent = 0
    while notices.steps is not None and spent < budget:
        try:
            spent += max(1, next(notices.steps) // LOOKS_PER_DECISION)
        except StopIteration:
            notices.steps = None
            if notices.settings is not None:
                _schedule(state, now_ns + notices.settings.interval_ns)
    return spent


def _schedule(state: PartitionState, when_ns: int) -> None:
    generation = state.notices.generation

    def begin(_: int) -> None:
        notices = state.notices
        if notices.generation == generation and notices.settings is not None:
            notices.steps = _round(state, notices.settings)

    state.at(when_ns, begin)


def _round(state: PartitionState, settings: MonitorSettings) -> Generator[int, None, None]:
    notices = state.notices
    began = notices.slices
    spared = noticing.settle_credits(state)
    _record_each(state, (entry.allocation for entry in spared), Outcome.WITHDRAWN, notices.rounds + 1)
    selection = yield from select(state, settings, notices.now_ns, offered=notices.offered)
    notices.rounds += 1
    if settings.observe_only:
        _observe(state, selection)
        return
    for reservation in selection.reservations:
        if state.reservations.get(reservation.ask.key) is reservation:
            placement.unreserve(state, reservation, requeue=True)
    yield from _carry_out(state, settings, selection, began)
    _withdraw(state, [key for key in notices.entries if key not in selection.waits], notices.now_ns)


def _carry_out(
    state: PartitionState, settings: MonitorSettings, selection: Selection, began: int
) -> Generator[int, None, None]:
    """Notify whom this round selected for the first time, and take those whose time is up."""
    notices = state.notices
    number = notices.rounds
    new: dict[Application, list[tuple[Allocation, int]]] = {}
    doomed: dict[Queue, list[Doomed]] = {}
    for at, allocation in enumerate(selection.allocations, 1):
        if at % LOOKS_A_PIECE == 0:
            yield 2 * LOOKS_A_PIECE
        if not _still_there(state, allocation):
            continue
        wait_ns = selection.waits[allocation.key]
        entry = notices.entries.get(allocation.key)
        now_ns = notices.now_ns
        if entry is not None and (
            entry.allocation is not allocation
            or entry.first_round + entry.times != number
            or entry.deadline_ns > now_ns + wait_ns
        ):
            # Not selected in every round since, or told a later time than there is now: told anew.
            notices.drop(entry)
            entry = None
        if entry is None:
            new.setdefault(allocation.application, []).append((allocation, wait_ns))
            continue
        entry.times += 1
        if now_ns >= max(entry.deadline_ns, entry.notified_ns + settings.max_wait_ns):
            due = Doomed(allocation, entry.notified_ns, entry.first_round, entry.times)
            doomed.setdefault(allocation.queue, []).append(due)
    for application, risks in new.items():
        for start_ in range(0, len(risks), NOTICES_A_PIECE):
            risk = [entry for entry in risks[start_ : start_ + NOTICES_A_PIECE] if _still_there(state, entry[0])]
            noticing.notify(state, application, risk, notices.now_ns)
            _record_each(state, (allocation for allocation, _ in risk), Outcome.NOTIFIED, number)
            yield len(risk) * 4
    for leaf, victims in doomed.items():
        if not _worth_taking(state, settings, selection, leaf):
            continue
        for start_ in range(0, len(victims), KILLS_A_PIECE):
            piece = victims[start_ : start_ + KILLS_A_PIECE]
            _take(state, settings, selection, piece, stale=notices.slices != began)
            yield len(piece) * LOOKS_PER_DECISION


def _worth_taking(state: PartitionState, settings: MonitorSettings, selection: Selection, leaf: Queue) -> bool:
    """Whether *leaf* is to give up something now, which is noted.

    Where the order of queues hands what was taken back to the same leaf, taking it again would go on for ever (K13):
    each time it has everything back, the next try has to wait twice as long.
    """
    notices = state.notices
    held = {t: leaf.used[t] - leaf.preempting[t] for t in selection.targets.get(leaf, {})}
    last = notices.taken.get(leaf.path)
    futile = 0
    if last is not None and all(amount >= last.held.get(t, amount + 1) for t, amount in held.items()):
        futile = last.futile + 1
        pause_ns = max(settings.max_wait_ns, settings.interval_ns) << min(futile, 16)
        if notices.now_ns < last.at_ns + min(pause_ns, LONGEST_PAUSE_NS):
            return False
    notices.taken[leaf.path] = Taken(notices.now_ns, held, futile)
    return True


def _take(
    state: PartitionState, settings: MonitorSettings, selection: Selection, piece: Sequence[Doomed], *, stale: bool
) -> None:
    """Have *piece*, victims of one leaf, leave (B.7). *stale*: other things happened since they were selected."""
    notices = state.notices
    piece = [doomed for doomed in piece if _still_there(state, doomed.allocation)]
    if not piece:
        return
    number, now_ns = notices.rounds, notices.now_ns
    plan = MonitorPlan(number, now_ns, settings.max_wait_ns, tuple(piece), selection.limits, selection.selected)
    state.law_checks += 1
    violations = monitor_laws.check(state, plan)
    if violations and stale:
        # Guarantees and demand may have moved on: those that may still go are found by halves.
        half = len(piece) // 2
        if half:
            _take(state, settings, selection, piece[:half], stale=True)
            _take(state, settings, selection, piece[half:], stale=True)
        return
    allocations = [doomed.allocation for doomed in piece]
    leaf = allocations[0].queue
    if violations:
        state.law_violations += len(violations)
        _record(state, leaf, (), Outcome.LAW_BROKEN, "; ".join(f"{v.law}: {v.detail}" for v in violations))
        return
    message = f"preempted by the monitor in round {number}: queue {leaf.path} holds more than its share"
    for victim in allocations:
        entry = notices.entries[victim.key]
        notices.drop(entry)
        ledger.mark(victim, None)
        state.effects.append(
            Released(
                state.name,
                victim.application.application_id,
                victim.spec.key,
                TerminationType.PREEMPTED_BY_SCHEDULER,
                message,
                victim.spec.instance,
            )
        )
    if state.recording:
        state.events.preempted_for_share(allocations, leaf)
    state.preemptions += 1
    target = state.types.resources(selection.targets.get(leaf, {}))
    _record(state, leaf, allocations, Outcome.TRIGGERED, f"round {number}, to give up {target}")


def _observe(state: PartitionState, selection: Selection) -> None:
    """Say what would be done where that has changed since the last round."""
    notices = state.notices
    seen: dict[Queue, list[Allocation]] = {}
    for allocation in selection.allocations:
        seen.setdefault(allocation.queue, []).append(allocation)
    observed: dict[str, tuple[str, ...]] = {}
    for leaf, allocations in seen.items():
        observed[leaf.path] = tuple(allocation.key for allocation in allocations)
        if observed[leaf.path] != notices.observed.get(leaf.path):
            target = state.types.resources(selection.targets.get(leaf, {}))
            _record(state, leaf, allocations, Outcome.OBSERVED, f"round {notices.rounds}, to give up {target}")
    notices.observed = observed


def _withdraw(state: PartitionState, keys: Iterable[str], now_ns: int) -> None:
    """Those of *keys* that are still at risk are so no more."""
    notices = state.notices
    notices.now_ns = now_ns
    entries = [notices.entries[key] for key in keys]
    there = [entry for entry in entries if _still_there(state, entry.allocation)]
    noticing.withdraw(state, there)
    for entry in entries:
        notices.drop(entry)
    _record_each(state, (entry.allocation for entry in there), Outcome.WITHDRAWN, notices.rounds)


def _still_there(state: PartitionState, allocation: Allocation) -> bool:
    """Whether *allocation* still runs, and nobody told it to leave."""
    application = allocation.application
    return (
        application.allocations.get(allocation.key) is allocation
        and not allocation.preempted
        and not allocation.released
        and state.applications.get(application.application_id) is application
    )


def _record_each(state: PartitionState, allocations: Iterable[Allocation], outcome: Outcome, number: int) -> None:
    """One record for each leaf."""
    by_leaf: dict[Queue, list[Allocation]] = {}
    for allocation in allocations:
        by_leaf.setdefault(allocation.queue, []).append(allocation)
    for leaf, theirs in by_leaf.items():
        _record(state, leaf, theirs, outcome, f"round {number}")


def _record(
    state: PartitionState, leaf: Queue, allocations: Sequence[Allocation], outcome: Outcome, detail: str
) -> None:
    adjusted = adjustment(leaf, state.root)
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
    state.effects.append(
        PreemptionDecided(state.notices.now_ns, state.name, KIND, "", "", leaf.path, outcome, detail, "", victims)
    )
