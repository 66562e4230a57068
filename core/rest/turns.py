"""Makes long answers in short turns, so that the engine, which shares the event loop, never waits long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import orjson

from kornel.core.rest.compression import PACKED_AT_ONCE, Body
from kornel.core.service.machine.loop_time import STEP_S, Sharing

CLOCK_EVERY: Final = 8
"""The number of items between two readings of the clock."""

T = TypeVar("T")


class Turns:
    """Turns of at most *step_s* seconds. Call :meth:`is_over` often, and :meth:`pause_reading` when it returns true."""

    def __init__(self, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self._sharing = Sharing.of_loop()
        self._began = time.perf_counter()

    def is_over(self) -> bool:
        """Tells whether this turn has lasted long enough."""
        return time.perf_counter() - self._began >= self._step_s

    async def pause_reading(self) -> None:
        """Lets other tasks use the event loop, and begins the next turn."""
        with self._sharing.count_reading():
            await self._sharing.pause_after(time.perf_counter() - self._began)
        self._began = time.perf_counter()


async def gather_items(items: Iterable[T | None]) -> list[T]:
    """Returns all *items* of a lazy iterable. An item ``None`` is left out and marks a place to pause."""
    turns = Turns()
    found: list[T] = []
    for number, item in enumerate(items):
        if item is not None:
            found.append(item)
        if (item is None or not number % CLOCK_EVERY) and turns.is_over():
            await turns.pause_reading()
    return found


async def encode_list(documents: Iterable[Any], *, compress: bool = False) -> Body:
    """Returns a JSON list of *documents*, which are made and encoded in turns; it ends with a newline."""
    return await write_list(([orjson.dumps(document)] for document in documents), compress=compress)


async def write_list(items: Iterable[Iterable[bytes]], *, compress: bool = False) -> Body:
    """Returns a JSON list of *items*, each of which is JSON in pieces and made in turns; it ends with a newline."""
    turns = Turns()
    body = Body(compress=compress)
    opening = b"["
    for item in items:
        body.add(opening)
        opening = b","
        for piece in item:
            body.add(piece)
            if turns.is_over():
                await turns.pause_reading()
    body.add(b"]\n" if opening == b"," else b"[]\n")
    body.end_body()
    return body


async def gzip_chunks(chunks: Iterable[bytes]) -> Body:
    """Returns *chunks* as one gzip stream, unless they are too small."""
    turns = Turns()
    body = Body(compress=True)
    for chunk in chunks:
        for start in range(0, len(chunk), PACKED_AT_ONCE):
            body.add(chunk[start : start + PACKED_AT_ONCE])
            if turns.is_over():
                await turns.pause_reading()
    body.end_body()
    return body
