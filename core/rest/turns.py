"""Long answers in short turns, so that the engine, which shares the event loop, is never kept waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import orjson

SLICE_S: Final = 0.002

T = TypeVar("T")


class Turns:
    """Call :meth:`breathe` often: whenever *slice_s* have passed, it lets everybody else have a turn."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._began = time.perf_counter()

    def over(self) -> bool:
        """Whether this turn has lasted long enough."""
        return time.perf_counter() - self._began >= self._slice_s

    async def breathe(self) -> None:
        """Let others have a turn if this one is over."""
        if self.over():
            await asyncio.sleep(0)
            self._began = time.perf_counter()


async def gather(items: Iterable[T]) -> list[T]:
    """All *items* of a lazy iterable."""
    turns = Turns()
    found: list[T] = []
    for item in items:
        found.append(item)
        await turns.breathe()
    return found


async def encode_list(documents: Iterable[Any]) -> list[bytes]:
    """A JSON list of *documents*, each made and encoded in its turn; ends with a newline."""
    turns = Turns()
    chunks: list[bytes] = []
    opening = b"["
    for document in documents:
        chunks.append(opening)
        chunks.append(orjson.dumps(document))
        opening = b","
        await turns.breathe()
    chunks.append(b"]\n" if chunks else b"[]\n")
    return chunks
