"""The table of application states, walked over every pair of state and event."""

from __future__ import annotations

from itertools import product

import pytest

from kornel.core.domain.application_states import TRANSITIONS, AppEvent, AppState

EXPECTED = {
    AppEvent.REJECT: {AppState.NEW: AppState.REJECTED},
    AppEvent.RUN: {
        AppState.NEW: AppState.ACCEPTED,
        AppState.RESUMING: AppState.ACCEPTED,
        AppState.ACCEPTED: AppState.RUNNING,
        AppState.RUNNING: AppState.RUNNING,
        AppState.COMPLETING: AppState.RUNNING,
    },
    AppEvent.COMPLETE: {
        AppState.ACCEPTED: AppState.COMPLETING,
        AppState.RUNNING: AppState.COMPLETING,
        AppState.COMPLETING: AppState.COMPLETED,
    },
    AppEvent.FAIL: {
        AppState.NEW: AppState.FAILING,
        AppState.ACCEPTED: AppState.FAILING,
        AppState.RUNNING: AppState.FAILING,
        AppState.FAILING: AppState.FAILED,
    },
    AppEvent.RESUME: {AppState.NEW: AppState.RESUMING, AppState.ACCEPTED: AppState.RESUMING},
    AppEvent.EXPIRE: {
        AppState.COMPLETED: AppState.EXPIRED,
        AppState.FAILED: AppState.EXPIRED,
        AppState.REJECTED: AppState.EXPIRED,
    },
}
"""scheduling.md 11.1, by event."""


@pytest.mark.parametrize(("state", "event"), list(product(AppState, AppEvent)))
def test_every_pair_of_state_and_event(state: AppState, event: AppEvent) -> None:
    """An event leads where the table says, and nowhere from every other state."""
    assert TRANSITIONS.get((state, event)) is EXPECTED[event].get(state)


def test_nothing_leaves_expired() -> None:
    """An expired application stays expired."""
    assert not [pair for pair in TRANSITIONS if pair[0] is AppState.EXPIRED]


def test_every_state_but_new_can_be_reached() -> None:
    """No state of the table is dead."""
    assert set(TRANSITIONS.values()) == set(AppState) - {AppState.NEW}
