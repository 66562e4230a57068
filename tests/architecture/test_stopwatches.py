"""No test of ``make test`` judges time or memory, which say as much about the machine as about the core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.trees import parse_source

TESTS: Final = Path(__file__).parents[1]
ELSEWHERE: Final = ("bench", "hostile", "kubernetes")
"""Folders that `make test` leaves out."""
STOPWATCHES: Final = {
    "paced_time", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "thread_time", "tracemalloc",
    "getrusage", "timeit",
}  # fmt: skip
MARKS: Final = {"long", "alone"}
FILES: Final = [path for path in sorted(TESTS.rglob("test_*.py")) if path.relative_to(TESTS).parts[0] not in ELSEWHERE]


def find_unmarked(tree: ast.Module) -> list[str]:
    """Returns the tests in *tree* that use one of :data:`STOPWATCHES`, themselves or by a function beside them, and
    have none of :data:`MARKS`."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    names = {name: set(_names(node)) for name, node in functions.items()}
    judging = {name for name, used in names.items() if used & STOPWATCHES}
    while found := {name for name, used in names.items() if name not in judging and used & judging}:
        judging |= found
    if any(MARKS & set(_names(node)) for node in tree.body if _sets_marks(node)):
        return []
    return [
        name
        for name in sorted(judging)
        if name.startswith("test_") and not any(MARKS & set(_names(mark)) for mark in functions[name].decorator_list)
    ]


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


def _sets_marks(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets)


def test_nothing_that_judges_time_or_memory_is_in_the_quick_suite() -> None:
    """Such a test is marked ``long`` or ``alone`` (docs/testing.md)."""
    using = [path for path in FILES if any(name in path.read_text(encoding="utf-8") for name in STOPWATCHES)]
    found = {str(path.relative_to(TESTS)): names for path in using if (names := find_unmarked(parse_source(path)))}
    assert not found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_it(): time.process_time()", ["test_it"]),
        ("def test_it():\n    with paced_time() as took: pass", ["test_it"]),
        ("def measure(): return perf_counter()\ndef test_it(): assert measure() < 1", ["test_it"]),
        ("@pytest.mark.long\ndef test_it(): tracemalloc.start()", []),
        ("pytestmark = pytest.mark.long\ndef test_it(): time.process_time()", []),
        ("def test_it(): time.monotonic()", []),
    ],
)
def test_a_stopwatch_would_be_found(text: str, expected: list[str]) -> None:
    assert find_unmarked(ast.parse(text)) == expected
