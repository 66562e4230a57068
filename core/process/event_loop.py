"""The choice of the event loop that a process of ours runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def loop_factory() -> LoopFactory | None:
    """Returns uvloop's factory, where it is installed; ``None`` means the standard library's."""
    try:
        import uvloop  # noqa: PLC0415 - optional, so nothing else may import it
    except ImportError:
        return None
    return uvloop.new_event_loop
