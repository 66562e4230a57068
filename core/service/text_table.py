"""Rows and amounts as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def amounts_text(amounts: Mapping[str, int]) -> str:
    """``memory=5 vcore=1000``; ``-`` for none."""
    return " ".join(f"{name}={amounts[name]}" for name in sorted(amounts)) or "-"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """*rows*, the heading first, in columns as wide as they have to be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
