"""The page about preemption names tests: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "preemption.md"
ROWS = re.findall(r"^\| (K\d+) \|.*\| `([^`]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
PROMISES = re.findall(r"^\| (R\d+) \|.*\| `([^`]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def known() -> set[str]:
    """Functions, scenarios and worked cases."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        found.update(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    for path in (TESTS / "scenarios").rglob("*.txt"):
        found.update(re.findall(r"^=== (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    for path in (TESTS / "scenarios").rglob("*.cases"):
        found.update(re.findall(r"^(case \S+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_every_row_that_is_not_optional_names_a_test() -> None:
    """K8, K22 and K23 are optional as a whole, K11 is out of scope."""
    optional = {8, 11, 22, 23}
    assert [name for name, _ in ROWS] == [f"K{n}" for n in range(1, 22) if n not in optional]


def test_every_promise_names_a_test() -> None:
    assert [name for name, _ in PROMISES] == [f"R{n}" for n in range(1, 16)]


@pytest.mark.parametrize(("name", "test"), [*ROWS, *PROMISES])
def test_it_exists(name: str, test: str) -> None:
    assert test in known(), name
