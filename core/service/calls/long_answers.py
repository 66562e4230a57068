"""Bounds the work and the memory of long answers, of gRPC and of HTTP, each of which has a line of its own.

A few answers of a line are made at a time, in short steps, and others wait: if all were made side by side, each turn of
the event loop would have a step of each, and health checks would have to wait for all of them. Answers over HTTP that
clients have not read completely share a budget. When it is used up, an answer that has been sent for long is aborted
for a new one, however quickly its client reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from kornel.core.service.machine.loop_time import WaitingLine, in_turns

MOST_BYTES: Final = 24 * 2**20
"""The most bytes of answers that were made and not read completely yet. A single answer may be longer."""

COUNTED_FROM: Final = 64 * 1024
"""The size from which an answer counts; shorter answers are bounded by the number of connections."""

MADE_AT_ONCE: Final = 2
MOST_WAITING: Final = 64
"""The most requests for long answers over HTTP that wait for others."""

MOST_PAGES: Final = 256
"""The most callers that wait for a page: as many as the calls that a security file allows one connection by default."""

PATIENCE_S: Final = 5.0
"""The time for which an answer may be sent although others wait for its room."""

MOST_FILLED: Final = 3 * 2**20
"""The most bytes of the entries in an answer of gRPC: callers accept 4 MiB unless they say otherwise."""

STEP_S: Final = 0.001
"""The time for which entries of a page are examined and encoded before others get their turn."""

ItemT = TypeVar("ItemT")
EncodedT = TypeVar("EncodedT")
MessageT = TypeVar("MessageT", bound=Message)


class ListPage(NamedTuple, Generic[ItemT, EncodedT]):
    """The entries of one answer. ``last``: the last of them; ``None``: there are none. ``more``: others follow."""

    encoded: list[EncodedT]
    last: ItemT | None
    more: bool


async def fill_answer(entries: Iterable[MessageT]) -> list[MessageT]:
    """Returns the first of *entries*, at most as many as an answer of gRPC has room for, but at least one."""
    filled: list[MessageT] = []
    size = 0
    async for entry in in_turns(entries, STEP_S):
        size += entry.ByteSize() + 8
        if filled and size > MOST_FILLED:
            break
        filled.append(entry)
    return filled


class _Held:
    def __init__(self, size: int, since: float, abort: Callable[[], None] | None) -> None:
        self.size = size
        self.since = since
        self.abort = abort


class LongAnswers:
    """Bounds the long answers of one line: *at_once* are made at a time, and *waiting* callers wait. ``held``: the
    bytes of long answers that are being sent."""

    def __init__(self, at_once: int = MADE_AT_ONCE, waiting: int = MOST_WAITING) -> None:
        self.held = 0
        self._on_their_way: dict[_Held, None] = {}
        self._line = WaitingLine(
            at_once + waiting, "too many long answers are being made; try again later", at_once=at_once
        )
        self._less = asyncio.Event()

    @asynccontextmanager
    async def count_making(self) -> AsyncIterator[None]:
        """Counts a long answer as being made. Raises TooMany if many wait for that already."""
        async with self._line.take_turn():
            await self._make_room()
            yield

    async def make_page(
        self,
        items: Callable[[], Iterable[ItemT]],
        size: int,
        encode: Callable[[ItemT], EncodedT],
        test: Callable[[ItemT], bool] = lambda item: True,
    ) -> ListPage[ItemT, EncodedT]:
        """Returns the first *size* of *items* that pass *test*. *items* is called when it is this page's turn. Raises
        TooMany as :meth:`count_making` does."""
        encoded: list[EncodedT] = []
        last: ItemT | None = None
        more = False

        def fill_page() -> Iterator[None]:
            nonlocal last, more
            for item in items():
                if test(item):
                    more = len(encoded) == size
                    if more:
                        return
                    encoded.append(encode(item))
                    last = item
                yield

        async with self.count_making():
            async for _ in in_turns(fill_page(), STEP_S):
                pass
        return ListPage(encoded, last, more)

    @contextmanager
    def on_its_way(self, size: int, abort: Callable[[], None] | None) -> Iterator[None]:
        """Counts an answer of *size* bytes as being sent. *abort* ends its connection."""
        if size < COUNTED_FROM:
            yield
            return
        held = _Held(size, asyncio.get_running_loop().time(), abort)
        self._on_their_way[held] = None
        self.held += size
        try:
            yield
        finally:
            self._let_go(held)

    async def _make_room(self) -> None:
        """Waits until the bytes that are being sent are within the budget. Aborts answers whose time is over."""
        loop = asyncio.get_running_loop()
        while self.held >= MOST_BYTES:
            oldest = next(iter(self._on_their_way))
            left = oldest.since + PATIENCE_S - loop.time()
            if left <= 0:
                self._let_go(oldest)
                if oldest.abort is not None:
                    oldest.abort()
                continue
            self._less.clear()
            timer = loop.call_later(left, self._less.set)
            await self._less.wait()
            timer.cancel()

    def _let_go(self, held: _Held) -> None:
        if held in self._on_their_way:
            del self._on_their_way[held]
            self.held -= held.size
            self._less.set()
