"""Events in batches and as a stream (rest.md 11, cases 42 to 54)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import structlog
from starlette.types import Message

from kornel.core.domain.effects import EventRecorded
from kornel.core.rest.serving.event_streams import EventStream, EventStreams
from kornel.core.service.machine.clock import SECOND_NS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2 as pb
from kornel.v1 import callback_pb2_grpc
from tests.e2e.harness import Conversation, ManualTimeouts, create, node_request
from tests.e2e.rest.shim import PREFIX, TREE, TRUSTING_NOBODY, Cluster
from tests.patience import PATIENCE_S
from tests.waiting import until

QUOTA = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
            resources: {{max: {{vcore: {max}}}}}
"""
GROWN = """
partitions:
  - name: default
    placementrules: [{name: user, create: true}]
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: b
          - name: a
            queues: [{name: a1}]
          - {name: default, parent: true}
"""
BATCH = f"{PREFIX}/events/batch"
STREAM = f"{PREFIX}/events/stream"


def happen(cluster: Cluster, count: int, message: str = "") -> None:
    """*count* events of an application, each with the number it gets as its ID."""
    journal = cluster.core.server.events
    first = journal.events.next_id
    now_ns = cluster.core.clock.now_ns()
    journal.observe(
        [EventRecorded(2, str(first + number), "", 2, 203, now_ns, None, message) for number in range(count)]
    )


def ids(records: list[dict[str, Any]]) -> list[int]:
    return [int(record["objectID"]) for record in records]


async def empty(cluster: Cluster, **extra: str) -> None:
    """Nothing has happened yet."""
    await cluster.register("", **extra)
    await cluster.configure(TREE, **extra)
    journal = cluster.core.server.events
    capacity = journal.events.capacity
    journal.events.__init__(capacity)  # type: ignore[misc]


@pytest.fixture
async def quiet(fresh: Cluster) -> Cluster:
    """A core whose history is empty."""
    await empty(fresh)
    return fresh


async def test_case_42_batches(quiet: Cluster) -> None:
    found = await quiet.get(BATCH)
    assert (found["LowestID"], found["HighestID"], found["EventRecords"]) == (0, 0, None)
    assert found["InstanceUUID"] == quiet.core.server.events.instance
    happen(quiet, 3)
    assert ids((await quiet.get(BATCH))["EventRecords"]) == [0, 1, 2]
    assert ids((await quiet.get(f"{BATCH}?count=1"))["EventRecords"]) == [0]
    assert ids((await quiet.get(f"{BATCH}?start=2"))["EventRecords"]) == [2]
    found = await quiet.get(f"{BATCH}?start=3")
    assert (found["LowestID"], found["HighestID"], found["EventRecords"]) == (0, 2, None)


async def test_case_43_ring_that_was_filled_up(fresh: Cluster) -> None:
    await empty(fresh, event_ringBufferCapacity="20")
    happen(fresh, 25)
    found = await fresh.get(BATCH + "?start=18")
    assert (found["LowestID"], found["HighestID"]) == (5, 24)
    assert ids(found["EventRecords"]) == list(range(18, 25))
    assert ids((await fresh.get(f"{BATCH}?start=18&count=5"))["EventRecords"]) == list(range(18, 23))
    assert (await fresh.get(f"{BATCH}?start=4"))["EventRecords"] is None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("count=0", '0 is not a valid value for "count"'),
        ("count=xyz", 'strconv.ParseUint: parsing "xyz": invalid syntax'),
        ("count=-100", 'strconv.ParseUint: parsing "-100": invalid syntax'),
        ("start=-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("start=1e3", 'strconv.ParseUint: parsing "1e3": invalid syntax'),
        (f"start={2**64}", f'strconv.ParseUint: parsing "{2**64}": value out of range'),
        ("start=-1&count=0", '0 is not a valid value for "count"'),
        ("start=%D9%A1", 'strconv.ParseUint: parsing "\u0661": invalid syntax'),
    ],
)
async def test_case_44_bad_numbers(quiet: Cluster, query: str, message: str) -> None:
    await quiet.refused(f"{BATCH}?{query}", 400, message)


@pytest.mark.parametrize(("size", "got"), [("1", 1), ("0", 3), ("xyz", 3)])
async def test_case_44_size_of_an_answer(fresh: Cluster, size: str, got: int) -> None:
    await empty(fresh, event_RESTResponseSize=size)
    happen(fresh, 3)
    assert len((await fresh.get(f"{BATCH}?count=3"))["EventRecords"]) == got


