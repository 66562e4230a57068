"""The ring of the newest entries and those who follow it (rest.md 4.2, 5; cases 42, 43, 45)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kornel.core.service.events.event_ring import ENTRY_SIZE, SMALL_PIECE, Missed, Ring
from tests.patience import PATIENCE_S


def ring_of(capacity: int, count: int) -> Ring[int]:
    """A ring in which *count* entries were stored, each its own number."""
    ring: Ring[int] = Ring(capacity)
    ring.append_entries(range(count))
    return ring


def test_a_ring_keeps_at_least_one_entry() -> None:
    with pytest.raises(ValueError, match="at least one entry, not 0"):
        Ring(0)
    ring = ring_of(1, 5)
    assert ring.get(4, 9) == [4]
    with pytest.raises(ValueError, match="at least one entry"):
        ring.resize(0)


@given(
    st.integers(1, 12),
    st.lists(
        st.one_of(
            st.tuples(st.just("extend"), st.integers(0, 40)),
            st.tuples(st.just("resize"), st.integers(1, 15)),
        ),
        max_size=25,
    ),
    st.data(),
)
def test_it_is_the_end_of_a_plain_list(capacity: int, steps: list[tuple[str, int]], data: st.DataObject) -> None:
    """Whatever is stored and however often it is resized, a list of everything and one number tell what it keeps."""
    ring: Ring[int] = Ring(capacity)
    stored: list[int] = []
    lowest = 0
    for step, number in steps:
        if step == "extend":
            fresh = list(range(len(stored), len(stored) + number))
            stored += fresh
            ring.append_entries(fresh)
        else:
            capacity = number
            ring.resize(capacity)
        lowest = max(lowest, len(stored) - capacity)
        assert (ring.lowest_id, ring.next_id, len(ring)) == (lowest, len(stored), len(stored) - lowest)
        assert ring.highest_id == max(0, len(stored) - 1)
        start, count = data.draw(st.integers(-2, len(stored) + 2)), data.draw(st.integers(0, 50))
        kept = lowest <= start < len(stored)
        assert ring.get(start, count) == (stored[start : start + count] if kept else None)
        assert stored[ring.newest_start(count) :] == stored[lowest:][max(0, len(stored) - lowest - count) :]


@given(
    st.integers(1, 3 * SMALL_PIECE),
    st.lists(
        st.tuples(st.sampled_from(["plain", "packed", "read", "resize"]), st.integers(1, 2 * SMALL_PIECE)),
        max_size=25,
    ),
)
def test_packed_entries_are_as_if_they_had_come_one_by_one(capacity: int, steps: list[tuple[str, int]]) -> None:
    """A record stands for three entries here, whether anybody read what lies around it or not."""

    def unpack(records: Iterable[int | tuple[int]]) -> list[int]:
        return [entry for r in records for entry in ((r,) if isinstance(r, int) else range(r[0], r[0] + 3))]

    ring: Ring[int] = Ring(capacity, unpack)
    known, lowest = 0, 0
    for step, number in steps:
        if step == "plain":
            ring.append_entries(range(known, known + number))
            known += number
        elif step == "packed":
            ring.append_packed([(first,) for first in range(known, known + 3 * number, 3)], 3 * number)
            known += 3 * number
        elif step == "read":
            start = lowest + number % (known - lowest + 1)
            kept = list(range(start, min(known, start + number)))
            assert ring.get(start, number) == (kept if start < known else None)
        else:
            capacity = number
            ring.resize(number)
        lowest = max(lowest, known - capacity)
        assert (ring.lowest_id, ring.next_id) == (lowest, known)
    assert (ring.get(lowest, known) or []) == list(range(lowest, known))


@given(st.integers(1, 20), st.integers(0, 30), st.lists(st.tuples(st.integers(0, 15), st.integers(1, 20)), max_size=30))
def test_a_reader_sees_everything_once_or_is_told_what_it_missed(
    capacity: int, before: int, steps: list[tuple[int, int]]
) -> None:
    """What was read and what was left out, together, is everything, in order."""
    ring = ring_of(capacity, before)
    reader = ring.subscribe(0)
    seen: list[int] = []
    overwritten: list[tuple[int, int]] = []
    for stored, limit in steps:
        ring.append_entries(range(ring.next_id, ring.next_id + stored))
        position = reader.position
        try:
            taken = reader.take_entries(limit)
            assert taken == list(range(position, position + len(taken)))
            assert len(taken) <= limit
            assert taken or position == ring.next_id
            seen += taken
        except Missed as missed:
            overwritten.append((missed.next_id, position))
            seen += range(position, position + reader.skip_missed())
    assert all(told == position for told, position in overwritten)
    assert seen == list(range(reader.position))


def test_a_reader_further_behind_than_its_bound_is_told_so() -> None:
    """The reason names both numbers; entries are still kept, so it may go on from where it was."""
    ring = ring_of(100, 0)
    reader = ring.subscribe(bound=5)
    ring.append_entries(range(5))
    assert reader.take_entries(1) == [0]
    ring.append_entries(range(5, 7))
    with pytest.raises(Missed, match="6 events behind, and 5 are allowed") as caught:
        reader.take_entries(1)
    assert caught.value.next_id == 1
    assert reader.skip_missed() == 0


async def test_news_comes_with_the_next_entry_and_not_before() -> None:
    ring = ring_of(10, 3)
    readers = [ring.subscribe() for _ in range(3)]
    waiting = [asyncio.ensure_future(reader.wait_for_news()) for reader in readers]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    ring.append_entries([])
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, True, False]
    ring.append_entries([3])
    await asyncio.wait_for(asyncio.gather(waiting[0], waiting[2]), PATIENCE_S)
    assert [reader.take_entries(9) for reader in readers] == [[3], [3], [3]]
    assert readers[0].behind == 0


async def test_one_that_starts_after_the_end_waits_for_its_entry() -> None:
    ring = ring_of(10, 3)
    reader = ring.subscribe(5)
    waiting = asyncio.ensure_future(reader.wait_for_news())
    ring.append_entries([3])
    await asyncio.sleep(0)
    assert not waiting.done()
    assert reader.take_entries(9) == []
    ring.append_entries([4, 5])
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert reader.take_entries(9) == [5]


def test_entries_that_take_much_memory_leave_fewer_of_them() -> None:
    """The bytes of a full ring are bounded, whatever its entries take; the newest piece always stays."""
    capacity = 10 * SMALL_PIECE
    ring: Ring[int] = Ring(capacity, measure=lambda records: 4 * ENTRY_SIZE * len(records))
    reader = ring.subscribe()
    for at in range(0, 2 * capacity, SMALL_PIECE):
        ring.append_entries(range(at, at + SMALL_PIECE))
    assert len(ring) <= capacity // 4 + SMALL_PIECE
    assert ring.highest_id == 2 * capacity - 1
    assert ring.get(ring.lowest_id, capacity) == list(range(ring.lowest_id, 2 * capacity))
    assert ring.get(ring.lowest_id - 1, 1) is None
    with pytest.raises(Missed):
        reader.take_entries(1)
    huge: Ring[int] = Ring(1, measure=lambda records: 10**9)
    huge.append_entries(range(SMALL_PIECE))
    huge.append_entries([SMALL_PIECE])
    assert huge.get(SMALL_PIECE, 1) == [SMALL_PIECE]


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(0, 3_000)), min_size=1, max_size=30))
def test_the_ring_keeps_as_much_as_its_bytes_allow(pieces: list[tuple[int, int]]) -> None:
    """Whatever entries come, those kept are the newest, without a gap, and no piece was dropped without need."""
    capacity = 1_000
    sizes: list[int] = []
    ring: Ring[int] = Ring(capacity, measure=lambda records: sum(sizes[at] for at in records))
    for count, size in pieces:
        sizes += [size] * count
        ring.append_entries(range(ring.next_id, ring.next_id + count))
        kept = ring.get(ring.lowest_id, capacity)
        assert kept == list(range(ring.lowest_id, len(sizes)))
        dropped = sizes[: ring.lowest_id]
        if len(sizes) - len(dropped) < capacity and dropped:
            # What was dropped last, with all that came after it, took too much.
            assert sum(sizes[max(0, len(dropped) - 600 - SMALL_PIECE) :]) > capacity * ENTRY_SIZE
