"""Tables fit the terminal."""

from __future__ import annotations

import pytest

from kornel.cli.text.tables import format_table, shorten_name, wrap_text

ROWS = [
    ("name", "state", "holds", "why"),
    ("a" * 40 + "-0001", "Running", "vcore=184 memory=23.5Ti gpu=16", "no node has enough room for it"),
    ("short", "New", "-", "-"),
]


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    lines = list(format_table(ROWS, columns=columns))
    assert max(map(len, lines)) <= columns, lines
    assert "short" in " ".join(lines)


def test_with_room_enough_each_row_is_one_line() -> None:
    assert len(list(format_table(ROWS, columns=200))) == len(ROWS)


def test_a_long_name_keeps_its_ends() -> None:
    """People tell names apart by how they begin and how they end."""
    lines = "\n".join(format_table(ROWS, columns=80))
    assert "aaa" in lines
    assert "-0001" in lines
    assert "a" * 40 not in lines
    assert shorten_name("best-effort-00017", 9) in ("best…0017", "best~0017")


def test_cells_are_wrapped_at_blanks() -> None:
    lines = "\n".join(format_table(ROWS, columns=80))
    assert "memory=23.5Ti" in lines, "an amount stays whole"


def test_what_can_be_spared_goes_first_and_is_named() -> None:
    lines = list(format_table(ROWS, spare=("holds", "why"), columns=70))
    assert "holds" not in lines[0]
    assert lines[-1] == "  A wider terminal or --json also shows: holds, why." or "holds." in lines[-1]
    assert "holds" in next(format_table(ROWS, spare=("holds",), columns=200))


def test_the_narrowest_terminal_gets_a_block_for_each_row() -> None:
    lines = list(format_table([("a", *"bcdefghijk"), *[("x" * 30, *["y" * 20] * 10)]], columns=40))
    assert max(map(len, lines)) <= 40
    assert len(lines) > 5


@pytest.mark.parametrize("columns", [None, 40, 100])
@pytest.mark.parametrize("breaks", ["\n", "\r\n", "\x0b", "\x0c", "\t", "\x85", "\u2028"])
def test_a_break_in_a_name_begins_no_line(breaks: str, columns: int | None) -> None:
    """Wrapping takes other breaks than those of the name; what comes behind is no line of its own."""
    lines = wrap_text(f"node n{breaks}{' ' * 60}{breaks}FORGED{breaks}: draining", columns, "  ")
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.split()[:1] == ["FORGED"]]
    assert "FORGED" in "".join(lines)


def test_a_file_gets_everything_in_one_line() -> None:
    """Tests have no terminal, like a pipe."""
    assert len(list(format_table(ROWS))) == len(ROWS)
    assert wrap_text("x " * 200) == ["x " * 200]
