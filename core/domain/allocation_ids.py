"""IDs by which shims of the older generation know allocations: ``<key>-<instance>`` (protocol.md 3.2, 3.4).

One ask may mean several allocations that share its key; ``instance`` tells them apart. Everything else, an ask or
allocation of the current generation included, is instance 0 of its key.
"""

from __future__ import annotations

import re
from typing import Final

MOST_INSTANCES: Final = 10_000
"""The most allocations of one ask, bounded because each costs the core a record, while the message that asks for them
costs nothing."""

MOST_SHARING: Final = 50_000
"""The most requests of a partition that share the key of another one, bounded because an ask of a few bytes may make
ten thousand of them."""

_INSTANCE: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,3})", re.ASCII | re.DOTALL)


def allocation_id(key: str, instance: int) -> str:
    """Returns the ID of one allocation."""
    return f"{key}-{instance}"


def taken_apart(given: str) -> tuple[str, int] | None:
    """Returns the key and instance of an ID that :func:`allocation_id` may have made; ``None`` for any other text."""
    match = _INSTANCE.fullmatch(given)
    return None if match is None else (match[1], int(match[2]))
