"""Reads what a shim says about its own state: JSON of any form, which is bounded before it is parsed.

A parsed value takes up to thirty times the memory of its text, so long texts and those with very many values are
refused. A thread reads it, so that other work goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from kornel.core.domain.secrets import value_without_secrets
from kornel.core.service.callbacks.callback_board import CallbackBoard, NoStateDump

LONGEST_DUMP: Final = 16 * 2**20
"""The most characters of a shim's state."""

MOST_VALUES: Final = 500_000
"""The most commas and opening brackets in it, those in texts included."""

DEEPEST: Final = 100
"""The most objects and lists within one another. JSON is not written much deeper than that."""

LONGEST_TEXT: Final = 256 * 2**10
"""The most characters of one text in it. A longer one is left out whole, as a part of it might end within a secret."""


class BadStateDump(NoStateDump):
    """The shim answered, but its answer cannot be shown; the text says why."""


async def read_state_dump(callbacks: CallbackBoard) -> dict[str, Any]:
    """Returns the state of the shim as it describes it, without secrets; if it is cancelled, only once the thread has
    ended, so that the caller keeps its place in line. Raises :class:`NoStateDump`."""
    reading = asyncio.ensure_future(asyncio.to_thread(read_dump, await callbacks.state_dump()))
    try:
        return await asyncio.shield(reading)
    finally:
        await asyncio.wait([reading])


def read_dump(text: str) -> dict[str, Any]:
    """Returns the JSON object in *text*, without secrets. Raises :class:`BadStateDump`."""
    if len(text) > LONGEST_DUMP:
        raise BadStateDump(f"the shim's answer has {len(text):,} characters, at most {LONGEST_DUMP:,}")
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise BadStateDump(f"the shim's answer has more than {MOST_VALUES:,} values")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadStateDump(f"the shim's answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadStateDump(f"the shim's answer is not a JSON object but a {type(value).__name__}")
    _hide_secrets(value)
    return value


def _hide_secrets(document: dict[str, Any]) -> None:
    """Hides the secrets of *document* in place. Raises :class:`BadStateDump` if it is nested too deeply."""
    left: list[tuple[dict[str, Any] | list[Any], int]] = [(document, 1)]
    while left:
        container, depth = left.pop()
        if depth > DEEPEST:
            raise BadStateDump(f"the shim's answer has more than {DEEPEST} objects and lists within one another")
        named = container.items() if isinstance(container, dict) else (("", item) for item in container)
        for at, (name, item) in enumerate(named):
            if isinstance(item, str):
                container[name if isinstance(container, dict) else at] = _show_text(name, item)  # type: ignore[index]
            elif isinstance(item, dict | list) and item:
                left.append((item, depth + 1))


def _show_text(name: str, text: str) -> str:
    """Returns *text*, the value called *name*, as it may be shown: in a time that is bounded whatever their lengths."""
    longest = max(len(name), len(text))
    return value_without_secrets(name, text) if longest <= LONGEST_TEXT else f"[{len(text):,} characters, left out]"
