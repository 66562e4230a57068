"""Defines the life of an application as a table.

An application starts New, is Accepted with its first ask, Running with its first real allocation, Completing when
nothing is left to do, and Completed when that stays so for 30 s. Gangs add Resuming (soft timeout) and Failing
(hard timeout, or the partition was removed). Finished applications expire after three days at most.

Rules: scheduling.md 11.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class StateEntry(NamedTuple):
    """An application entered ``state``."""

    at_ns: int
    state: AppState


class AppState(StrEnum):
    """States as they appear on the wire (protocol.md 11)."""

    NEW = "New"
    """The application was accepted and has had no ask yet."""
    ACCEPTED = "Accepted"
    """The application has asks, and nothing of it runs but placeholders."""
    RUNNING = "Running"
    """An allocation of the application runs, or one has run and more asks are pending."""
    REJECTED = "Rejected"
    """The application was refused when it was added; the state is remembered for up to three days and not reported."""
    COMPLETING = "Completing"
    """Nothing of it runs or waits; it completes unless something new comes within 30 s."""
    COMPLETED = "Completed"
    """The application has ended well. Its ID may be used again."""
    FAILING = "Failing"
    """The placeholders were not placed in time, or the partition was removed; its running tasks are released."""
    FAILED = "Failed"
    """The application has ended, and nothing of it is left."""
    RESUMING = "Resuming"
    """The placeholders were not placed in time; they are released, and the application goes on without a gang."""
    EXPIRED = "Expired"
    """The application ended up to three days ago, and is no longer remembered."""


class AppEvent(StrEnum):
    """The events in the life of an application; the text is the default message of the state change."""

    REJECT = "rejectApplication"
    """The application is refused when it is added."""
    RUN = "runApplication"
    """An ask came, or an allocation was placed."""
    COMPLETE = "completeApplication"
    """Nothing of it runs or waits any more; the second time, nothing came for 30 s."""
    FAIL = "failApplication"
    """Placeholders waited too long, or the partition was removed. At the second time, everything is released."""
    RESUME = "resumeApplication"
    """Placeholders waited too long, and the gang's style is soft."""
    EXPIRE = "expireApplication"
    """Three days have passed since its end."""


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
