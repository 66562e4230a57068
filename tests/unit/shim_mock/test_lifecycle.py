"""The table of what can happen to a task."""

from __future__ import annotations

from itertools import product

import pytest

from kornel.shim_mock.model.lifecycle import HOLDING, TRANSITIONS, IllegalTransition, TaskEvent, TaskState, next_state


@pytest.mark.parametrize(("state", "event"), list(product(TaskState, TaskEvent)))
def test_every_pair_is_in_the_table_or_illegal(state: TaskState, event: TaskEvent) -> None:
    """A pair either leads to the state the table gives, or is refused by name."""
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"{event} while {state}"):
            next_state(state, event)


def test_nothing_comes_back() -> None:
    """A task that is gone holds no room ever again: what is re-created gets a new key."""
    gone = set(TaskState) - HOLDING - {TaskState.WAITING}
    assert all(target in gone for (state, _), target in TRANSITIONS.items() if state in gone)
