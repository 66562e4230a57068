"""Asks read from their bytes are the asks that protobuf reads; what it refuses is not read."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest

from kornel.core.domain.commands import UpdateAllocations
from kornel.core.service.calls import plain_asks
from kornel.core.service.calls.plain_asks import PlainReader
from kornel.core.service.calls.rpc import parse
from kornel.core.service.wire.scheduler_wire import NAMES_SHARED, PARTITIONS_KNOWN, PIECE, Decoder
from kornel.core.service.wire.status_codes import InvalidRequest, MalformedMessage
from kornel.si.v1 import si_pb2 as si

SIZE = si.Resource(resources={"vcore": si.Quantity(value=1_000), "memory": si.Quantity(value=1 << 40)})
PLAIN = si.Allocation(allocationKey="k-1", applicationID="app-1", resourcePerAlloc=SIZE)


def made(**fields: object) -> si.Allocation:
    """A plain ask, and *fields* of its own."""
    ask = si.Allocation()
    ask.CopyFrom(PLAIN)
    ask.MergeFrom(si.Allocation(**fields))  # type: ignore[arg-type]
    return ask


def request(*asks: si.Allocation) -> bytes:
    return si.AllocationRequest(rmID="rm-1", allocations=asks).SerializeToString()


def parsed(raw: bytes) -> list[UpdateAllocations]:
    return list(Decoder().allocation_commands(parse(si.AllocationRequest, raw)))


def read(raw: bytes, reader: PlainReader | None = None) -> list[UpdateAllocations] | None:
    plain = (reader or PlainReader(Decoder())).read(raw)
    return None if plain is None else list(Decoder().allocation_commands(plain.message, plain.specs))


@pytest.mark.parametrize(
    "asks",
    [
        [PLAIN],
        [PLAIN, made(allocationKey="k-2"), made(allocationKey="k-3", applicationID="app-2")],
        [made(priority=-7, nodeID="n1", partitionName="gpu", taskGroupName="tg", placeholder=True, originator=True)],
        [made(preemptionPolicy=si.PreemptionPolicy())],
        [made(preemptionPolicy=si.PreemptionPolicy(allowPreemptOther=True)), PLAIN],
        [made(allocationKey="schlüssel", applicationID="ä")],
        [made(applicationID="a" * 127), made(applicationID="b" * 128), made(applicationID="c" * 300)],
        [si.Allocation(allocationKey="k", resourcePerAlloc=SIZE)],
        [made(allocationKey="k" * 127)],
        [si.Allocation(allocationKey="k", applicationID="app", resourcePerAlloc=si.Resource())],
        [made(resourcePerAlloc=si.Resource(resources={f"type-{n}": si.Quantity(value=n) for n in range(40)}))],
        [made(allocationKey=f"k-{number}", queueName="old") for number in range(2 * PIECE + 1)],
    ],
)  # fmt: skip
def test_plain_asks_are_what_protobuf_reads(asks: Sequence[si.Allocation]) -> None:
    """Also the second time, when all but the key is known."""
    raw, reader = request(*asks), PlainReader(Decoder())
    assert read(raw, reader) == read(raw, reader) == parsed(raw)


@pytest.mark.parametrize(
    "ask",
    [
        si.Allocation(allocationKey="k", applicationID="app"),
        si.Allocation(applicationID="app", resourcePerAlloc=SIZE),
        made(allocationTags={"a": "b"}),
        made(UUID="k-1-3"),
        made(allocationID="k-1-3"),
        made(allocationKey="k" * 128),
    ],
    ids=["no resources", "no key", "tags", "UUID", "ID", "long key"],
)
def test_what_says_more_or_less_is_left_to_others(ask: si.Allocation) -> None:
    assert read(request(ask)) is None
    assert read(request(PLAIN, ask)) is None


@pytest.mark.parametrize(
    "ask",
    [
        PLAIN.SerializeToString() + si.Allocation(allocationKey="other").SerializeToString(),
        PLAIN.SerializeToString() + si.Allocation(resourcePerAlloc=SIZE).SerializeToString(),
        PLAIN.SerializeToString() + si.Allocation(allocationTags={"a": "b"}).SerializeToString(),
        si.Allocation(applicationID="app-1").SerializeToString()
        + si.Allocation(allocationKey="k-1", resourcePerAlloc=SIZE).SerializeToString(),
    ],
    ids=["key again", "resources again", "tags behind", "another order"],
)
def test_fields_in_no_usual_order_are_left_to_others(ask: bytes) -> None:
    """The last one of two keys counts, and two resources are put together."""
    assert read(b'"' + bytes([len(ask)]) + ask) is None


def test_all_else_of_a_request_is_kept() -> None:
    """Releases beside asks."""
    whole = si.AllocationRequest(rmID="rm-1", allocations=[PLAIN])
    whole.releases.allocationsToRelease.add(allocationKey="gone", applicationID="app-1")
    whole.asks.add(allocationKey="older", applicationID="app-1", maxAllocations=2)
    raw = whole.SerializeToString()
    assert read(raw) == parsed(raw)
    assert read(si.AllocationRequest(rmID="rm-1").SerializeToString()) is None


def test_what_protobuf_refuses_is_not_read() -> None:
    """Bytes changed, cut or doubled at random: as protobuf reads them, or not at all."""
    dice = random.Random(7)
    asks = [made(allocationKey=f"k-{n}", applicationID=f"app-{n % 3}", priority=n % 2) for n in range(6)]
    raw, reader = request(*asks), PlainReader(Decoder())
    outcomes = set()
    for _ in range(4_000):
        at, kind = dice.randrange(len(raw)), dice.randrange(3)
        changed = raw[:at] + (bytes([dice.randrange(256)]), b"", raw[at : at + 1] * 2)[kind] + raw[at + 1 :]
        found: object = None
        try:
            found = read(changed, reader)
        except (MalformedMessage, InvalidRequest):
            found = "refused"
        try:
            expected: object = parsed(changed)
        except (MalformedMessage, InvalidRequest):
            expected = "refused"
        assert found is None or found == expected
        outcomes.add("left" if found is None else "refused" if found == "refused" else "read")
    assert outcomes == {"left", "read", "refused"}


def test_many_small_entries_are_left_to_those_who_count_them() -> None:
    """They would be refused, or read piece by piece."""
    assert read(b'"\x00' * 100_000) is None
    assert read(request(*[made(allocationKey="k" * 100)] * 8_000)) is None


def test_only_so_many_ends_of_asks_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older half is forgotten, and what was known of many managers."""
    monkeypatch.setattr(plain_asks, "REMEMBERED", 8)
    reader = PlainReader(Decoder())
    raw = request(*(made(applicationID=f"app-{number}") for number in range(50)))
    assert read(raw, reader) == parsed(raw)
    assert [len(known) for known in reader._managers.values()] == [6]
    for number in range(plain_asks.MANAGERS_REMEMBERED):
        raw = si.AllocationRequest(rmID=f"rm-{number}", allocations=[PLAIN]).SerializeToString()
        assert read(raw, reader) == parsed(raw)
    assert len(reader._managers) <= plain_asks.MANAGERS_REMEMBERED


