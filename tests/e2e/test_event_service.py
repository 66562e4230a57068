"""``kornel.v1.EventService`` over a real connection: where streams begin, what they miss, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from kornel.core.domain.effects import EventRecorded
from kornel.core.service.connections.callers import host_of
from kornel.core.service.events.event_streams import LEAST_PAUSE_S
from kornel.core.service.services import event_service
from kornel.core.service.services.event_service import EventService
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import configuration_pb2, configuration_pb2_grpc, events_pb2_grpc
from kornel.v1 import events_pb2 as pb
from tests.e2e.harness import CONFIG, Conversation, Core, ManualTimeouts, create, node_request, running_core
from tests.patience import PATIENCE_S
from tests.waiting import until

Code = grpc.StatusCode
REGISTRATION = 2
"""Events of a registration with CONFIG: two queues come into being."""


@asynccontextmanager
async def watching(core: Core, **request: Any) -> AsyncIterator[Conversation]:
    """A stream of events as *request* wants it."""
    stub = events_pb2_grpc.EventServiceStub(core.channel)
    async with Conversation.open(stub.WatchEvents(pb.WatchEventsRequest(**request))) as stream:
        yield stream


async def stored(core: Core, **request: Any) -> list[Any]:
    """All responses of a stream that ends with what is kept."""
    async with watching(core, stored_only=True, **request) as stream:
        code, details = await stream.end()
        assert (code, details) == (Code.OK, "")
        return stream.got


def ids(responses: list[Any]) -> list[int]:
    return [event.id for response in responses for event in response.events]


def record(core: Core, *names: str, message: str = "") -> None:
    """Have events about nodes of these *names* happen."""
    core.server.events.observe([EventRecorded(3, name, "", 2, 303, 7, None, message) for name in names])


async def configure(core: Core, **extra: str) -> None:
    stub = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
    settings = {f"event.{name}": value for name, value in extra.items()}
    request = configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=CONFIG, extra_config=settings)
    await stub.UpdateConfiguration(request)


def cursor(core: Core, next_id: int) -> pb.EventCursor:
    return pb.EventCursor(instance=core.server.events.instance, next_id=next_id)


async def test_events_are_kept_without_anybody_listening_and_told_in_order(reg: Core) -> None:
    """The engine's own events: a node, from its acceptance on, with the IDs of REST."""
    async with Conversation.open(reg.scheduler.UpdateNode()) as nodes:
        await nodes.send(node_request(create("n1")))
        await nodes.receive()
    opened, told = await stored(reg, newest=1_000)
    assert opened.opened == pb.EventsOpened(instance=reg.server.events.instance, lowest_id=0, end_id=5)
    assert ids([told]) == [0, 1, 2, 3, 4]
    assert [event.record.objectID for event in told.events] == ["root", "root.a", "n1", "n1", "root"]
    added = told.events[3].record
    assert (added.type, added.eventChangeType) == (si.EventRecord.NODE, si.EventRecord.ADD)
    assert added.resource.resources["vcore"].value == 10_000
    assert told.next_id == 5


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({}, []),
        ({"newest": 2}, [8, 9]),
        ({"newest": 100}, list(range(10))),
        ({"newest": 0}, []),
        ({"resume": {"next_id": 7}}, [7, 8, 9]),
        ({"resume": {"next_id": 10}}, []),
    ],
)
async def test_where_a_stream_begins(reg: Core, start: dict[str, Any], expected: list[int]) -> None:
    record(reg, *[f"n{number}" for number in range(8)])
    assert ids(await stored(reg, **start)) == expected


async def test_old_and_new_events_meet_without_hole_or_repetition(reg: Core) -> None:
    """Case 47: two old ones, then what happens."""
    record(reg, "a", "b")
    async with watching(reg, newest=2) as stream:
        await stream.receive()
        assert ids([await stream.receive()]) == [2, 3]
        record(reg, "c")
        record(reg, "d")
        while len(ids(stream.got)) < 4:
            await stream.receive()
    assert ids(stream.got) == [2, 3, 4, 5]


async def test_a_broken_stream_is_taken_up_where_it_ended(reg: Core) -> None:
    """What happens in between is told once, neither lost nor repeated."""
    record(reg, "a", "b", "c")
    async with watching(reg, newest=3) as stream:
        await stream.receive()
        next_id = (await stream.receive()).next_id
    record(reg, "d", "e")
    async with watching(reg, resume=cursor(reg, next_id)) as stream:
        assert not (await stream.receive()).opened.restarted
        assert ids([await stream.receive()]) == [5, 6]


