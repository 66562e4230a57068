"""What the core keeps of what happened, for whom (config.md 12.1, rest.md 5)."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import ExitStack

import pytest
import structlog

from kornel.core.domain.effects import (
    AsksRecorded,
    EventRecorded,
    NodeAccepted,
    PlacementsRecorded,
    PreemptionDecided,
    RemovalsRecorded,
)
from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.service.configuration.configuration_history import Origin, Version
from kornel.core.service.events.event_journal import EventJournal
from kornel.core.service.events.event_ring import ENTRY_SIZE
from kornel.core.service.events.event_streams import (
    ENCODED_KEPT,
    EVENTS_PER_S,
    EVENTS_PER_S_OF_ONE,
    LEAST_PAUSE_S,
    PAUSE_PER_STREAM_S,
    QUIET_FACTOR,
    RUN,
    Budget,
    Encodings,
    Pace,
)
from kornel.core.service.wire.status_codes import EventStreamsFull


@pytest.fixture
def journal() -> EventJournal:
    return EventJournal("this life", logger=structlog.get_logger())


def event(object_id: str, detail: EventDetail = EventDetail.NONE, reference: str = "") -> EventRecorded:
    return EventRecorded(EventType.QUEUE, object_id, reference, EventChange.ADD, detail, 7, None, "")


def decided(outcome: Outcome) -> PreemptionDecided:
    return PreemptionDecided(7, "p", "guarantee", "k", "app", "root.a", outcome, "", "n1", ())


def test_events_among_other_effects_are_kept_in_order(journal: EventJournal) -> None:
    journal.observe([event("a"), NodeAccepted("n1"), event("b")])
    assert [kept.object_id for kept in journal.events.get(0, 10) or []] == ["a", "b"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["asks", "placements", "removals", "names"])
def test_events_of_asks_with_hundreds_of_types_or_long_names_leave_fewer_of_them(
    journal: EventJournal, kind: str
) -> None:
    """100,000 asks of 900 types would keep 10 GB, and 100,000 nodes with long names 800 MB."""
    journal.follow_settings({"event.ringBufferCapacity": "2000"})
    tracemalloc.start()
    try:
        for at in range(2_000):
            wanted = Resources({f"type-{at}-{number}": 1 for number in range(100)})
            name = chr(0x1F600) * 1_000 + str(at)
            journal.observe(
                {
                    "asks": [AsksRecorded(7, ["app", f"k{at}", wanted])],
                    "placements": [PlacementsRecorded(7, [f"k{at}", "app", "n1", "ann", "root", wanted])],
                    "removals": [RemovalsRecorded(7, [f"k{at}", "app", "n1", "ann", "root", 1, wanted])],
                    "names": [event(name, reference=f"{name}-2")],
                }[kind]
            )
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * 2_000 * ENTRY_SIZE
    assert journal.events.next_id - journal.events.lowest_id > 40
    assert kept > 400_000


def test_asks_and_placements_are_events_for_whoever_reads(journal: EventJournal) -> None:
    """As many numbers as events, and the same events as if each had been recorded by itself."""
    held, more = Resources({"vcore": 5}), Resources({"vcore": 6})
    asked = AsksRecorded(7, ["app", "k", held, "app-2", "k-2", more])
    placed = PlacementsRecorded(7, ["k", "app", "n1", "ann", "root.a", held, "k-2", "app-2", "n2", "bob", "root", more])
    journal.observe([event("a"), asked, placed, decided(Outcome.TRIGGERED), event("b")])
    assert journal.events.next_id == 10
    add, detail = EventChange.ADD, EventDetail
    assert journal.events.get(1, 8) == [
        EventRecorded(EventType.APP, "app", "k", add, detail.APP_REQUEST, 7, held, ""),
        EventRecorded(EventType.APP, "app-2", "k-2", add, detail.APP_REQUEST, 7, more, ""),
        EventRecorded(EventType.NODE, "n1", "k", add, detail.NODE_ALLOC, 7, held, ""),
        EventRecorded(EventType.USERGROUP, "ann", "root.a", add, detail.UG_USER_RESOURCE, 7, held, ""),
        EventRecorded(EventType.APP, "app", "k", add, detail.APP_ALLOC, 7, held, ""),
        EventRecorded(EventType.NODE, "n2", "k-2", add, detail.NODE_ALLOC, 7, more, ""),
        EventRecorded(EventType.USERGROUP, "bob", "root", add, detail.UG_USER_RESOURCE, 7, more, ""),
        EventRecorded(EventType.APP, "app-2", "k-2", add, detail.APP_ALLOC, 7, more, ""),
    ]
    assert [kept.next_event for kept in journal.decisions.get(0, 9) or []] == [9]


def test_an_allocation_that_ended_is_four_events_for_whoever_reads(journal: EventJournal) -> None:
    """Usage, allocation, node and request, in this order."""
    held, ended = Resources({"vcore": 5}), int(EventDetail.ALLOC_PREEMPT)
    journal.observe([RemovalsRecorded(7, ["k", "app", "n1", "ann", "root.a", ended, held]), event("b")])
    gone, detail = EventChange.REMOVE, EventDetail
    assert journal.events.get(0, 4) == [
        EventRecorded(EventType.USERGROUP, "ann", "root.a", gone, detail.UG_USER_RESOURCE, 7, held, ""),
        EventRecorded(EventType.APP, "app", "k", gone, detail.ALLOC_PREEMPT, 7, held, ""),
        EventRecorded(EventType.NODE, "n1", "k", gone, detail.NODE_ALLOC, 7, held, ""),
        EventRecorded(EventType.APP, "app", "k", gone, detail.REQUEST_CANCEL, 7, held, ""),
    ]
    assert journal.events.next_id == 5


def test_tracking_off_keeps_the_content_and_adds_nothing(journal: EventJournal) -> None:
    """Case 46: back on, numbers go on."""
    journal.observe([event("a")])
    journal.follow_settings({"event.trackingEnabled": "false"})
    journal.observe([event("b")])
    assert (journal.events.lowest_id, journal.events.next_id) == (0, 1)
    journal.follow_settings({})
    journal.observe([event("c")])
    assert [kept.object_id for kept in journal.events.get(0, 10) or []] == ["a", "c"]


@pytest.mark.parametrize(
    ("settings", "capacity"),
    [
        ({"event.ringBufferCapacity": "5"}, 5),
        ({"event.ringbufferCapacity": "6"}, 6),
        ({"event.ringBufferCapacity": "5", "event.ringbufferCapacity": "6"}, 5),
        ({"event.ringBufferCapacity": "0"}, 100_000),
        ({"event.ringBufferCapacity": "abc"}, 100_000),
        ({"event.ringBufferCapacity": "10000001"}, 100_000),
        ({}, 100_000),
    ],
)
def test_the_ring_follows_its_setting_at_once(journal: EventJournal, settings: dict[str, str], capacity: int) -> None:
    """T85; both spellings."""
    journal.observe([event(str(number)) for number in range(20)])
    journal.follow_settings(settings)
    assert journal.events.capacity == capacity
    assert journal.events.highest_id == 19
    assert journal.events.lowest_id == max(0, 20 - capacity)


def test_decisions_that_came_to_something_know_the_event_after_them(journal: EventJournal) -> None:
    """What thousands of asks try without effect is left out."""
    version = Version(1, 7, Origin.UPDATE, "rm-1", "sum", "", True, "", ())
    journal.observe([event("a"), decided(Outcome.TRIGGERED), event("b"), decided(Outcome.TOO_YOUNG)])
    journal.version_added(version)
    kept = journal.decisions.get(0, 10) or []
    assert [(decision.next_event, decision.what) for decision in kept] == [
        (1, decided(Outcome.TRIGGERED)),
        (2, version),
    ]


def test_where_an_application_is_or_was(journal: EventJournal) -> None:
    gone = event("root.a", EventDetail.QUEUE_APP, "gone")._replace(change=EventChange.REMOVE)
    journal.observe([event("root.a", EventDetail.QUEUE_APP, "gone"), event("root.b", EventDetail.QUEUE_APP, "here")])
    journal.observe([gone])
    assert [journal.queue_of(name) for name in ("gone", "here", "nobody")] == ["root.a", "root.b", ""]


def test_places_for_streams_are_limited_in_total_and_for_each_host(journal: EventJournal) -> None:
    """Case 48: new limits hold for new streams; 0 allows none."""
    journal.follow_settings({"event.maxStreams": "3", "event.maxStreamsPerHost": "2"})
    places = journal.places
    with places.take_place("a", 1), places.take_place("a", 2):
        with pytest.raises(EventStreamsFull, match="2 event streams of a are open, the limit for one host is 2"):
            places.take_place("a", 3).__enter__()
        with places.take_place("b", 3):
            with pytest.raises(EventStreamsFull, match="3 event streams are open, the limit is 3"):
                places.take_place("c", 4).__enter__()
            assert [(stream.host, stream.opened_ns) for stream in places.open_streams()] == [
                ("a", 1),
                ("a", 2),
                ("b", 3),
            ]
            journal.follow_settings({"event.maxStreams": "0"})
            assert len(places) == 3
    assert len(places) == 0
    with pytest.raises(EventStreamsFull, match="the limit is 0"):
        places.take_place("a", 5).__enter__()


def test_a_block_of_ipv6_has_the_streams_of_one_host(journal: EventJournal) -> None:
    """Whoever has one of its addresses has all of them. An IPv4 address within IPv6 is that one."""
    journal.follow_settings({"event.maxStreamsPerHost": "2"})
    places = journal.places
    with places.take_place("2001:db8::1", 1), places.take_place("2001:db8::2", 2):
        with pytest.raises(EventStreamsFull, match="of 2001:db8::/64 are open"):
            places.take_place("2001:db8::ffff:1", 3).__enter__()
        with (
            places.take_place("10.0.0.1", 3),
            places.take_place("2001:db8:0:1::1", 3),
            places.take_place("::ffff:10.0.0.1", 3),
        ):
            with pytest.raises(EventStreamsFull, match=r"of 10\.0\.0\.1 are open"):
                places.take_place("10.0.0.1", 4).__enter__()
            assert places.open_streams()[1].host == "2001:db8::2"


def test_what_is_wrong_with_settings_is_logged_once() -> None:
    with structlog.testing.capture_logs() as logged:
        journal = EventJournal("this life", logger=structlog.get_logger())
        for _ in range(2):
            journal.follow_settings({"event.maxStreams": "many"})
    assert [entry["problems"] for entry in logged] == [
        ("event.maxStreams: 'many' is not a number of at least 0; using 100",)
    ]


def test_an_entry_is_encoded_once_for_all() -> None:
    """Wherever readers are, they share the work."""
    calls: list[int] = []

    def encode(number: int, entry: str) -> bytes:
        calls.append(number)
        return f"{number}{entry}".encode()

    encodings: Encodings[str] = Encodings(encode)
    assert encodings.encode_each(10, ["a", "b"]) == [b"10a", b"11b"]
    assert encodings.encode_each(11, ["b", "c", "d"]) == [b"11b", b"12c", b"13d"]
    assert encodings.encode_each(10, ["a", "b"]) == [b"10a", b"11b"]
    assert calls == [10, 11, 12, 13]
    assert encodings.encode_each(3, ["x"]) == [b"3x"]
    assert encodings.encode_each(20, ["y"]) == [b"20y"]
    assert encodings.encode_each(12, ["c"]) == [b"12c"]
    assert calls == [10, 11, 12, 13, 3, 20]


@pytest.mark.parametrize(("start", "count"), [(0, 3 * RUN), (RUN - 1, 1), (RUN - 1, 2 * RUN + 2), (RUN, RUN), (7, 0)])
def test_one_piece_is_what_its_parts_are(start: int, count: int) -> None:
    """Whole runs are kept joined; where a reader begins makes no difference."""
    encodings: Encodings[int] = Encodings(lambda number, entry: b"%d," % entry)
    for _ in range(2):
        expected = b"".join([b"%d," % number for number in range(start, start + count)])
        assert encodings.encode_joined(start, range(start, start + count)) == expected


def test_encoded_entries_are_not_kept_for_ever() -> None:
    encodings: Encodings[int] = Encodings(lambda number, entry: b"%d" % entry)
    for start in range(0, 3 * ENCODED_KEPT, 1_000):
        found = encodings.encode_each(start, range(start, start + 1_000))
        assert found == [b"%d" % number for number in range(start, start + 1_000)]
        assert encodings.encode_joined(start, range(start, start + 1_000)) == b"".join(found)
    assert len(encodings._encoded) <= ENCODED_KEPT
    assert len(encodings._runs) <= ENCODED_KEPT // RUN


def test_the_budget_is_larger_while_the_process_has_little_to_do() -> None:
    """It looks twice a second; before it has looked twice it takes the core for busy."""
    used_s = 0.0
    budget = Budget(lambda: used_s)
    assert budget.speed_factor(10.0) == 1
    used_s = 0.1
    assert budget.speed_factor(10.4) == 1, "too early to look again"
    assert budget.speed_factor(10.5) == QUIET_FACTOR
    used_s = 0.5
    assert budget.speed_factor(11.0) == 1
    assert budget.speed_factor(20.0) == QUIET_FACTOR


async def test_all_streams_together_get_no_more_than_the_budget(journal: EventJournal) -> None:
    """Per second: what one turn brings, over its pause, times the streams."""
    journal.follow_settings({"event.maxStreamsPerHost": "100"})
    journal.places.budget = Budget(lambda: 0.0)
    assert await Pace(journal.places).wait_for_turn() == int(EVENTS_PER_S_OF_ONE * LEAST_PAUSE_S)
    with ExitStack() as streams:
        for _ in range(50):
            streams.enter_context(journal.places.take_place("a", 1))
        assert await Pace(journal.places).wait_for_turn() == int(EVENTS_PER_S / 50 * 50 * PAUSE_PER_STREAM_S)


async def test_a_second_turn_comes_after_a_pause(journal: EventJournal) -> None:
    """The first one does not wait: what happens after a rest is told at once."""
    loop = asyncio.get_running_loop()
    pace = Pace(journal.places)
    began_s = loop.time()
    with pytest.raises(StopIteration):  # It has ended without having waited for anything.
        pace.wait_for_turn().send(None)
    await pace.wait_for_turn()
    assert loop.time() - began_s >= LEAST_PAUSE_S
