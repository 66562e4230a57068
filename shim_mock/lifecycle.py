"""The life of a task of the simulated cluster, as a table.

    WAITING ──PLACED──▶ RUNNING ──FINISHED──▶ STOPPING ──RELEASED──▶ ENDED
       │                   │
       │                   └──STOP_ASKED──▶ TERMINATING ──CONFIRMED──▶ EVICTED
       └──REFUSED──▶ REFUSED

A pair that is not in the table is something the contract does not allow the core to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class TaskState(StrEnum):
    """The states of a task, as the core must see them."""

    WAITING = "waiting"  # asked for, not placed
    RUNNING = "running"
    STOPPING = "stopping"  # ended by itself, the core has not confirmed that yet
    TERMINATING = "terminating"  # the core wants it gone, and has not been told that it is
    ENDED = "ended"
    EVICTED = "evicted"  # gone because the core or the loss of its node wanted it so
    REFUSED = "refused"


class TaskEvent(StrEnum):
    """The events that change a task's state."""

    PLACED = "placed"
    REFUSED = "refused"
    DROPPED = "dropped"  # the core gave up a pending ask
    FINISHED = "finished"
    STOP_ASKED = "stop asked"
    CONFIRMED = "confirmed"
    RELEASED = "released"  # the core says that it is over


TRANSITIONS: Final[Mapping[tuple[TaskState, TaskEvent], TaskState]] = MappingProxyType(
    {
        (TaskState.WAITING, TaskEvent.PLACED): TaskState.RUNNING,
        (TaskState.WAITING, TaskEvent.REFUSED): TaskState.REFUSED,
        (TaskState.WAITING, TaskEvent.DROPPED): TaskState.EVICTED,
        (TaskState.RUNNING, TaskEvent.FINISHED): TaskState.STOPPING,
        (TaskState.RUNNING, TaskEvent.STOP_ASKED): TaskState.TERMINATING,
        (TaskState.RUNNING, TaskEvent.RELEASED): TaskState.EVICTED,
        (TaskState.STOPPING, TaskEvent.RELEASED): TaskState.ENDED,
        # The core chose it before it heard that it had ended: what was sent already confirms that it is gone.
        (TaskState.STOPPING, TaskEvent.STOP_ASKED): TaskState.STOPPING,
        # The core may repeat what was not confirmed in its time.
        (TaskState.TERMINATING, TaskEvent.STOP_ASKED): TaskState.TERMINATING,
        (TaskState.EVICTED, TaskEvent.STOP_ASKED): TaskState.EVICTED,
        (TaskState.TERMINATING, TaskEvent.CONFIRMED): TaskState.EVICTED,
        (TaskState.TERMINATING, TaskEvent.RELEASED): TaskState.EVICTED,
    }
)

# States in which the core books room for the task.
HOLDING: Final = frozenset({TaskState.RUNNING, TaskState.STOPPING, TaskState.TERMINATING})


class IllegalTransition(Exception):
    """The core's message about a task is one that the contract does not allow in the task's state."""


def next_state(state: TaskState, event: TaskEvent) -> TaskState:
    """Returns the next state. Raises IllegalTransition for a pair that is not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event} while {state}") from None
