"""Events on their way to the shim: intervals, capacity and settings. Case numbers: protocol.md 17."""

from __future__ import annotations

import io
import json

import pytest

from kornel.core.config.keys.event_settings import EventSettings, event_settings
from kornel.core.domain.effects import EventRecorded
from kornel.core.service.callbacks.event_feed import EventFeed
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.metrics.metrics import ServiceMetrics


class Gathering:
    """A feed, and the batches it handed over with their times in seconds since the start."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = ServiceMetrics()
        self.log = io.StringIO()
        self.batches: list[tuple[float, list[str]]] = []
        self._start_ns = self.clock.now_ns()
        self.feed = EventFeed(
            self._take,
            clock=self.clock,
            metrics=self.metrics,
            logger=build_logger(LogFormat.JSON, LogLevel.INFO, self.log),
        )

    def _take(self, events: list[EventRecorded]) -> None:
        seconds = (self.clock.now_ns() - self._start_ns) / SECOND_NS
        self.batches.append((seconds, [event.object_id for event in events]))

    def record(self, *names: str) -> None:
        for name in names:
            self.feed.record_event(EventRecorded(1, name, "app", 0, 0, self.clock.now_ns(), None, "text"))

    def warnings(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


async def test_events_of_two_seconds_go_out_together_and_silence_costs_nothing() -> None:
    """13: every 2 s if events wait; a batch is never sent twice, an empty one never at all."""
    gathering = Gathering()
    gathering.record("a")
    gathering.clock.advance(SECOND_NS)
    gathering.record("b")
    assert gathering.batches == []
    gathering.clock.advance(SECOND_NS)
    assert gathering.batches == [(2.0, ["a", "b"])]
    gathering.clock.advance(60 * SECOND_NS)
    gathering.record("c")
    gathering.clock.advance(2 * SECOND_NS)
    assert gathering.batches[1:] == [(64.0, ["c"])]


async def test_case_147_what_an_interval_has_no_room_for_is_lost_and_counted() -> None:
    """147: 5000 events in 2 s, capacity 1000: one batch with the first 1000, the rest lost."""
    gathering = Gathering()
    gathering.record(*(f"e{n}" for n in range(5_000)))
    gathering.clock.advance(2 * SECOND_NS)
    assert gathering.batches == [(2.0, [f"e{n}" for n in range(1_000)])]
    assert gathering.metrics.events_dropped == 4_000
    gathering.record("next")
    gathering.clock.advance(2 * SECOND_NS)
    assert gathering.batches[1:] == [(4.0, ["next"])]


async def test_settings_hold_from_the_next_event_on() -> None:
    """Capacity and tracking are hot, and tracking survives being switched off and on."""
    gathering = Gathering()
    gathering.feed.follow_settings({"event.requestCapacity": "2"})
    gathering.record("a", "b", "c")
    gathering.feed.follow_settings({"event.trackingEnabled": "false"})
    gathering.record("unheard")
    gathering.feed.follow_settings({})
    gathering.record("d")
    gathering.clock.advance(2 * SECOND_NS)
    assert gathering.batches == [(2.0, ["a", "b", "d"])]
    assert gathering.metrics.events_dropped == 1


async def test_bad_settings_are_said_once() -> None:
    """A value that cannot be used means the default and one warning, however often it is repeated."""
    gathering = Gathering()
    bad = {"event.requestCapacity": "many", "event.trackingEnabled": "perhaps"}
    for _ in range(3):
        gathering.feed.follow_settings(bad)
    (warning,) = gathering.warnings()
    assert "'many'" in str(warning["problems"])
    assert "'perhaps'" in str(warning["problems"])
    gathering.feed.follow_settings({})
    gathering.feed.follow_settings(bad)
    assert len(gathering.warnings()) == 2


@pytest.mark.parametrize(
    ("extra_config", "meaning", "problems"),
    [
        ({}, EventSettings(tracking=True, capacity=1_000), 0),
        ({"event.trackingEnabled": "F"}, EventSettings(tracking=False), 0),
        ({"event.trackingEnabled": "1"}, EventSettings(tracking=True), 0),
        ({"event.trackingEnabled": "no"}, EventSettings(tracking=True), 1),
        ({"event.requestCapacity": "7"}, EventSettings(capacity=7), 0),
        ({"event.requestCapacity": "0"}, EventSettings(capacity=1_000), 1),
        ({"event.requestCapacity": "-5"}, EventSettings(capacity=1_000), 1),
        ({"event.requestCapacity": " 5"}, EventSettings(capacity=1_000), 1),
        ({"event.requestCapacity": ""}, EventSettings(capacity=1_000), 1),
        ({"event.requestCapacity": "9" * 5_000}, EventSettings(capacity=1_000), 1),
    ],
)
def test_event_settings(extra_config: dict[str, str], meaning: EventSettings, problems: int) -> None:
    """config.md 12.1: booleans in any of the twelve spellings, counts as plain digits, else the default."""
    found, complaints = event_settings(extra_config)
    assert found == meaning
    assert len(complaints) == problems
