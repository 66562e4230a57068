"""Writes amounts as people read them, and draws bars that show how much of something is used."""

from __future__ import annotations

from typing import Final, NamedTuple

from kornel.shared.readable_amounts import format_quantities, format_quantity, types_in_order

__all__ = [
    "ASCII", "UNICODE", "Strokes", "draw_bar", "format_percent", "format_quantities", "format_quantity", "strokes_for",
    "types_in_order",
]  # fmt: skip


class Strokes(NamedTuple):
    """The characters with which bars and trees are drawn."""

    full: str
    empty: str
    mark: str
    branch: str
    last: str
    pass_by: str
    left_out: str
    """The character that replaces the middle of a name that is too long."""


UNICODE: Final = Strokes("█", "░", "│", "├─ ", "└─ ", "│  ", "…")
ASCII: Final = Strokes("#", ".", "|", "|- ", "`- ", "|  ", "~")


def strokes_for(encoding: str | None) -> Strokes:
    """Returns the strokes that a terminal with *encoding* can show."""
    try:
        "".join(UNICODE).encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE


def draw_bar(used: int, whole: int, width: int, strokes: Strokes, mark: int | None = None) -> str:
    """Returns a bar for *used* of *whole* in *width* columns; any amount above 0 fills at least one. *mark*: an amount
    to be marked."""
    cells = [strokes.empty] * width
    if not width:
        return ""
    if used > 0:
        filled = width if whole <= 0 else max(1, min(width, used * width // whole))
        cells[:filled] = [strokes.full] * filled
    if mark is not None and mark > 0 and whole > 0:
        cells[min(width - 1, mark * width // whole)] = strokes.mark
    return "".join(cells)


def format_percent(used: int, whole: int) -> str:
    """Returns *used* of *whole* in whole percent; ``-`` if *whole* is 0."""
    return f"{used * 100 // whole}%" if whole > 0 else "-"
