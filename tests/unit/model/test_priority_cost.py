"""What it costs to keep priorities up to date, counted (preemption.md G)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kornel.core.domain.priorities import NOTHING_WAITS
from kornel.core.model.applications import Application
from tests.scenarios.stage import Stage

ASKS = (10, 100, 1_000)


class Counted(dict[int, int]):
    """A map that counts how often it is touched, an entry passed in iteration being one touch."""

    touched = 0

    def get(self, key: int, default: int | None = None) -> int | None:  # type: ignore[override]
        self.touched += 1
        return super().get(key, default)

    def __getitem__(self, key: int) -> int:
        self.touched += 1
        return super().__getitem__(key)

    def __setitem__(self, key: int, value: int) -> None:
        self.touched += 1
        super().__setitem__(key, value)

    def __delitem__(self, key: int) -> None:
        self.touched += 1
        super().__delitem__(key)

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.touched += 1
            yield key


def application(asks: int) -> tuple[Application, Counted]:
    """One with so many groups of asks, each of which lends it another priority."""
    stage = Stage()
    stage.play(["queue root.q", "app A queue=root.q"])
    state = stage.state
    found: Application = state.applications["A"]
    for priority in range(asks):
        found.update_lent(NOTHING_WAITS, priority)
    found._lower = counted = Counted(found._lower)
    return found, counted


@pytest.mark.parametrize("priority", [0, 5, 10_000], ids=["the lowest", "one in between", "a new highest"])
def test_an_ask_that_comes_costs_the_same_however_many_there_are(priority: int) -> None:
    costs = []
    for asks in ASKS:
        found, counted = application(asks)
        found.update_lent(NOTHING_WAITS, priority)
        costs.append(counted.touched)
        assert found.priority == max(priority, asks - 1)
    assert costs == [2, 2, 2]


def test_an_ask_that_goes_costs_at_worst_one_look_at_each_of_the_others() -> None:
    """Only the last of the highest priority makes it look at the others."""
    for asks in ASKS:
        found, counted = application(asks)
        found.update_lent(0, NOTHING_WAITS)
        assert counted.touched <= 3
        counted.touched = 0
        found.update_lent(asks - 1, NOTHING_WAITS)
        assert asks - 2 <= counted.touched <= asks + 2
        assert found.priority == asks - 2


def test_when_all_go_nothing_is_left() -> None:
    """In the worst order, the highest first."""
    found, _ = application(10)
    for priority in reversed(range(10)):
        found.update_lent(priority, NOTHING_WAITS)
    assert found.priority == NOTHING_WAITS
