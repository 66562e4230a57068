"""Chooses the event loop of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def loop_factory() -> LoopFactory | None:
    """Returns the factory of uvloop if it is installed; ``None``: the event loop of the standard library is used."""
    try:
        import uvloop  # noqa: PLC0415 - optional, so nothing else may import it
    except ImportError:
        return None
    return uvloop.new_event_loop