async def test_a_restart_is_noticed_and_its_history_told_from_the_start() -> None:
    """IDs of another life mean nothing: the client is told, and gets all there is."""
    async with running_core() as first:
        await first.register()
        record(first, *"abcdefgh")
        earlier = cursor(first, 9)
    async with running_core() as second:
        await second.register()
        opened, told = await stored(second, resume=earlier)
        assert opened.opened.restarted
        assert opened.opened.instance == second.server.events.instance != earlier.instance
        assert ids([told]) == [0, 1]


async def test_overwritten_events_are_told_as_a_gap(reg: Core) -> None:
    """A ring of five: what a cursor asks for and is gone is named, and the stream goes on with the oldest."""
    await configure(reg, ringBufferCapacity="5")
    record(reg, *"abcdefgh")
    responses = await stored(reg, resume=cursor(reg, 1))
    assert [response.gap for response in responses if response.HasField("gap")] == [pb.EventGap(first_id=1, end_id=5)]
    assert ids(responses) == [5, 6, 7, 8, 9]
    assert reg.server.events.places.missed == 4


async def test_what_is_stored_may_be_overwritten_while_it_is_told(reg: Core) -> None:
    """A stream of what was kept at its start tells nothing that came later, however little is left of it."""
    await configure(reg, ringBufferCapacity="5")
    record(reg, *"abc")
    context = BlockedContext(takes=0)
    service = EventService(reg.server.events, reg.server.managers, clock=reg.clock, logger=reg.server._logger)
    request = pb.WatchEventsRequest(newest=5, stored_only=True).SerializeToString()
    watch = asyncio.ensure_future(service._watch(request, context))  # type: ignore[arg-type]
    await asyncio.wait_for(context.waits.wait(), PATIENCE_S)
    record(reg, *"defghijk")
    context.goes_on.set()
    await asyncio.wait_for(watch, PATIENCE_S)
    assert [response.gap for response in context.taken[1:]] == [pb.EventGap(first_id=0, end_id=8)]
    assert ids(context.taken) == []


async def test_a_cursor_in_the_future_is_refused(reg: Core) -> None:
    async with watching(reg, resume=cursor(reg, 3)) as stream:
        assert await stream.end() == (Code.OUT_OF_RANGE, "event 3 has not happened yet; the next one is 2")


async def test_filters_leave_out_and_still_move_the_cursor(reg: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose filter nothing passes tells now and then where it stands."""
    record(reg, "n1", "x", "n2")
    wanted = pb.EventFilter(node_prefix="n")
    told = (await stored(reg, newest=9, filter=wanted))[-1]
    assert ([event.record.objectID for event in told.events], told.next_id) == (["n1", "n2"], 5)
    monkeypatch.setattr(event_service, "SILENT_EVENTS", 3)
    async with watching(reg, filter=wanted) as stream:
        await stream.receive()
        record(reg, "x", "y", "z")
        silent = await stream.receive()
        assert (list(silent.events), silent.next_id) == ([], 8)


async def test_while_tracking_is_disabled_there_is_nothing_to_watch(reg: Core) -> None:
    """Case 46."""
    record(reg, "a")
    await configure(reg, trackingEnabled="false")
    async with watching(reg) as stream:
        assert await stream.end() == (Code.FAILED_PRECONDITION, "Event tracking is disabled")
    await configure(reg)
    record(reg, "b")
    assert ids(await stored(reg, newest=9)) == [0, 1, 2, 3]


async def test_streams_are_limited_and_leave_their_place_when_they_end(reg: Core) -> None:
    """Case 48."""
    await configure(reg, maxStreams="3", maxStreamsPerHost="1")
    async with watching(reg) as stream:
        await stream.receive()
        async with watching(reg) as another:
            code, details = await another.end()
            assert code is Code.RESOURCE_EXHAUSTED
            assert details == "1 event streams of 127.0.0.1 are open, the limit for one host is 1"
    await until(lambda: not reg.server.events.places, "the place to be free")
    await stored(reg)


async def test_what_was_recorded_before_the_core_went_down_is_told_first() -> None:
    """A core that stops says so, after the last event."""
    async with running_core() as core, watching(core, newest=9) as stream:
        await stream.receive()
        record(core, "a", "b")
        await stream.receive()
        record(core, "c")
        stopping = asyncio.ensure_future(core.server.stop())
        assert await stream.end() == (Code.UNAVAILABLE, "the core is shutting down")
        await stopping
        assert ids(stream.got) == [0, 1, 2]


async def test_long_texts_come_in_several_responses(reg: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response stays far below the size that clients accept, and each says where to resume."""
    monkeypatch.setattr(event_service, "MOST_BYTES", 5_000)
    record(reg, *[f"n{number}" for number in range(30)], message="x" * 1_000)
    responses = (await stored(reg, newest=30))[1:]
    assert len(responses) > 6
    assert all(len(response.events) <= 5 for response in responses)
    assert all(response.next_id == response.events[-1].id + 1 for response in responses)
    assert ids(responses) == list(range(2, 32))


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"),
        ("ipv6:[::1]:4711", "::1"),
        ("unix:", "unix"),
        ("unix:/run/kornel.sock", "unix"),
    ],
)
def test_hosts_of_peers(peer: str, host: str) -> None:
    assert host_of(peer) == host


