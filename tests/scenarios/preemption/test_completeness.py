"""Every worked case of preemption.md part J is played by some test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
PART_J: Final = {
    "A": """
        1 2 3 4 5 6 7 8 9 10
    """,
    "B": """
        1 2 4 5 6 7 9 10 11 12 14 15 16 17a 17b 17c 17d 19 20 21 23 24 25 26 27 28 29 30 32a 32b 32c 32d 32f
        32h 32i 32j 32k 33a 34a 34b 34c 34d 34e 34f 35a 35b 36 37 38 40 41 42a 42b 42d 43 45 47 48 48b 49 50
        51 52 53 54 55 56 57 58 59 60 61
    """,
    "F": """
        1 2 3 4 5
    """,
    "H": """
        1 2 3 4
    """,
    "P": """
        1 2 4 5 6 7 8 9
    """,
    "Q": """
        1 2 3 4 5 6 7 8 10 11 12 13 14 15 17 19 20 21 22 23 24 25 27 28 29 31 32 33 34 35 36 37
        38 39 40 41
    """,
    "R": """
        1 2 3 4 5 6 8 9 10 11 12
    """,
    "T": """
        1 2 4 5 7 8 9 10 11 12 13 14 15 16 17 18 19 20
    """,
    "Y": """
        1 2 3 4 5 7 9 10 11 12 13 14 15 16 17 19 20 21 22 23 24 26 27 28 29 30 31 33 34 35 36 38 39 41 42 43
        44
    """,
}
"""By letter, the numbers of the worked cases; Q1 to Q7 are the rows of D.6."""

CASES: Final = [f"J-{letter}{number}" for letter, numbers in PART_J.items() for number in numbers.split()]

NAMED: Final = re.compile(r"\b(J-[A-Z]\d+[a-z]?)(?![a-z0-9])")
IN_A_FUNCTION: Final = re.compile(r"def test_(?:j_)?([a-z])_?(\d+[a-z]?)_")
HEADING: Final = re.compile(r"^(?:case |=== |# ).*$", re.MULTILINE)


def named(text: str) -> Iterable[str]:
    """The cases that *text* names, in full or in the name of a test function."""
    yield from NAMED.findall(text)
    yield from (f"J-{letter.upper()}{number}" for letter, number in IN_A_FUNCTION.findall(text))


def cases_by_file() -> dict[Path, set[str]]:
    """What each test file says it plays; of scenarios and tables only headings count, not their inputs."""
    found: dict[Path, set[str]] = {}
    for path in sorted(TESTS.rglob("*")):
        if path.suffix in (".txt", ".cases"):
            text = "\n".join(HEADING.findall(path.read_text(encoding="utf-8")))
        elif path.suffix == ".py" and path.name.startswith("test_") and path != Path(__file__):
            text = path.read_text(encoding="utf-8")
        else:
            continue
        found[path] = set(named(text))
    return found


def test_some_test_plays_each() -> None:
    assert not {*CASES}.difference(*cases_by_file().values())
