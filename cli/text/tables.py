"""Lays rows out as text that fits a terminal, for all commands.

In a file or a pipe each row is one line, however long. In a terminal, a table that is too wide first loses the columns
that the caller can spare, then has its cells wrapped at blanks and long names shortened in the middle. If that is not
enough, each row is written as a block of lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeVar

from kornel.cli.text.screen import screen_columns, terminal_strokes
from kornel.shared.visible import write_visibly

SHORTEST_NAME: Final = 20
"""A word of at most this length, such as a time or an amount, is never shortened."""

_INDENT: Final = "  "
_GAP: Final = "  "

Rows = Sequence[Sequence[str]]
ItemT = TypeVar("ItemT")


def format_table(rows: Rows, spare: Sequence[str] = (), columns: int | None = None) -> Iterator[str]:
    """Yields the lines of *rows*, the heading first, with cells written visibly.

    *spare* names the columns that may be left out, in this order, if the terminal is too narrow. *columns* is the width
    of the terminal, by default of the one that standard output goes to.
    """
    rows = [[write_visibly(cell) for cell in row] for row in rows]
    limit = columns or screen_columns()
    left_out: list[str] = []
    widths = _fit_widths(rows, limit)
    for heading in spare:
        if widths is not None and widths == _full_widths(rows):
            break
        if heading in rows[0] and len(rows[0]) > 2:
            at = rows[0].index(heading)
            rows = [[*row[:at], *row[at + 1 :]] for row in rows]
            left_out.append(heading)
            widths = _fit_widths(rows, limit)
    if widths is None:
        assert limit is not None, "without a limit every width fits"
        yield from _write_blocks(rows, limit)
    else:
        for row in rows:
            yield from _write_row(row, widths)
    if left_out:
        yield from wrap_text(f"A wider terminal or --json also shows: {', '.join(left_out)}.", limit, _INDENT)


def list_items(
    items: Iterable[ItemT],
    cells: Mapping[str, Callable[[ItemT], str]],
    spare: Sequence[str] = (),
) -> Iterator[str]:
    """Yields the lines of a table with a row for each of *items*. *cells* has the heading of each column, and what
    makes its cell of an item."""
    return format_table(make_rows(items, cells), spare)


def make_rows(items: Iterable[ItemT], cells: Mapping[str, Callable[[ItemT], str]]) -> Rows:
    """Returns the rows of :func:`list_items`."""
    return [[*cells], *([make_cell(item) for make_cell in cells.values()] for item in items)]


def fit_table(make_rows: Callable[[int], Rows], bars: Sequence[int], spare: Sequence[str] = ()) -> Iterator[str]:
    """Yields the lines of the table that *make_rows* makes with the longest of the *bars* for which it fits."""
    limit = screen_columns()
    for bar in bars:
        rows = make_rows(bar)
        if limit is None or sum(_full_widths(rows)) + _blanks_between(rows) <= limit:
            break
    yield from format_table(rows, spare)


def wrap_text(text: str, columns: int | None = None, indent: str = "", hanging: str = "") -> list[str]:
    """Returns *text* in lines that fit the terminal, each beginning with *indent*, or as one line if there is no
    terminal. *hanging* indents all lines but the first further.

    A line break within *text* is part of a name. It is written visibly first, or the rest of the name would look like a
    line of its own.
    """
    text = write_visibly(text)
    limit = columns or screen_columns()
    if limit is None:
        return [indent + text]
    width = max(limit, len(indent) + 20)
    further = indent + hanging
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False) or [
        indent
    ]


def shorten_name(name: str, length: int) -> str:
    """Returns *name* in *length* characters: its beginning and its end, by which people tell names apart."""
    if len(name) <= length:
        return name
    mark = terminal_strokes().left_out
    head = (length - len(mark) + 1) // 2
    return name[:head] + mark + name[len(name) - (length - len(mark) - head) :]


def _full_widths(rows: Rows) -> list[int]:
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def _blanks_between(rows: Rows) -> int:
    return len(_INDENT) + len(_GAP) * (len(rows[0]) - 1)


def _fit_widths(rows: Rows, limit: int | None) -> list[int] | None:
    """Returns widths of the columns that fit *limit* together, made by narrowing the widest first; ``None`` if they
    cannot fit."""
    widths = _full_widths(rows)
    if limit is None:
        return widths
    words = [max(len(word) for row in rows for word in row[column].split(" ")) for column in range(len(widths))]
    least = [min(word, SHORTEST_NAME) for word in words]
    room = limit - _blanks_between(rows)
    while sum(widths) > room:
        narrower = [column for column, width in enumerate(widths) if width > least[column]]
        if not narrower:
            return None
        widest = max(narrower, key=lambda column: widths[column])
        widths[widest] -= 1
    return widths


def _write_row(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yields the lines of one row, as many as its tallest cell has."""
    cells = [_wrap_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
    for parts in zip_longest(*cells, fillvalue=""):
        padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
        yield (_INDENT + _GAP.join(padded)).rstrip()


def _wrap_cell(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    lines: list[str] = []
    for word in cell.split(" "):
        shortened = shorten_name(word, width)
        if lines and len(lines[-1]) + 1 + len(shortened) <= width:
            lines[-1] += f" {shortened}"
        else:
            lines.append(shortened)
    return lines


def _write_blocks(rows: Rows, limit: int) -> Iterator[str]:
    """Yields the lines of each row as a block: its first cell, and below it the other cells, each behind its
    heading."""
    heading, *others = rows
    for row in others:
        yield _INDENT + shorten_name(row[0], limit - len(_INDENT))
        pairs = [
            f"{name} {cell}".strip() for name, cell in zip(heading[1:], row[1:], strict=True) if cell not in ("", "-")
        ]
        yield from wrap_text(", ".join(pairs), limit, _INDENT * 3)
