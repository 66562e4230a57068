"""The life of an application, as a table.

An application starts New, is Accepted with its first ask, Running with its first real allocation, Completing when
nothing is left to do, and Completed when that stays so for 30 s. Gangs add Resuming (soft timeout) and Failing
(hard timeout, or the partition was removed). Finished applications expire after three days.

Rules: scheduling.md 11.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class AppState(StrEnum):
    """States as they appear on the wire (protocol.md 11)."""

    NEW = "New"
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    REJECTED = "Rejected"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    RESUMING = "Resuming"
    EXPIRED = "Expired"


class AppEvent(StrEnum):
    """What can happen to an application; the text is the default message of the state change."""

    REJECT = "rejectApplication"
    RUN = "runApplication"
    COMPLETE = "completeApplication"
    FAIL = "failApplication"
    RESUME = "resumeApplication"
    EXPIRE = "expireApplication"


TRANSITIONS: Final[Mapping[tuple[AppState, AppEvent], AppState]] = MappingProxyType(
    {
        (AppState.NEW, AppEvent.REJECT): AppState.REJECTED,
        (AppState.NEW, AppEvent.RUN): AppState.ACCEPTED,
        (AppState.RESUMING, AppEvent.RUN): AppState.ACCEPTED,
        (AppState.ACCEPTED, AppEvent.RUN): AppState.RUNNING,
        (AppState.RUNNING, AppEvent.RUN): AppState.RUNNING,
        (AppState.COMPLETING, AppEvent.RUN): AppState.RUNNING,
        (AppState.ACCEPTED, AppEvent.COMPLETE): AppState.COMPLETING,
        (AppState.RUNNING, AppEvent.COMPLETE): AppState.COMPLETING,
        (AppState.COMPLETING, AppEvent.COMPLETE): AppState.COMPLETED,
        (AppState.NEW, AppEvent.FAIL): AppState.FAILING,
        (AppState.ACCEPTED, AppEvent.FAIL): AppState.FAILING,
        (AppState.RUNNING, AppEvent.FAIL): AppState.FAILING,
        (AppState.FAILING, AppEvent.FAIL): AppState.FAILED,
        (AppState.NEW, AppEvent.RESUME): AppState.RESUMING,
        (AppState.ACCEPTED, AppEvent.RESUME): AppState.RESUMING,
        (AppState.COMPLETED, AppEvent.EXPIRE): AppState.EXPIRED,
        (AppState.FAILED, AppEvent.EXPIRE): AppState.EXPIRED,
        (AppState.REJECTED, AppEvent.EXPIRE): AppState.EXPIRED,
    }
)


class IllegalTransition(ValueError):
    """An event that means nothing in the state it met."""


def after(state: AppState, event: AppEvent) -> AppState:
    """The next state. Raises :class:`IllegalTransition` for any pair that is not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event} does not apply to an application in state {state}") from None
