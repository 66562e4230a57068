"""The bounded queue in front of a stream."""

from __future__ import annotations

import asyncio

import pytest

from kornel.shim_client.outbox import Outbox, OutboxClosed
from kornel.si.v1 import si_pb2 as si


def node(name: str) -> si.NodeInfo:
    return si.NodeInfo(nodeID=name)


def make(capacity: int = 10, batch: int = 10) -> Outbox[si.NodeInfo]:
    return Outbox(capacity=capacity, batch=batch, rank=lambda entry: entry.nodeID.startswith("late"))


async def test_a_full_outbox_makes_the_sender_wait() -> None:
    """put() returns only once everything is queued, and goes on when the writer has taken some."""
    outbox = make(capacity=2)
    sender = asyncio.create_task(outbox.put([node("a"), node("b"), node("c")]))
    assert [entry.nodeID for entry in await outbox.next_batch()] == ["a", "b"]
    assert not sender.done()
    await outbox.mark_written(2)
    await sender
    assert [entry.nodeID for entry in await outbox.next_batch()] == ["c"]


async def test_what_was_not_written_stays() -> None:
    """A batch that was taken but never confirmed as written is offered again: a stream may break in between."""
    outbox = make()
    await outbox.put([node("a")])
    assert await outbox.next_batch() == await outbox.next_batch()


async def test_a_batch_ends_where_the_order_would_change() -> None:
    """Entries that the core handles earlier in a request do not join one that has later ones."""
    outbox = make()
    await outbox.put([node("a"), node("late-1"), node("b")])
    assert [entry.nodeID for entry in await outbox.next_batch()] == ["a", "late-1"]


async def test_a_large_entry_travels_alone() -> None:
    """A batch stays below the size that both ends accept, but never becomes empty."""
    outbox = make()
    huge = si.NodeInfo(nodeID="h", attributes={"x": "y" * 20_000_000})
    await outbox.put([huge, node("a")])
    assert [entry.nodeID for entry in await outbox.next_batch()] == ["h"]


async def test_closing_drains() -> None:
    """After close() the rest can be taken, then batches are empty; nothing new is accepted."""
    outbox = make()
    await outbox.put([node("a")])
    await outbox.close()
    with pytest.raises(OutboxClosed):
        await outbox.put([node("b")])
    assert len(await outbox.next_batch()) == 1
    await outbox.mark_written(1)
    assert await outbox.next_batch() == []


async def test_closing_wakes_a_waiting_sender() -> None:
    """A sender that waits for room learns that there will be none."""
    outbox = make(capacity=1)
    sender = asyncio.create_task(outbox.put([node("a"), node("b")]))
    await outbox.next_batch()
    await outbox.close()
    with pytest.raises(OutboxClosed):
        await sender
