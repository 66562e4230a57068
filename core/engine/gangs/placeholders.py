"""Timeouts of allocated placeholders, and the requests to the shim to end them (scheduling.md 10.5, 10.6; protocol.md
6.3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from kornel.core.domain.commands import ApplicationSpec, TerminationType
from kornel.core.domain.effects import Released
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.state.asks import moves
from kornel.core.state.partition_state import PartitionState

DEFAULT_TIMEOUT_NS: Final = 15 * 60 * 10**9
SHORTEST_TIMEOUT_NS: Final = 10**6

_NS_PER_S: Final = 10**9
_NS_PER_MS: Final = 10**6
_MAX_INT64: Final = 2**63 - 1


def timeout_ns(spec: ApplicationSpec, now_ns: int) -> int:
    """Returns how long from now the placeholders of a new application may wait.

    If the shim states a creation time, the wait begins there, so that a restart of the shim does not begin it anew.
    """
    timeout = spec.placeholder_timeout_ms * _NS_PER_MS
    if not 0 < timeout <= _MAX_INT64:
        timeout = DEFAULT_TIMEOUT_NS
    if spec.created_s is None:
        return timeout
    return max(timeout + spec.created_s * _NS_PER_S - now_ns, SHORTEST_TIMEOUT_NS)


def start_timer(state: PartitionState, application: Application, now_ns: int) -> None:
    """Starts the timer of *application*, whose first placeholder was allocated. When it ends, :mod:`.timeouts` acts."""
    at_ns = now_ns + timeout_ns(application.spec, now_ns)
    application.placeholder_deadline_ns = at_ns
    state.run_at(at_ns, partial(_note_timeout, state, application, at_ns))


def _note_timeout(state: PartitionState, application: Application, at_ns: int, _now_ns: int) -> None:
    if application.placeholder_deadline_ns == at_ns:
        application.placeholder_deadline_ns = None
        state.gangs.timed_out[application] = None


def stop_timer(application: Application) -> None:
    """Stops the timer of *application*, whose placeholders may now wait for as long as they need."""
    application.placeholder_deadline_ns = None


def dismiss_placeholders(state: PartitionState, placeholders: Iterable[Allocation], message: str) -> None:
    """Ask the shim to end allocated *placeholders*; they stay booked until it confirms."""
    for placeholder in placeholders:
        moves.release_placeholder(state, placeholder)
        state.effects.append(
            Released(
                state.name,
                placeholder.application.application_id,
                placeholder.spec.key,
                TerminationType.TIMEOUT,
                message,
                placeholder.spec.instance,
            )
        )


def dismiss_all(state: PartitionState, application: Application, message: str) -> None:
    """Asks the shim to end every placeholder of *application* that has not been asked to leave yet, oldest first."""
    free = [placeholder for task_group in application.task_groups.values() for placeholder in task_group.free]
    dismiss_placeholders(state, sorted(free, key=lambda p: (p.created_ns, p.key)), message)
