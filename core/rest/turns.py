"""Long answers in short turns, so that the engine, which shares the event loop, is never kept waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import orjson

SHORTEST_S: Final = 0.004
LONGEST_S: Final = 0.03
"""A turn lasts as long as the others took for theirs, within these bounds: a long answer gets half of the time."""

CLOCK_EVERY: Final = 8
"""Items between two looks at the clock."""

T = TypeVar("T")


class Turns:
    """Call :meth:`over` often, and :meth:`pause` when it says so."""

    def __init__(self) -> None:
        self._ends = time.perf_counter() + SHORTEST_S

    def over(self) -> bool:
        """Whether this turn has lasted long enough."""
        return time.perf_counter() >= self._ends

    async def pause(self) -> None:
        """Let everybody else have a turn."""
        began = time.perf_counter()
        await asyncio.sleep(0)
        now = time.perf_counter()
        self._ends = now + min(max(now - began, SHORTEST_S), LONGEST_S)


async def gather(items: Iterable[T]) -> list[T]:
    """All *items* of a lazy iterable."""
    turns = Turns()
    found: list[T] = []
    for number, item in enumerate(items):
        found.append(item)
        if not number % CLOCK_EVERY and turns.over():
            await turns.pause()
    return found


async def encode_list(documents: Iterable[Any]) -> list[bytes]:
    """A JSON list of *documents*, each made and encoded in its turn; ends with a newline."""
    turns = Turns()
    chunks: list[bytes] = []
    opening = b"["
    for number, document in enumerate(documents):
        chunks.append(opening)
        chunks.append(orjson.dumps(document))
        opening = b","
        if not number % CLOCK_EVERY and turns.over():
            await turns.pause()
    chunks.append(b"]\n" if chunks else b"[]\n")
    return chunks
