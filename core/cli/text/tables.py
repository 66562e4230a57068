"""Rows as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kornel.core.service.visible import write_visibly


def format_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields *rows*, the heading first, in columns as wide as they have to be. Cells are written visibly."""
    rows = [[write_visibly(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
