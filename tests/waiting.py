"""Waits for a condition, which costs as little as it takes to come true; only a broken program reaches the limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final

from tests.patience import PATIENCE_S

FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.02


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str | Callable[[], str]) -> Any:
    """Returns what *condition* returns, or what it is awaited for, once that is true.

    Fails if that takes unreasonably long, and names *what* was waited for.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    pause_s = FIRST_PAUSE_S
    while True:
        found = condition()
        if isawaitable(found):
            found = await found
        if found:
            return found
        assert loop.time() < end_s, _describe(what)
        await asyncio.sleep(pause_s)
        pause_s = _lengthen(pause_s)


def wait_until(condition: Callable[[], Any], what: str | Callable[[], str]) -> Any:
    """Returns what *condition* returns once that is true. Fails as :func:`until` does."""
    end_s = time.monotonic() + PATIENCE_S
    pause_s = FIRST_PAUSE_S
    while not (found := condition()):
        assert time.monotonic() < end_s, _describe(what)
        time.sleep(pause_s)
        pause_s = _lengthen(pause_s)
    return found


def _lengthen(pause_s: float) -> float:
    """Returns the next pause: what has not come by now takes long, and a condition may cost more than the wait."""
    return min(pause_s * 1.2, LONGEST_PAUSE_S)


def _describe(what: str | Callable[[], str]) -> str:
    return f"waited {PATIENCE_S:g} s for {what if isinstance(what, str) else what()}"
