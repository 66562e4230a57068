"""Which stream gets which response, and what waits while there is none."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationUpdated,
    AskReleased,
    Effect,
    NodeAccepted,
    NodeRejected,
    Released,
)
from kornel.core.domain.resources import NOTHING
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.streams.resuming import Kind
from kornel.core.service.streams.streams import HIGH_WATER, QUEUE_BYTES, QUEUE_LIMIT, Stream, Switchboard
from kornel.core.service.wire.status_codes import ResyncRequired
from tests.patience import PATIENCE_S


def allocated(key: str) -> Allocated:
    return Allocated(AllocationSpec(key, "app", "[rm-1]default", None), "n1", NOTHING)


def released(key: str) -> Released:
    return Released("[rm-1]default", "app", key, 1, "")


def nodes(*names: str) -> list[Effect]:
    return [NodeAccepted(name) for name in names]


@pytest.fixture
def metrics() -> ServiceMetrics:
    return ServiceMetrics()


@pytest.fixture
def board(metrics: ServiceMetrics) -> Switchboard:
    """A switchboard of a registered manager, with room for ten entries per lane."""
    board = Switchboard(metrics, queue_limit=10)
    board.note_registered("rm-1")
    return board


def bound(board: Switchboard, kind: Kind = Kind.NODE) -> Stream:
    stream = board.open(kind)
    board.bind(stream, "rm-1")
    return stream


def taken(board: Switchboard, stream: Stream, limit: int = 100) -> list[object] | None:
    batch = board.take_batch(stream, limit)
    return None if batch is None else list(batch.entries)


def test_the_older_stream_takes_over_when_the_newer_ends(board: Switchboard) -> None:
    """The most recently bound live stream receives; nothing is lost when it goes."""
    older, newer = bound(board), bound(board)
    board.deliver_effects(nodes("a"))
    board.close(newer)
    assert taken(board, older) == nodes("a")


def test_kinds_do_not_mix(board: Switchboard) -> None:
    """Each response goes to the stream of its kind (1.1)."""
    node, application, allocation = (bound(board, kind) for kind in (Kind.NODE, Kind.APPLICATION, Kind.ALLOCATION))
    update = ApplicationUpdated("app", "Running", 1, "")
    board.deliver_effects([allocated("k"), update, NodeRejected("n", "node-exists: n")])
    assert taken(board, node) == [NodeRejected("n", "node-exists: n")]
    assert taken(board, application) == [update]
    assert taken(board, allocation) == [allocated("k")]


def test_a_message_holds_one_list_and_order_is_kept(board: Switchboard) -> None:
    """new, released, dropped asks and the two kinds of rejections never share a message (15)."""
    stream = bound(board, Kind.ALLOCATION)
    refused = [AllocationRejected(key, "app", "r", legacy) for key, legacy in (("1", False), ("2", True))]
    dropped = AskReleased("[rm]default", "app", "p", 2, "")
    effects: list[Effect] = [allocated("a"), allocated("b"), dropped, released("c"), allocated("d"), *refused]
    board.deliver_effects(effects)
    messages = []
    while (batch := taken(board, stream)) is not None:
        messages.append(batch)
    assert messages == [effects[0:2], *([effect] for effect in effects[2:])]


def test_a_message_is_bounded(board: Switchboard) -> None:
    """A run that is longer than a message may be goes out in several."""
    stream = bound(board)
    board.deliver_effects(nodes("a", "b", "c"))
    assert taken(board, stream, 2) == nodes("a", "b")
    assert taken(board, stream, 2) == nodes("c")


def test_what_could_not_be_sent_is_kept_in_order(board: Switchboard) -> None:
    """Entries of a write that failed come first on the next stream."""
    broken = bound(board)
    board.deliver_effects(nodes("a", "b"))
    batch = board.take_batch(broken)
    assert batch is not None
    board.deliver_effects(nodes("c"))
    board.give_back(broken, batch, start=1)
    board.close(broken)
    assert taken(board, bound(board)) == nodes("b", "c")


def test_nothing_is_given_back_behind_what_was_sent_since(board: Switchboard) -> None:
    """Once another stream has read on, old entries would come out of order, so they are not sent again."""
    slow = bound(board)
    board.deliver_effects(nodes("a"))
    batch = board.take_batch(slow)
    assert batch is not None
    newer = bound(board)
    board.deliver_effects(nodes("b"))
    assert taken(board, newer) == nodes("b")
    board.give_back(slow, batch)
    assert board.take_batch(newer) is None


def test_registration_throws_old_responses_away(board: Switchboard, metrics: ServiceMetrics) -> None:
    """Neither queued nor given-back responses of the old registration reach the new one (5.2, DB-4)."""
    stream = bound(board)
    board.deliver_effects(nodes("a", "b"))
    batch = board.take_batch(stream, 1)
    assert batch is not None
    board.note_registered("rm-1")
    board.give_back(stream, batch)
    board.deliver_effects(nodes("new"))
    assert taken(board, stream) == nodes("new")
    assert metrics.entries_dropped == 1


def test_streams_of_another_manager_get_nothing(board: Switchboard) -> None:
    """After the core changed hands only streams of its new manager receive."""
    old = bound(board)
    board.note_registered("")
    board.note_registered("rm-2")
    board.deliver_effects(nodes("a"))
    assert board.take_batch(old) is None
    new = board.open(Kind.NODE)
    board.bind(new, "rm-2")
    assert taken(board, new) == nodes("a")


def test_overflow_drops_everything_and_asks_for_a_new_registration(board: Switchboard, metrics: ServiceMetrics) -> None:
    """Past the limit the queue is dropped, every stream ends resync-required, until the manager registers (1.1)."""
    live = bound(board, Kind.APPLICATION)
    board.deliver_effects(nodes(*"abcdefghij"))
    assert not live.ending
    board.deliver_effects(nodes("k"))
    assert live.ending
    assert isinstance(live.error, ResyncRequired)
    for kind in Kind:
        with pytest.raises(ResyncRequired, match=r"^resync-required"):
            board.bind(board.open(kind), "rm-1")
    board.deliver_effects(nodes("lost"))
    assert (metrics.response_overflows, metrics.queued_entries) == (1, 0)
    board.note_registered("rm-1")
    board.deliver_effects(nodes("new"))
    assert taken(board, bound(board)) == nodes("new")


def test_an_ending_stream_sends_what_waited_and_no_more(board: Switchboard) -> None:
    """A half-closed stream delivers what was queued when its turn came, then ends well (1.1)."""
    stream = bound(board)
    board.deliver_effects(nodes("a"))
    board.end_stream(stream, None)
    board.deliver_effects(nodes("b"))
    assert taken(board, stream) == nodes("a")
    assert board.take_batch(stream) is None
    assert stream.ending
    assert stream.error is None
    board.close(stream)
    assert taken(board, bound(board)) == nodes("b")


def test_the_first_end_counts(board: Switchboard) -> None:
    """A stream that ends with an error does not end well because its client half-closed after that."""
    stream = bound(board)
    error = ResyncRequired("x")
    board.end_stream(stream, error)
    board.end_stream(stream, None)
    assert stream.error is error


async def test_readers_wait_while_responses_pile_up() -> None:
    """A client that does not read is not read from, until half of what waits is gone (DB-13)."""
    board = Switchboard(ServiceMetrics())
    board.note_registered("rm-1")
    stream = bound(board)
    await asyncio.wait_for(board.wait_for_room(stream), PATIENCE_S)
    board.deliver_effects(nodes(*(str(n) for n in range(HIGH_WATER))))
    waiting = asyncio.create_task(board.wait_for_room(stream))
    await asyncio.sleep(0)
    board.take_batch(stream, 10)
    await asyncio.sleep(0)
    assert not waiting.done()
    board.take_batch(stream, HIGH_WATER // 2)
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_readers_wait_while_long_responses_pile_up() -> None:
    """Of long ones fewer wait, and a message has fewer of them."""
    board = Switchboard(ServiceMetrics())
    board.note_registered("rm-1")
    stream = bound(board)
    long = [f"{number}" + "\U0001f600" * 1_000 for number in range(8_000)]
    for start in range(0, 8_000, 100):
        board.deliver_effects(nodes(*long[start : start + 100]))
        waiting = asyncio.create_task(board.wait_for_room(stream))
        await asyncio.sleep(0)
        if not waiting.done():
            break
    assert 4_000 < start < 6_000, "the first thousand, and 16 MiB of 4 KB each"
    sizes = []
    while not waiting.done():
        batch = taken(board, stream, 5_000)
        assert batch
        sizes.append(len(batch))
        await asyncio.sleep(0)
    assert max(sizes) < 3_000
    while taken(board, stream, 5_000):
        pass
    board.deliver_effects(nodes(*long[:1_000]))
    await asyncio.wait_for(board.wait_for_room(stream), PATIENCE_S)


def test_long_responses_that_nobody_reads_are_dropped_by_their_size() -> None:
    board = Switchboard(ServiceMetrics(), queue_bytes=8 << 20)
    board.note_registered("rm-1")
    for number in range(40):
        board.deliver_effects([NodeRejected(f"{number}-{n}", "x" * 1_000) for n in range(100)])
    stream = bound(board)
    board.deliver_effects([AllocationRejected(f"{n}", "app", "x" * 1_000, False) for n in range(6_000)])
    assert "more than 1048576 responses or 8 MiB of them" in str(stream.error)
    with pytest.raises(ResyncRequired):
        bound(board)


@pytest.mark.long
def test_a_million_states_that_nobody_reads_cost_less_than_is_allowed() -> None:
    """They reach the limit of their number first: 1,048,576 states of applications (1.1)."""
    board = Switchboard(ServiceMetrics())
    board.note_registered("rm-1")
    tracemalloc.start()
    for turn in range(20):
        board.deliver_effects(
            [
                ApplicationUpdated(f"application-{n % 100}", "Running", turn, "", "[rm-1]default", "root.a", "u", 1)
                for n in range(5_000)
            ]
        )
    each = tracemalloc.get_traced_memory()[0] / 100_000
    tracemalloc.stop()
    assert each * QUEUE_LIMIT < QUEUE_BYTES


def test_entries_are_gone_once_the_transport_has_them(board: Switchboard) -> None:
    """A run that is being written is not gone, what is given back neither, and what was written of it is."""
    stream = bound(board)
    board.deliver_effects(nodes("a", "b", "c"))
    batch = board.take_batch(stream, 2)
    assert batch is not None
    assert (sum(board.count_entered()), sum(board.count_gone())) == (3, 0)
    board.give_back(stream, batch, 1)
    assert sum(board.count_gone()) == 1
    rest = board.take_batch(stream)
    assert rest is not None
    board.note_sent(stream, rest, 2)
    assert board.count_gone() == board.count_entered()


def test_dropped_entries_are_gone_only_with_a_registration(board: Switchboard) -> None:
    """Until then the manager has to hear that it missed some; a run that was being written then counts once."""
    stream = bound(board)
    board.deliver_effects(nodes("a", "b"))
    batch = board.take_batch(stream, 1)
    assert batch is not None
    board.deliver_effects(nodes(*map(str, range(20))))
    assert board.count_gone() != board.count_entered()
    board.note_registered("rm-1")
    assert board.count_gone() == board.count_entered()
    board.note_sent(stream, batch, 1)
    assert board.count_gone() == board.count_entered()
