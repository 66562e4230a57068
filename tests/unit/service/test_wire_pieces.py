"""Long requests mean what they say, however they are taken apart; those with too many entries are never parsed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import fields
from typing import Any

import pytest

from kornel.core.service.calls import wire_pieces
from kornel.core.service.calls.wire_pieces import (
    LONGEST_ENTRY,
    MOST_ENTRIES,
    MOST_WITHIN,
    SHORT,
    pick_field,
    read_request,
)
from kornel.core.service.streams.resuming import Kind
from kornel.core.service.wire.message_bytes import encode_field
from kornel.core.service.wire.scheduler_wire import PIECE, Decoder
from kornel.core.service.wire.status_codes import MalformedMessage, TooLarge
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2
from tests.e2e.harness import create, resource

PADDING = "x" * 400


def messages(kind: Kind, raw: bytes) -> list[Any]:
    async def read() -> list[Any]:
        return list(await read_request(kind, raw))

    return asyncio.run(read())


def commands(kind: Kind, requests: list[Any]) -> list[Any]:
    """What the entries of *requests* become, one after the other."""
    decoder = Decoder()
    read: Any = {
        Kind.ALLOCATION: decoder.allocation_commands,
        Kind.APPLICATION: decoder.application_commands,
        Kind.NODE: decoder.node_commands,
    }[kind]
    flat: list[Any] = []
    for command in (command for request in requests for command in read(request)):
        assert command.rm_id == "rm-1"
        flat += [entry for each in fields(command) if each.name != "rm_id" for entry in getattr(command, each.name)]
    return flat


def allocation_request(seed: int, count: int, *, padding: str = "") -> si.AllocationRequest:
    dice = random.Random(seed)
    releases = si.AllocationReleasesRequest(
        allocationsToRelease=[
            si.AllocationRelease(allocationKey=f"r{n}{padding}") for n in range(dice.randrange(count))
        ],
        allocationAsksToRelease=[
            si.AllocationAskRelease(allocationKey=f"a{n}{padding}") for n in range(dice.randrange(count))
        ],
    )
    return si.AllocationRequest(
        rmID="rm-1",
        allocations=[
            si.Allocation(allocationKey=f"k{n}{padding}", resourcePerAlloc=resource(vcore=n)) for n in range(count)
        ],
        asks=[si.AllocationAsk(allocationKey=f"g{n}", maxAllocations=n % 5) for n in range(dice.randrange(count))],
        releases=releases,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("count", "padding"), [(90, PADDING), (700, ""), (700, PADDING), (3_000, PADDING)])
def test_pieces_mean_what_the_whole_means(seed: int, count: int, padding: str) -> None:
    """Whatever its size, a request gives the entries that it gives in one, in their order."""
    request = allocation_request(seed, count, padding=padding)
    raw = request.SerializeToString()
    assert commands(Kind.ALLOCATION, messages(Kind.ALLOCATION, raw)) == commands(Kind.ALLOCATION, [request])


def test_fields_in_any_order() -> None:
    """The name may come last, lists may be mixed and given in parts: the request means the same."""
    whole = allocation_request(1, 800)
    parts = [si.AllocationRequest(allocations=[entry]) for entry in whole.allocations]
    parts += [si.AllocationRequest(asks=[entry]) for entry in whole.asks]
    for release in whole.releases.allocationsToRelease:
        parts.append(si.AllocationRequest(releases=si.AllocationReleasesRequest(allocationsToRelease=[release])))
    for withdrawn in whole.releases.allocationAsksToRelease:
        parts.append(si.AllocationRequest(releases=si.AllocationReleasesRequest(allocationAsksToRelease=[withdrawn])))
    random.Random(5).shuffle(parts)
    parts += [si.AllocationRequest(rmID="rm-9"), si.AllocationRequest(rmID="rm-1")]
    raw = b"".join(part.SerializeToString() for part in parts)
    assert len(raw) > SHORT
    mixed = si.AllocationRequest.FromString(raw)
    assert commands(Kind.ALLOCATION, messages(Kind.ALLOCATION, raw)) == commands(Kind.ALLOCATION, [mixed])


def test_nodes_and_applications() -> None:
    nodes = si.NodeRequest(rmID="rm-1", nodes=[create(f"n{number}{PADDING}") for number in range(4_000)])
    assert commands(Kind.NODE, messages(Kind.NODE, nodes.SerializeToString())) == commands(Kind.NODE, [nodes])
    applications = si.ApplicationRequest(
        rmID="rm-1",
        new=[si.AddApplicationRequest(applicationID=f"app-{number}") for number in range(4_000)],
        remove=[si.RemoveApplicationRequest(applicationID=f"old-{number}") for number in range(4_000)],
    )
    found = messages(Kind.APPLICATION, applications.SerializeToString())
    assert commands(Kind.APPLICATION, found) == commands(Kind.APPLICATION, [applications])
    assert max(len(request.new) + len(request.remove) for request in found) <= PIECE


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Kind.ALLOCATION, b"\x22\x00"),
        (Kind.ALLOCATION, b"\x0a\x00"),
        (Kind.ALLOCATION, b"\xa2\x00\x00"),  # a tag that is longer than it need be
        (Kind.APPLICATION, b"\x0a\x00"),
        (Kind.APPLICATION, b"\x12\x00"),
        (Kind.NODE, b"\x0a\x00"),
        (Kind.NODE, b"\x78\x00"),  # a field nobody knows
    ],
)
def test_too_many_entries_are_refused_unparsed(kind: Kind, raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_pieces, "parse", lambda message_type, raw: pytest.fail("parsed"))
    monkeypatch.setattr(wire_pieces, "MOST_ENTRIES", 50_000)
    with pytest.raises(TooLarge, match="50,000"):
        messages(kind, raw * 50_001)


def test_half_a_million_entries_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_pieces, "parse", lambda message_type, raw: pytest.fail("parsed"))
    with pytest.raises(TooLarge, match="500,000"):
        messages(Kind.ALLOCATION, b"\x22\x00" * (MOST_ENTRIES + 1))


def test_entries_within_releases_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_pieces, "parse", lambda message_type, raw: pytest.fail("parsed"))
    with pytest.raises(TooLarge):
        messages(Kind.ALLOCATION, encode_field(2, b"\x0a\x00" * (MOST_ENTRIES + 1)))


def test_one_entry_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_pieces, "parse", lambda message_type, raw: pytest.fail("parsed"))
    with pytest.raises(TooLarge, match="bytes"):
        messages(Kind.NODE, si.NodeRequest(nodes=[si.NodeInfo(nodeID="x" * LONGEST_ENTRY)]).SerializeToString())


async def test_others_get_their_turn_while_the_fields_of_nodes_are_counted() -> None:
    """A node may have as many fields as fit into a MiB, in one request of up to 64."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    taking = asyncio.create_task(take_turns())
    await read_request(Kind.NODE, encode_field(1, b"\x40\x00" * 100_000) * 3)
    taking.cancel()
    assert turns >= 3


