"""Makes bodies of answers in short turns, so that the engine, which shares the event loop, never waits long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import orjson

from kornel.core.rest.http.compression import PACKED_AT_ONCE, Body
from kornel.core.service.machine.loop_time import in_turns

T = TypeVar("T")


async def gather_items(items: Iterable[T | None]) -> list[T]:
    """Returns all *items* of a lazy iterable. An item ``None`` is left out and marks a place to pause."""
    return [item async for item in in_turns(items) if item is not None]


async def make_body(pieces: Iterable[bytes], *, compress: bool = False) -> Body:
    """Returns a body of *pieces*, each of which is made in turn."""
    body = Body(compress=compress)
    async for piece in in_turns(pieces):
        body.add(piece)
    body.end_body()
    return body


async def encode_list(documents: Iterable[Any], *, compress: bool = False) -> Body:
    """Returns a JSON list of *documents*, which are made and encoded in turns; it ends with a newline."""
    return await write_list(([orjson.dumps(document)] for document in documents), compress=compress)


async def write_list(items: Iterable[Iterable[bytes]], *, compress: bool = False) -> Body:
    """Returns a JSON list of *items*, each of which is JSON in pieces and made in turns; it ends with a newline."""
    return await make_body(_pieces_of_list(items), compress=compress)


def _pieces_of_list(items: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    opening = b"["
    for item in items:
        yield opening
        yield from item
        opening = b","
    yield b"]\n" if opening == b"," else b"[]\n"


async def gzip_chunks(chunks: Iterable[bytes]) -> Body:
    """Returns *chunks* as one gzip stream, unless they are too small."""
    pieces = (
        chunk[start : start + PACKED_AT_ONCE] for chunk in chunks for start in range(0, len(chunk), PACKED_AT_ONCE)
    )
    return await make_body(pieces, compress=True)
