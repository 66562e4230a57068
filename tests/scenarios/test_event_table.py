"""Every row of the event table (rest.md 5) is provoked in ``event-table.txt``, and every detail that is ever told."""

from __future__ import annotations

from typing import Final

from kornel.core.domain.history.events import EventDetail
from tests.scenarios.language import load
from tests.scenarios.test_scenarios import HERE

NEVER_TOLD: Final = {
    EventDetail.REQUEST_ALLOC,
    EventDetail.NODE_OCCUPIED,
    EventDetail.QUEUE_CONFIG,
    EventDetail.QUEUE_ALLOC,
}
"""Defined, but not emitted (rest.md 5)."""


def test_every_row_of_the_table_is_provoked() -> None:
    """E1 to E33, and every detail that is ever emitted."""
    scenarios = load(HERE / "event-table.txt")
    rows = {scenario.title.partition(":")[0] for scenario in scenarios}
    assert rows >= {f"E{number}" for number in range(1, 34)}
    lines = [line for scenario in scenarios for block in scenario.blocks for line in block.expected]
    words = [line.partition("event ")[2].split() for line in lines]
    told = {EventDetail[each[3]] for each in words if each}
    assert set(EventDetail) - told == NEVER_TOLD