def test_allocations_that_nodes_bring_along_count_as_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    node = encode_field(1, b"\x32\x00" * (MOST_WITHIN - 1))
    taken = messages(Kind.NODE, node * 4)
    assert [[len(each.existingAllocations) for each in message.nodes] for message in taken] == [[MOST_WITHIN - 1]] * 4
    few = encode_field(1, b"\x32\x00" * 9)
    assert {len(message.nodes) for message in messages(Kind.NODE, few * 2_000)} == {PIECE // 10}

    monkeypatch.setattr(wire_pieces, "parse", lambda message_type, raw: pytest.fail("parsed"))
    with pytest.raises(TooLarge, match="of its own"):
        messages(Kind.NODE, encode_field(1, b"\x32\x00" * (MOST_WITHIN + 1)))
    with pytest.raises(TooLarge, match="500,000"):
        messages(Kind.NODE, node * (MOST_ENTRIES // MOST_WITHIN + 1))


@pytest.mark.parametrize(
    "tail",
    [b"\x22", b"\x22\x7f", b"\x23", b"\x26\x00", b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x21\x00"],
)
def test_bytes_that_are_no_request(tail: bytes) -> None:
    """Cut off, lying about a length, or of a kind that no interface has: as if it were short."""
    raw = si.AllocationRequest(rmID="x" * SHORT).SerializeToString() + tail
    with pytest.raises(MalformedMessage):
        messages(Kind.ALLOCATION, raw)


def test_a_request_without_entries_still_binds() -> None:
    raw = si.AllocationRequest(rmID="rm-1").SerializeToString() + b"\x7a\x80\x80\x80\x01" + bytes(2 << 20)
    (request,) = messages(Kind.ALLOCATION, raw)
    assert request.rmID == "rm-1"


@pytest.mark.parametrize("length", [0, SHORT])
def test_field_that_is_looked_at_alone_is_the_one_of_the_whole(length: int) -> None:
    """Also where it occurs several times, where the last one counts, or parts of each."""
    entries = b"\x22\x00" * length
    raw = encode_field(3, b"mine") + entries + encode_field(3, b"theirs") + entries
    picked = asyncio.run(pick_field(si.AllocationRequest, "rmID", raw))
    assert si.AllocationRequest.FromString(picked).rmID == si.AllocationRequest.FromString(raw).rmID == "theirs"

    answers = encode_field(2, b"") * length
    subscription = encode_field(1, encode_field(1, b"theirs"))
    raw = encode_field(1, encode_field(1, b"mine")) + answers + subscription + answers + encode_field(1, b"")
    picked = asyncio.run(pick_field(callback_pb2.AttachRequest, "subscription", raw))
    whole = callback_pb2.AttachRequest.FromString(raw)
    assert callback_pb2.AttachRequest.FromString(picked).subscription == whole.subscription
    assert whole.subscription.rm_id == "theirs"


def test_field_of_a_request_with_too_many_entries_is_not_looked_for() -> None:
    with pytest.raises(TooLarge, match="AllocationRequest"):
        asyncio.run(pick_field(si.AllocationRequest, "rmID", b"\x22\x00" * (MOST_ENTRIES + 1)))
    with pytest.raises(MalformedMessage):
        asyncio.run(pick_field(si.AllocationRequest, "rmID", b"\x22\x00" * MOST_ENTRIES + b"\x22\x05"))
