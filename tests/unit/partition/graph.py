"""Everything that can be reached from an object, as one text: two equal texts, and nothing was changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

_PLAIN: Final = (int, float, str, bytes, bool, type(None), Enum, type)

_MEMOS: Final = {"_named", "counted_rooms"}
"""What was worked out once and depends on nothing that changes, or that the audit compares with what it depends on: no
trace of who looked."""


def digest(root: object) -> str:
    """Of all values, their order and who holds whom; two objects with equal parts are not the same object."""
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
        stack.extend(_parts(found))
    return text.hexdigest()


def _parts(found: Any) -> Iterator[object]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from (key, value)
    elif isinstance(found, (list, tuple)) or hasattr(found, "popleft"):
        yield from found
    elif isinstance(found, (set, frozenset)):
        yield from sorted(found, key=repr)
    elif callable(found) and hasattr(found, "__qualname__"):
        yield found.__qualname__
        yield getattr(found, "__self__", None)
    else:
        for name in _attributes(found):
            if hasattr(found, name):
                yield name
                yield getattr(found, name)


def _attributes(found: object) -> list[str]:
    slots = [name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())]
    return sorted({*slots, *getattr(found, "__dict__", {})} - {"__weakref__", "__dict__"} - _MEMOS)
