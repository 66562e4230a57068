"""Text of the sources as Markdown."""

from __future__ import annotations

import re
from typing import Final

_SPECIAL: Final = re.compile(r"[\[\]*_|<]")


def escaped(text: str) -> str:
    """*text* shown as it is, code between backticks aside."""
    pieces = text.split("`")
    # An odd number of backticks is no code at all.
    if len(pieces) % 2 == 0:
        return _SPECIAL.sub(_escape, text.replace("`", "\\`"))
    return "`".join(piece if index % 2 else _SPECIAL.sub(_escape, piece) for index, piece in enumerate(pieces))


def cell(text: str) -> str:
    """The same in one line, for a table."""
    shown = escaped(" ".join(text.split()))
    return re.sub(r"(?<!\\)\|", r"\\|", shown)


def table(*titles: str) -> tuple[str, str]:
    """The first two lines of a table; an empty title is allowed."""
    return f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"


def _escape(found: re.Match[str]) -> str:
    return "&lt;" if found[0] == "<" else f"\\{found[0]}"