@pytest.mark.long
@pytest.mark.parametrize("field", ["applicationID", "partitionName", "taskGroupName", "nodeID", "queueName"])
def test_long_ends_of_asks_are_not_remembered(field: str) -> None:
    """A name that is sent only once may be of any length: asks with such names leave nothing behind."""
    decoder = Decoder()
    reader = PlainReader(decoder)
    asks = [si.AllocationRequest(allocations=[made(**{field: f"{number}" + "x" * 200_000})]) for number in range(50)]
    raws = [asked.SerializeToString() for asked in asks]
    read(raws[0], reader)
    tracemalloc.start()
    try:
        for raw in raws:
            assert read(raw, reader) == parsed(raw)
            list(decoder.allocation_commands(parse(si.AllocationRequest, raw)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_names_of_partitions_and_applications_in_any_number_do_not_fill_the_memory() -> None:
    decoder = Decoder()
    reader = PlainReader(decoder)
    for first in range(0, 40_000, 400):
        numbers = range(first, first + 400)
        raw = request(*[made(partitionName=f"p-{number}", applicationID=f"a-{number}") for number in numbers])
        assert read(raw, reader) is not None
        list(decoder.allocation_commands(parse(si.AllocationRequest, raw)))
    assert len(decoder.names_shared) <= NAMES_SHARED + PIECE
    assert all(len(known._names) <= PARTITIONS_KNOWN for known in reader._managers.values())


def test_nothing_is_remembered_of_who_is_not_registered() -> None:
    """Anybody may name a manager in the first message of a stream."""
    reader = PlainReader(Decoder(), {"rm-2"}.__contains__)
    assert read(request(PLAIN), reader) == parsed(request(PLAIN))
    assert not reader._managers