class BlockedContext:
    """A client that takes the first responses and then none."""

    def __init__(self, takes: int) -> None:
        self._takes = takes
        self.taken: list[Any] = []
        self.ended: tuple[grpc.StatusCode, str] | None = None
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()

    def peer(self) -> str:
        return "ipv4:10.0.0.1:1"

    async def write(self, response: bytes) -> None:
        if len(self.taken) >= self._takes:
            self.waits.set()
            await self.goes_on.wait()
        self.taken.append(pb.WatchEventsResponse.FromString(response))

    async def abort(self, code: grpc.StatusCode, details: str, trailing: object) -> None:
        self.ended = code, details
        raise grpc.aio.AbortError


async def serve_to(core: Core, context: BlockedContext) -> None:
    """Serve a stream to *context* until it is aborted."""
    service = EventService(core.server.events, core.server.managers, clock=core.clock, logger=core.server._logger)
    with pytest.raises(grpc.aio.AbortError):
        await asyncio.wait_for(service._watch(b"", context), PATIENCE_S)  # type: ignore[arg-type]


async def test_a_client_that_reads_nothing_is_dropped_with_a_reason(reg: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one response under way and no more, however much happens."""
    monkeypatch.setattr(event_service, "WRITE_PATIENCE_S", 0.05)
    context = BlockedContext(takes=1)
    watch = asyncio.ensure_future(serve_to(reg, context))
    await until(lambda: len(context.taken) == 1, "the stream to open")
    record(reg, "a")
    await watch
    assert reg.server.events.places.dropped == 1
    assert context.ended == (Code.RESOURCE_EXHAUSTED, "read nothing for 0.05 s; resume from 2")
    assert not reg.server.events.places


async def test_a_client_that_reads_slowly_is_dropped_when_it_is_overtaken(
    reg: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is to blame if it took long over the last response; a gap would only hide that."""
    monkeypatch.setattr(event_service, "SLOW_WRITE_S", 0.0)
    await configure(reg, ringBufferCapacity="5")
    context = BlockedContext(takes=1)
    watch = asyncio.ensure_future(serve_to(reg, context))
    await until(lambda: len(context.taken) == 1, "the stream to open")
    record(reg, "a")
    await asyncio.wait_for(context.waits.wait(), PATIENCE_S)
    record(reg, *"bcdefghi")
    context.goes_on.set()
    await watch
    assert ids(context.taken) == [2]
    assert context.ended is not None
    assert context.ended[0] is Code.RESOURCE_EXHAUSTED
    assert context.ended[1].startswith("read too slowly: 8 events behind, and only 5 are kept; next is 3")


async def fill(core: Core, stream: Conversation, megabytes: int) -> None:
    """Have that much happen while *stream* is not read."""
    await stream.receive()
    for _ in range(megabytes):
        record(core, *[f"n{number}" for number in range(1_000)], message="x" * 1_000)
        await asyncio.sleep(LEAST_PAUSE_S / 5)


async def test_a_client_that_pauses_misses_nothing(reg: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes happen meanwhile; the core waits for it, and goes on where it was."""
    monkeypatch.setattr(event_service, "WRITE_PATIENCE_S", PATIENCE_S)
    async with watching(reg) as stream:
        await fill(reg, stream, 20)
        while ids(stream.got[-1:])[-1:] != [REGISTRATION + 20_000 - 1]:
            await stream.receive()
        assert ids(stream.got) == list(range(REGISTRATION, REGISTRATION + 20_000))


async def test_a_real_client_that_stops_reading_hears_why_it_was_dropped(
    reg: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flow control stops the writer; after its patience the stream is over, and others are not held up."""
    patience = ManualTimeouts()
    monkeypatch.setattr(event_service, "asyncio", patience)

    def is_dropped() -> bool:
        patience.run_out()
        return len(reg.server.events.places) == 1

    async with watching(reg) as stream, watching(reg) as other:
        reading = asyncio.ensure_future(other.end())
        await fill(reg, stream, 20)
        last = [REGISTRATION + 20_000 - 1]
        await until(lambda: ids(other.got[-1:])[-1:] == last, "the other stream to be told")
        await until(is_dropped, "the silent stream to be dropped")
        code, details = await stream.end()
        assert code is Code.RESOURCE_EXHAUSTED
        assert details.startswith("read nothing for 5 s; resume from ")
        told = ids(stream.got)
        assert told == list(range(REGISTRATION, REGISTRATION + len(told)))
        assert len(told) < 20_000
        reading.cancel()
