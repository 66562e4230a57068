"""Joins and indents lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from kornel.shared.visible import write_visibly


def join_lines(lines: Iterable[str]) -> str:
    """Returns *lines* joined by line breaks. A line break within a line is part of a name, and is written visibly."""
    return "\n".join(map(write_visibly, lines))


def indent_further(text: str) -> list[str]:
    """Returns the lines of *text*, a message from a core, with all but the first indented."""
    first, *further = text.split("\n")
    return [first, *(f"  {line}" for line in further)]
