"""Events as bytes, and which of them a client wants."""

from __future__ import annotations

import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.domain.resources import Resources
from kornel.core.service.wire.callback_wire import event_record
from kornel.core.service.wire.event_filter import EventFilter
from kornel.core.service.wire.event_wire import EventEncoder, decode_filter, encode_position
from kornel.v1 import events_pb2 as pb

AMOUNTS = st.dictionaries(st.text(max_size=5), st.integers(-(2**70), 2**70), max_size=4)
EVENTS = st.builds(
    EventRecorded,
    type=st.integers(0, 200),
    object_id=st.text(max_size=200),
    reference_id=st.text(max_size=20),
    change=st.integers(0, 3),
    detail=st.sampled_from(EventDetail),
    at_ns=st.integers(0, 2**63 - 1),
    resources=st.none() | st.builds(Resources, AMOUNTS),
    message=st.text(max_size=20),
)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), EVENTS), max_size=5), st.integers(0, 2**64 - 1))
def test_the_bytes_are_those_of_the_message(numbered: list[tuple[int, EventRecorded]], next_id: int) -> None:
    """Put together in any number they are a response, as another implementation of the format reads it."""
    encoder = EventEncoder()
    encoded = b"".join([encoder.encode(number, event) for number, event in numbered]) + encode_position(next_id)
    expected = pb.WatchEventsResponse(
        events=[pb.Event(id=number, record=event_record(event)) for number, event in numbered], next_id=next_id
    )
    assert pb.WatchEventsResponse.FromString(encoded) == expected


def test_amounts_in_all_sizes_do_not_fill_the_memory() -> None:
    """A thousand shapes are remembered, not one of each that ever was."""
    encoder = EventEncoder()
    for amount in range(5_000):
        event = EventRecorded(2, "app", "k", 2, 200, 1, Resources({"vcore": amount}), "")
        record = pb.WatchEventsResponse.FromString(encoder.encode(1, event)).events[0].record
        assert record.resource.resources["vcore"].value == amount
    assert len(encoder._shapes) <= 1_024
    types = {f"{number}" + "x" * 1_000: 1 for number in range(10)}
    encoder.encode(1, EventRecorded(2, "app", "k", 2, 200, 1, Resources(types), ""))
    assert Resources(types) not in encoder._shapes


T, D, C = EventType, EventDetail, EventChange


def event(kind: EventType, object_id: str, reference: str = "", detail: EventDetail = D.NONE) -> EventRecorded:
    return EventRecorded(kind, object_id, reference, C.ADD, detail, 1, None, "")


HISTORY = {
    "node": event(T.NODE, "node-1"),
    "load": event(T.NODE, "node-1", "k1", D.NODE_ALLOC),
    "queue": event(T.QUEUE, "root.a"),
    "below": event(T.QUEUE, "root.a.x"),
    "beside": event(T.QUEUE, "root.ab"),
    "came": event(T.QUEUE, "root.a.x", "app-1", D.QUEUE_APP),
    "app": event(T.APP, "app-1", "k1", D.APP_REQUEST),
    "other": event(T.APP, "job-2", "k2", D.APP_REQUEST),
    "lost": event(T.APP, "app-9"),
    "request": event(T.REQUEST, "k1", "app-1"),
    "usage": event(T.USERGROUP, "ann", "root.a.x", D.UG_USER_RESOURCE),
    "limit": event(T.USERGROUP, "bob", "root.b", D.UG_USER_LIMIT),
    "link": event(T.USERGROUP, "staff", "app-1", D.UG_APP_LINK),
}
QUEUES = {"app-1": "root.a.x", "job-2": "root.b"}


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        (pb.EventFilter(), " ".join(HISTORY)),
        (pb.EventFilter(types=["NODE", "REQUEST"]), "node load request"),
        (pb.EventFilter(object_prefix="root.a"), "queue below beside came"),
        (pb.EventFilter(object_prefix="app"), "app lost"),
        (pb.EventFilter(application_prefix="app-1"), "came app request link"),
        (pb.EventFilter(application_prefix="j"), "other"),
        (pb.EventFilter(queue="root.a"), "queue below came app request usage link"),
        (pb.EventFilter(queue="root.a.x"), "below came app request usage link"),
        (pb.EventFilter(queue="root.b"), "other limit"),
        (pb.EventFilter(node_prefix="node"), "node load"),
        (pb.EventFilter(node_prefix="root"), ""),
        (pb.EventFilter(queue="root.a", types=["APP", "USERGROUP"], application_prefix="app"), "app link"),
    ],
)
def test_filters(wanted: pb.EventFilter, matching: str) -> None:
    """All that is set must match; a queue stands for all below it, not for names that begin alike."""
    found = decode_filter(wanted)
    assert isinstance(found, EventFilter)
    queue_of = QUEUES.get
    assert [name for name, event in HISTORY.items() if found.matches_event(event, lambda app: queue_of(app, ""))] == (
        matching.split()
    )


@pytest.mark.long
def test_encoding_is_cheap() -> None:
    """Writing bytes must be faster than building messages, or it is not worth its lines."""
    encoder = EventEncoder()
    happened = EventRecorded(2, "application-1", "key-12345", 2, 200, 1790000000000000000, Resources({"a": 5}), "")

    def message() -> bytes:
        return pb.WatchEventsResponse(events=[pb.Event(id=7, record=event_record(happened))]).SerializeToString()

    own = min(timeit.repeat(lambda: encoder.encode(7, happened), number=500, repeat=5))
    assert own < min(timeit.repeat(message, number=500, repeat=5))