async def test_case_45_ring_changes_its_size(fresh: Cluster) -> None:
    await empty(fresh, event_ringBufferCapacity="100")
    happen(fresh, 50)
    await fresh.configure(TREE, event_ringBufferCapacity="10")
    found = await fresh.get(f"{BATCH}?start=40")
    assert (found["LowestID"], found["HighestID"]) == (40, 49)
    await fresh.configure(TREE, event_ringBufferCapacity="20")
    assert ids((await fresh.get(f"{BATCH}?start=40"))["EventRecords"]) == list(range(40, 50))
    happen(fresh, 1)
    assert ids((await fresh.get(f"{BATCH}?start=49"))["EventRecords"]) == [49, 50]


async def test_case_46_tracking_switched_off_and_on(quiet: Cluster) -> None:
    happen(quiet, 2)
    await quiet.configure(TREE, event_trackingEnabled="false")
    await quiet.refused(BATCH, 500, "Event tracking is disabled")
    await quiet.refused(STREAM, 500, "Event tracking is disabled")
    happen(quiet, 2)
    await quiet.configure(TREE, event_trackingEnabled="true")
    happen(quiet, 1)
    assert ids((await quiet.get(BATCH))["EventRecords"]) == [0, 1, 2]


@asynccontextmanager
async def stream(cluster: Cluster, query: str = "") -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The objects of an open stream, without the first one."""
    async with cluster.http.stream("GET", f"{STREAM}{query}") as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "application/json; charset=UTF-8"
        lines = answer.aiter_lines()
        first = json.loads(await anext(lines))
        assert first == {"InstanceUUID": cluster.core.server.events.instance}
        yield (json.loads(line) async for line in lines)


async def take(objects: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(objects) for _ in range(count)]


async def test_case_47_stream_begins_with_the_latest(quiet: Cluster) -> None:
    happen(quiet, 3)
    async with stream(quiet, "?count=2") as objects:
        assert ids(await take(objects, 2)) == [1, 2]
        happen(quiet, 1)
        assert ids(await take(objects, 1)) == [3]
    await quiet.refused(f"{STREAM}?count=xyz", 400)


async def test_case_47_stream_without_count_tells_only_what_is_new(quiet: Cluster) -> None:
    happen(quiet, 3)
    async with stream(quiet) as objects:
        happen(quiet, 2)
        assert ids(await take(objects, 2)) == [3, 4]


async def test_case_47_count_beyond_a_ring_that_was_filled_up(fresh: Cluster) -> None:
    await empty(fresh, event_ringBufferCapacity="3")
    happen(fresh, 5)
    async with stream(fresh, "?count=100") as objects:
        assert ids(await take(objects, 3)) == [2, 3, 4]


async def test_case_47_stream_goes_on_where_another_ended(quiet: Cluster) -> None:
    happen(quiet, 5)
    async with stream(quiet, "?start=3") as objects:
        assert ids(await take(objects, 2)) == [3, 4]


@pytest.mark.parametrize("key", ["event_maxStreams", "event_maxStreamsPerHost"])
async def test_case_48_so_many_streams_and_no_more(fresh: Cluster, key: str) -> None:
    await empty(fresh, **{key: "3"})
    async with stream(fresh) as first, stream(fresh) as second:
        async with stream(fresh) as third:
            await fresh.refused(STREAM, 503, "Too many streaming connections")
            await fresh.configure(TREE, **{key: "1"})
            happen(fresh, 1)
            for still_open in (first, second, third):
                assert ids(await take(still_open, 1)) == [0]
            await fresh.configure(TREE, **{key: "3"})
        await until(lambda: len(fresh.core.server.events.places) == 2, "the stream to end with its client")
        async with stream(fresh) as objects:
            happen(fresh, 1)
            assert ids(await take(objects, 1)) == [1]
    await fresh.configure(TREE, **{key: "0"})
    await fresh.refused(STREAM, 503)


async def test_case_48_limits_come_before_numbers(fresh: Cluster) -> None:
    await empty(fresh, event_maxStreams="0")
    await fresh.refused(f"{STREAM}?count=xyz", 503)


async def test_case_49_reader_that_missed_events_is_told(fresh: Cluster) -> None:
    await empty(fresh, event_ringBufferCapacity="10")
    async with stream(fresh) as slow:
        happen(fresh, 1)
        assert ids(await take(slow, 1)) == [0]
        happen(fresh, 100)
        (last,) = await take(slow, 1)
        assert (last["status_code"], last["message"]) == (200, "Event stream was closed by the producer")
        assert last["reason"].startswith("read too slowly: 100 events behind")
        with pytest.raises(StopAsyncIteration):
            await anext(slow)
    places = fresh.core.server.events.places
    assert (len(places), places.dropped) == (0, 1)


async def test_case_49_reader_that_never_reads_is_gone(quiet: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = ManualTimeouts()
    monkeypatch.setattr("kornel.core.rest.serving.event_streams.asyncio", patience)
    places = quiet.core.server.events.places

    def is_dropped() -> bool:
        patience.run_out()
        return len(places) == 1

    host, _, port = quiet.core.server.rest_address.rpartition(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(f"GET {STREAM} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await until(lambda: len(places) == 1, "the stream to open")
        async with stream(quiet) as other:
            for _ in range(20):
                happen(quiet, 1_000, "x" * 1000)
                await take(other, 1_000)
            await until(is_dropped, "the stream to be dropped")
            happen(quiet, 1)
            assert ids(await take(other, 1)) == [20_000]
            dump = (await quiet.http.get("/debug/fullstatedump")).json()
            assert [entry["Name"] for entry in dump["eventStreams"]] == ["127.0.0.1"]
            assert places.dropped == 1


async def test_of_a_client_that_is_slow_no_more_than_a_write_is_kept(quiet: Cluster) -> None:
    """Whatever it has missed: events stay in the ring until there is room for them."""
    happen(quiet, 20_000, "x" * 1000)
    streams = EventStreams(quiet.core.server.events, clock=quiet.core.clock, logger=structlog.get_logger())
    waiting, most = asyncio.Event(), 0

    async def send(message: Message) -> None:
        nonlocal most
        most = max(most, len(message.get("body", b"")))
        if most > 1_000_000:
            waiting.set()
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("it never goes away")

    answer = EventStream(streams, 0, streams.take_place("127.0.0.1"))
    running = asyncio.create_task(answer({"type": "http"}, receive, send))
    await asyncio.wait_for(waiting.wait(), PATIENCE_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert most < 1_500_000


async def test_case_49_streams_end_with_the_core(quiet: Cluster) -> None:
    async with stream(quiet) as objects:
        stopping = asyncio.create_task(quiet.core.server.stop())
        (last,) = await take(objects, 1)
        assert (last["message"], last["reason"]) == ("Event stream was closed by the producer", "the core stops")
        await stopping
    assert quiet.core.server.events.places.dropped == 0


async def happened(cluster: Cluster, start: int = 0) -> list[tuple[int, int, int]]:
    """Type, change and detail of what happened from number *start* on."""
    records = (await cluster.get(f"{BATCH}?start={start}"))["EventRecords"] or []
    return [
        (record["type"], record.get("eventChangeType", 0), record.get("eventChangeDetail", 0)) for record in records
    ]


async def test_case_50_ask_is_placed(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    start = cluster.core.server.events.events.next_id
    await cluster.submit("app")
    await cluster.ask("k", vcore=1)
    assert await happened(cluster, start) == [
        (2, 2, 203), (4, 2, 405), (2, 1, 204), (2, 2, 201), (3, 2, 303), (2, 1, 206), (5, 2, 603), (2, 2, 200),
    ]  # fmt: skip
    records = (await cluster.get(f"{BATCH}?start={start}"))["EventRecords"]
    amounts = [record["resource"] for record in records if record.get("eventChangeDetail") in (200, 201, 303, 603)]
    assert amounts == [{"resources": {"vcore": {"value": 1}}}] * 4


async def test_case_51_allocation_is_released(cluster: Cluster) -> None:
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    for termination, present, absent in (
        (si.STOPPED_BY_RM, {(5, 3, 603), (2, 3, 500), (3, 3, 303), (2, 3, 100)}, set()),
        (si.PREEMPTED_BY_SCHEDULER, {(2, 3, 501)}, {(2, 3, 500)}),
        (si.TIMEOUT, {(2, 3, 502)}, {(2, 3, 100)}),
    ):
        await cluster.ask("k", vcore=1)
        start = cluster.core.server.events.events.next_id
        await cluster.release("k", termination=termination)
        found = set(await happened(cluster, start))
        assert present <= found
        assert not absent & found


async def test_case_52_quota_is_told_once(cluster: Cluster) -> None:
    await cluster.configure(QUOTA.format(max="1m"))
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    start = cluster.core.server.events.events.next_id
    await cluster.ask("k", vcore=5)
    await cluster.wait(10)
    assert (await happened(cluster, start)).count((1, 0, 0)) == 1
    await cluster.configure(QUOTA.format(max="10m"))
    await cluster.wait(1)
    records = (await cluster.get(f"{BATCH}?start={start}"))["EventRecords"]
    assert [record["objectID"] for record in records if record["type"] == 1] == ["k", "k"]


async def test_case_52_predicates_are_told_once_in_15_seconds(cluster: Cluster) -> None:
    """A hundred nodes come, one each tenth of a second, and refuse both asks."""
    shim = callback_pb2_grpc.CallbackServiceStub(cluster.core.channel)
    await cluster.submit("app")
    start = cluster.core.server.events.events.next_id
    async with Conversation.open(shim.Attach()) as callbacks:
        await callbacks.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", predicates=True)))
        await callbacks.receive()
        refusals = 0

        async def refuse() -> None:
            nonlocal refusals
            while True:
                for question in (await callbacks.receive()).predicates:
                    nodes = [pb.NodeRefusal(node_id=node_id, reason="tainted") for node_id in question.node_ids]
                    refusals += len(nodes)
                    answer = pb.PredicatesAnswer(question_id=question.question_id, refusals=nodes)
                    await callbacks.send(pb.AttachRequest(predicates=[answer]))

        refusing = asyncio.create_task(refuse())
        await cluster.ask("k1", vcore=1)
        await cluster.ask("k2", vcore=2)
        for number in range(100):
            await cluster.nodes.send(node_request(create(f"n{number}")))
            await until(lambda n=number: refusals >= 2 * (n + 1), "both asks to be refused")  # type: ignore[misc]
            cluster.core.clock.advance(SECOND_NS // 10)
        await cluster.core.settle()
        refusing.cancel()
    records = (await cluster.get(f"{BATCH}?start={start}"))["EventRecords"]
    told = [record for record in records if record["type"] == 1]
    assert sorted(record["objectID"] for record in told) == ["k1", "k2"]
    assert all("tainted" in record["message"] for record in told)


async def test_case_53_long_messages_are_cut(cluster: Cluster) -> None:
    shim = callback_pb2_grpc.CallbackServiceStub(cluster.core.channel)
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    async with Conversation.open(shim.Attach()) as callbacks:
        await callbacks.send(pb.AttachRequest(subscription=pb.Subscription(rm_id="rm-1", predicates=True)))
        await callbacks.receive()
        await cluster.ask("k", vcore=1)
        question = (await callbacks.receive()).predicates[0]
        refusal = pb.NodeRefusal(node_id="n1", reason="x" * 1_100)
        refused = pb.PredicatesAnswer(question_id=question.question_id, refusals=[refusal])
        await callbacks.send(pb.AttachRequest(predicates=[refused]))
        await cluster.core.settle()
    records = (await cluster.get(BATCH))["EventRecords"]
    (message,) = [record["message"] for record in records if record["type"] == 1]
    assert len(message) == 1_024
    assert message.endswith("...")


async def test_case_54_queues_come_and_go(cluster: Cluster) -> None:
    start = cluster.core.server.events.events.next_id
    await cluster.configure(GROWN)
    records = (await cluster.get(f"{BATCH}?start={start}"))["EventRecords"]
    (made,) = [record for record in records if record["objectID"] == "root.b"]
    assert (made["type"], made["eventChangeType"], made.get("eventChangeDetail")) == (4, 2, None)
    (turned,) = [record for record in records if record.get("eventChangeDetail") == 402]
    assert (turned["objectID"], turned["eventChangeType"], turned["message"]) == (
        "root.default",
        1,
        "leaf queue: false",
    )
    start = cluster.core.server.events.events.next_id
    await cluster.submit("app", user="zoe")
    assert (4, 2, 401) in await happened(cluster, start)
    start = cluster.core.server.events.events.next_id
    await cluster.remove("app")
    await cluster.wait(60)
    assert (4, 3, 401) in await happened(cluster, start)


async def test_events_have_the_names_of_upstream(cluster: Cluster) -> None:
    """Section 5: numbers for codes, and nothing that is empty but the resource."""
    await cluster.node("n1", vcore=10)
    await cluster.submit("app")
    await cluster.ask("k", vcore=1)
    records = (await cluster.get(BATCH))["EventRecords"]
    now_ns = cluster.core.clock.now_ns()
    assert {"type": 2, "objectID": "app", "timestampNano": now_ns, "eventChangeType": 2, "eventChangeDetail": 203,
            "resource": {}} in records  # fmt: skip
    assert {"type": 2, "objectID": "app", "timestampNano": now_ns, "eventChangeType": 2, "eventChangeDetail": 200,
            "referenceID": "k", "resource": {"resources": {"vcore": {"value": 1}}}} in records  # fmt: skip


async def test_client_that_leaves_frees_its_place(quiet: Cluster) -> None:
    async with (
        httpx.AsyncClient(base_url=quiet.http.base_url, timeout=PATIENCE_S, verify=TRUSTING_NOBODY) as client,
        client.stream("GET", STREAM) as answer,
    ):
        assert answer.status_code == 200
    await until(lambda: len(quiet.core.server.events.places) == 0, "the place to be free")
