"""Joins messages from texts and does not build them, for entries that come by the thousand.

Text of ASCII characters has as many bytes as characters. Therefore a message whose names are all ASCII can be written
as text with one character for each byte, and encoded once. The work for the entries is done column by column in C, so
it needs neither an object of protobuf nor a step of Python for each entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Final

ENCODING: Final = "latin-1"
"""The encoding in which each byte is one character."""


class _Lengths(dict[int, str]):
    """The lengths used so far, each as the characters for its encoded bytes. Reading a missing length adds it."""

    def __missing__(self, length: int) -> str:
        written, left = "", length
        while left > 0x7F:
            written += chr(left & 0x7F | 0x80)
            left >>= 7
        found = self[length] = written + chr(left)
        return found


_length_of: Final = _Lengths().__getitem__


def join_fields(*columns: tuple[str, Sequence[str]]) -> Iterator[str]:
    """Yields the fields of each entry: for each column the tag, which is one character, then the length of the entry's
    value and the value. The values are bytes, with one character for each byte."""
    parts = ((repeat(tag), map(_length_of, map(len, values)), values) for tag, values in columns)
    return map("".join, zip(*chain.from_iterable(parts), strict=False))
