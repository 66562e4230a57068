"""Every numbered case of config.md 13 is played by some test, and every row of its section 14 has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[2]
CASES: Final = [*(f"T{number}" for number in range(1, 86)), *(f"B{number}" for number in range(1, 27))]

NAMED: Final = re.compile(r"(?<![\w-])([BT]\d+)(?!\w)")
IN_A_NAME: Final = re.compile(r"(?<!j)_([bt]\d+)(?=_|$)")
HEADING: Final = re.compile(r"^(?:=== |# ).*$", re.MULTILINE)
OTHER_MEANINGS: Final = ("preemption", "conformance", "bench", "oracles")
"""Where T and B with a number are something else (times, other lists), unless a text names config.md."""


def named_in_python(text: str) -> Iterable[str]:
    """The cases that functions, their docstrings, and the texts of tables name; what the module says of itself is no
    test."""
    module = ast.parse(text)
    for statement in module.body[1:] if ast.get_docstring(module) else module.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from (found.upper() for found in IN_A_NAME.findall(node.name))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from NAMED.findall(node.value)


@cache
def cases_by_file() -> dict[Path, set[str]]:
    found: dict[Path, set[str]] = {}
    for path in sorted(TESTS.rglob("*")):
        elsewhere = any(part in OTHER_MEANINGS for part in path.relative_to(TESTS).parts)
        if path.suffix == ".txt":
            headings = "\n".join(HEADING.findall(path.read_text(encoding="utf-8")))
            if not elsewhere or "config.md" in headings:
                found[path] = set(NAMED.findall(headings))
        elif path == Path(__file__) or elsewhere:
            continue
        elif path.suffix == ".py" and path.name.startswith("test_"):
            found[path] = set(named_in_python(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("case", CASES)
def test_some_test_plays_it(case: str) -> None:
    assert any(case in cases for cases in cases_by_file().values())
