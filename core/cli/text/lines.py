"""Joining and indenting of lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from kornel.core.service.visible import write_visibly


def join_lines(lines: Iterable[str]) -> str:
    """Returns *lines* below each other. A line break within one is written out: it is part of a name."""
    return "\n".join(map(write_visibly, lines))


def indent_further(text: str) -> list[str]:
    """Returns the lines of *text*, which a core wrote for people, all but the first indented."""
    first, *further = text.split("\n")
    return [first, *(f"  {line}" for line in further)]
