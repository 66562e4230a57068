"""Everything that can be reached from an object, as one text: two equal texts, and nothing was changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

_PLAIN: Final = (int, float, str, bytes, bool, type(None), Enum, type)

_MEMOS: Final = {"_named", "counted_rooms", "dues"}
"""What was worked out once and depends on nothing that changes, or only until something is booked, or that the audit
compares with what it depends on: no trace of who looked."""


def digest(root: object, left_out: frozenset[str] = frozenset()) -> str:
    """Of all values, their order and who holds whom; two objects with equal parts are not the same object.

    *left_out*: attributes that are not looked at.
    """
    seen: dict[int, int] = {}
    kept: list[object] = []
    text = hashlib.sha256()
    stack = [root]
    while stack:
        found = stack.pop()
        if isinstance(found, _PLAIN):
            text.update(f"{found!r};".encode())
            continue
        if id(found) in seen:
            text.update(f"#{seen[id(found)]};".encode())
            continue
        seen[id(found)] = len(seen)
        kept.append(found)
        text.update(f"{type(found).__name__}(".encode())
        stack.extend(_parts(found, left_out))
    return text.hexdigest()


def _parts(found: Any, left_out: frozenset[str]) -> Iterator[object]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from (key, value)
    elif isinstance(found, (list, tuple)) or hasattr(found, "popleft"):
        yield from found
    elif isinstance(found, (set, frozenset)):
        yield from sorted(found, key=repr)
    elif isinstance(found, partial):
        yield from (found.func, *found.args)
    elif callable(found) and hasattr(found, "__qualname__"):
        yield found.__qualname__
        yield getattr(found, "__self__", None)
    else:
        for name in _attributes(found):
            if name not in left_out and hasattr(found, name):
                yield name
                yield getattr(found, name)


def _attributes(found: object) -> list[str]:
    slots = [name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())]
    return sorted({*slots, *getattr(found, "__dict__", {})} - {"__weakref__", "__dict__"} - _MEMOS)


def find_difference(one: object, other: object, left_out: frozenset[str] = frozenset()) -> str:
    """Returns where two objects differ that have different digests: the way there, and both sides; empty: nowhere."""
    seen: dict[int, int] = {}
    again: dict[int, int] = {}
    kept: list[object] = []
    ways: list[str] = []
    stack: list[tuple[str, object, object]] = [("", one, other)]
    while stack:
        way, left, right = stack.pop()
        if isinstance(left, _PLAIN) or isinstance(right, _PLAIN):
            if repr(left) != repr(right):
                return f"{way}: {left!r}, and {right!r}"
            continue
        if seen.get(id(left)) != again.get(id(right)):
            met = ways[seen.get(id(left), again.get(id(right), 0))]
            return f"{way}: {left!r}, and {right!r}: only one of them was met before, at {met}"
        if id(left) in seen:
            continue
        seen[id(left)] = again[id(right)] = len(seen)
        ways.append(way)
        kept += (left, right)
        lefts, rights = list(_parts(left, left_out)), list(_parts(right, left_out))
        if type(left) is not type(right) or len(lefts) != len(rights):
            return f"{way}: {left!r} with {len(lefts)} parts, and {right!r} with {len(rights)}"
        name = ""
        for at, (mine, theirs) in enumerate(zip(lefts, rights, strict=True)):
            named = (
                hasattr(left, mine) if isinstance(mine, str) and not isinstance(left, (Mapping, list, tuple)) else False
            )
            step = f"{way}.{name}" if name else f"{way}[{at}]"
            name = mine if named else ""
            stack.append((step, mine, theirs))
    return ""
