"""Handles releases: asks that are withdrawn, allocations that end, and confirmations (protocol.md 3.4, 3.6, 10)."""

from __future__ import annotations

from kornel.core.domain.commands import ReleaseSpec, TerminationType
from kornel.core.domain.reasons import Ignored
from kornel.core.engine import lifecycle
from kornel.core.engine.intake import handshake, removal
from kornel.core.engine.intake.allocation_intake import vacate_node
from kornel.core.engine.withdrawing import withdraw_ask
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.state.asks import instances
from kornel.core.state.asks.answers import answer_release
from kornel.core.state.partition_state import PartitionState


def withdraw(state: PartitionState, spec: ReleaseSpec, now_ns: int) -> None:
    """Handles one entry of the G2 list ``allocationAsksToRelease``; TIMEOUT is a confirmation and is ignored
    (protocol.md 3.4)."""
    application = state.applications.get(spec.application_id)
    if application is None:
        state.ignore_entry(Ignored.UNKNOWN_APPLICATION, spec.application_id)
        return
    if spec.termination == TerminationType.TIMEOUT:
        state.ignore_entry(Ignored.CONFIRMATION, spec.key)
        return
    named = application.asks.values() if not spec.key else instances.of_key(state, spec.key)
    asks = [ask for ask in named if application.asks.get(ask.key) is ask]
    for ask in asks:
        withdraw_ask(state, ask)
    if asks:
        lifecycle.asks_withdrawn(state, application, now_ns)
    else:
        state.ignore_entry(Ignored.UNKNOWN_KEY if spec.key else Ignored.NO_CHANGE, spec.key or spec.application_id)


def release(state: PartitionState, spec: ReleaseSpec, now_ns: int) -> None:
    """Handles one entry of ``allocationsToRelease``: releases everything that it names; ignores unknown names
    (protocol.md 10.1)."""
    if not spec.application_id:
        key = spec.key or spec.allocation_id.removesuffix("-0")
        if state.recording:
            state.events.foreign_load_set(key, state.foreign.get(key), None, None)
        if not vacate_node(state, key):
            state.ignore_entry(Ignored.UNKNOWN_KEY, spec.key)
        return
    if not spec.allocation_id and spec.key not in state.instances:
        _release(state, spec, now_ns)
        return
    for name in instances.named_requests(state, spec):
        _release(state, spec._replace(key=name, allocation_id=""), now_ns)


def _release(state: PartitionState, spec: ReleaseSpec, now_ns: int) -> None:
    application = state.applications.get(spec.application_id)
    if application is None:
        state.ignore_entry(Ignored.UNKNOWN_APPLICATION, spec.application_id)
        return
    if not spec.key:
        _release_all(state, application, spec, now_ns)
        return
    allocation = application.allocations.get(spec.key)
    if allocation is not None:
        _release_one(state, allocation, spec, now_ns)
        return
    ask = application.asks.get(spec.key)
    if ask is None:
        state.ignore_entry(Ignored.UNKNOWN_KEY, spec.key)
    elif not _ends_ask(ask, spec.termination):
        confirms = spec.termination == TerminationType.TIMEOUT
        state.ignore_entry(Ignored.CONFIRMATION if confirms else Ignored.NOT_APPLICABLE, spec.key)
    else:
        withdraw_ask(state, ask)
        lifecycle.asks_withdrawn(state, application, now_ns)


def _release_one(state: PartitionState, allocation: Allocation, spec: ReleaseSpec, now_ns: int) -> None:
    if spec.termination == TerminationType.PLACEHOLDER_REPLACED and not allocation.spec.placeholder:
        state.ignore_entry(Ignored.NOT_APPLICABLE, spec.key)
        return
    if spec.termination == TerminationType.SCHEDULING_FAILED_ON_RM:
        if not removal.return_to_pending(state, allocation, now_ns):
            state.ignore_entry(Ignored.NOT_APPLICABLE, spec.key)
        return
    if allocation.replaced_by is not None:
        # In whatever way the placeholder ended, its place is free for the ask that waits for it (DB-10).
        if _is_echoed(spec.termination):
            state.effects.append(answer_release(state, allocation, TerminationType.STOPPED_BY_RM, spec.message))
        handshake.confirm_replacement(state, allocation, now_ns)
        return
    removal.release_allocation(state, allocation, spec.termination, now_ns)
    if _is_echoed(spec.termination):
        state.effects.append(answer_release(state, allocation, TerminationType.STOPPED_BY_RM, spec.message))


def _release_all(state: PartitionState, application: Application, spec: ReleaseSpec, now_ns: int) -> None:
    """Releases everything that belongs to *application*, except its asks if the shim merely confirms a timeout."""
    if spec.termination in (TerminationType.PLACEHOLDER_REPLACED, TerminationType.SCHEDULING_FAILED_ON_RM):
        state.ignore_entry(Ignored.NOT_APPLICABLE, application.application_id)
        return
    asks = [] if spec.termination == TerminationType.TIMEOUT else list(application.asks.values())
    for ask in asks:
        withdraw_ask(state, ask)
    gone = list(application.allocations.values())
    if not asks and not gone:
        state.ignore_entry(Ignored.NO_CHANGE, application.application_id)
    for allocation in gone:
        removal.remove_allocation(state, allocation, spec.termination, now_ns)
    lifecycle.allocations_removed(state, application, gone, now_ns)
    if asks and not gone:
        lifecycle.asks_withdrawn(state, application, now_ns)
    if _is_echoed(spec.termination):
        state.effects.extend(
            answer_release(state, allocation, TerminationType.STOPPED_BY_RM, spec.message) for allocation in gone
        )


def _ends_ask(ask: Allocation, termination: int) -> bool:
    """Tells whether a release with *termination* withdraws a pending *ask*; one that can only mean an allocation does
    not (protocol.md 3.6, 10.1, 10.4).

    A shim may report twice that it could not start what the core placed; at the second report it is an ask already.
    """
    if termination == TerminationType.PLACEHOLDER_REPLACED:
        return ask.spec.placeholder
    return termination not in (TerminationType.TIMEOUT, TerminationType.SCHEDULING_FAILED_ON_RM)


def _is_echoed(termination: int) -> bool:
    """Tells whether the shim itself requests the release, so that the core confirms it, instead of confirming one
    (protocol.md 10.2)."""
    return termination not in (
        TerminationType.TIMEOUT,
        TerminationType.PREEMPTED_BY_SCHEDULER,
        TerminationType.PLACEHOLDER_REPLACED,
    )
