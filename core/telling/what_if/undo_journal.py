"""Changes to live records that are taken back exactly: the same values in the same places, in the same order.

Three kinds of change are allowed, each with an inverse that leaves no trace: another value in an attribute, another
number in a vector, a new last entry in a map. Removing from a map is not among them, since coming back an entry would
stand last; put another map into the attribute instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from kornel.core.model.shapes import Pairs, Vector


class Journal:
    """Use as a context: whatever was changed through it is undone at the end, also after an error."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def set(self, record: Any, attribute: str, value: object) -> None:
        """Another *value* in an attribute; the old object comes back as it is."""
        self._undo.append(partial(setattr, record, attribute, getattr(record, attribute)))
        setattr(record, attribute, value)

    def add(self, vector: Vector, pairs: Pairs, sign: int = 1) -> None:
        """Every amount of *pairs*, or with *sign* -1 its opposite, on top of *vector*."""
        for t, amount in pairs:
            self._undo.append(partial(vector.__setitem__, t, vector[t]))
            vector[t] += sign * amount

    def insert(self, entries: dict[Any, Any], key: Any) -> None:
        """A new last *key*, without a value, in a map used as an ordered set. A key that is there stays."""
        if key not in entries:
            self._undo.append(partial(entries.__delitem__, key))
            entries[key] = None
