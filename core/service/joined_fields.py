"""Messages that are joined from text instead of being built, for entries that come by the thousand.

Text of ASCII characters has as many bytes as characters. So a message whose names are all ASCII is written as text with
one character for each byte, and encoded once. What is done for each entry is done by column, in C: neither an object of
protobuf nor a step of Python is spent on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Final

ENCODING: Final = "latin-1"
"""The encoding in which each byte is one character."""


class _Lengths(dict[int, str]):
    """The lengths that were written so far, each as characters for its bytes. Reading one that is missing adds it."""

    def __missing__(self, length: int) -> str:
        written, left = "", length
        while left > 0x7F:
            written += chr(left & 0x7F | 0x80)
            left >>= 7
        found = self[length] = written + chr(left)
        return found


_length_of: Final = _Lengths().__getitem__


def join_fields(*columns: tuple[str, Sequence[str]]) -> Iterator[str]:
    """Yields for each entry its fields: of each column the tag, of one character, and the entry's value with its length
    before it. The values are bytes, one character each."""
    parts = ((repeat(tag), map(_length_of, map(len, values)), values) for tag, values in columns)
    return map("".join, zip(*chain.from_iterable(parts), strict=False))
