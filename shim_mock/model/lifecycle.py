"""The states of a task of the simulated cluster and the changes between them, as a table.

    WAITING ──PLACED──▶ RUNNING ──FINISHED──▶ STOPPING ──RELEASED──▶ ENDED
       │                   │
       │                   └──STOP_ASKED──▶ TERMINATING ──CONFIRMED──▶ EVICTED
       └──REFUSED──▶ REFUSED

A pair that is not in the table is a message that the contract does not allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class TaskState(StrEnum):
    """The states of a task. The core has to know the task in the same state."""

    WAITING = "waiting"  # asked for, but not placed
    RUNNING = "running"
    STOPPING = "stopping"  # ended by itself, not confirmed by the core yet
    TERMINATING = "terminating"  # the core asked for its release, which is not confirmed yet
    ENDED = "ended"
    EVICTED = "evicted"  # ended by the core or by the loss of its node
    REFUSED = "refused"


class TaskEvent(StrEnum):
    """The events that change a task's state."""

    PLACED = "placed"
    REFUSED = "refused"
    DROPPED = "dropped"  # the core gave up a pending ask
    FINISHED = "finished"
    STOP_ASKED = "stop asked"
    CONFIRMED = "confirmed"
    RELEASED = "released"  # the core confirms its end


TRANSITIONS: Final[Mapping[tuple[TaskState, TaskEvent], TaskState]] = MappingProxyType(
    {
        (TaskState.WAITING, TaskEvent.PLACED): TaskState.RUNNING,
        (TaskState.WAITING, TaskEvent.REFUSED): TaskState.REFUSED,
        (TaskState.WAITING, TaskEvent.DROPPED): TaskState.EVICTED,
        (TaskState.RUNNING, TaskEvent.FINISHED): TaskState.STOPPING,
        (TaskState.RUNNING, TaskEvent.STOP_ASKED): TaskState.TERMINATING,
        (TaskState.RUNNING, TaskEvent.RELEASED): TaskState.EVICTED,
        (TaskState.STOPPING, TaskEvent.RELEASED): TaskState.ENDED,
        # The core chose the task as a victim before it learned of the task's end. The message that was sent then
        # already confirms the end.
        (TaskState.STOPPING, TaskEvent.STOP_ASKED): TaskState.STOPPING,
        # The core may repeat a request that was not confirmed in time.
        (TaskState.TERMINATING, TaskEvent.STOP_ASKED): TaskState.TERMINATING,
        (TaskState.EVICTED, TaskEvent.STOP_ASKED): TaskState.EVICTED,
        (TaskState.TERMINATING, TaskEvent.CONFIRMED): TaskState.EVICTED,
        (TaskState.TERMINATING, TaskEvent.RELEASED): TaskState.EVICTED,
    }
)

# The states in which the core counts the room of the task as used.
HOLDING: Final = frozenset({TaskState.RUNNING, TaskState.STOPPING, TaskState.TERMINATING})


class IllegalTransition(Exception):
    """The core sent a message about a task that the contract does not allow in the task's state."""


def next_state(state: TaskState, event: TaskEvent) -> TaskState:
    """Returns the next state. Raises IllegalTransition for a pair that is not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event} while {state}") from None
