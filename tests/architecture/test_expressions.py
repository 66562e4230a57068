"""No regular expression of ours needs more than time in proportion to a text, whoever wrote the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.trees import list_nodes
from tests.pumping import METHODS, find_slow_text

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "cli", "shared", "shim_client", "shim_mock", "shim_local", "conformance", "simulate")
FINDING = {"sub": "finditer", "subn": "finditer", "split": "finditer", "findall": "finditer"}
"""Methods that go on until the end of the text, by the one that shows what they cost."""


@dataclass(frozen=True)
class Expression:
    """One expression as the code has it, and how its module uses it."""

    place: str
    pattern: re.Pattern[str]
    methods: tuple[str, ...]


def calls_of_re(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr != "escape":
                yield node


def sources(package: str) -> Iterator[tuple[Path, tuple[ast.AST, ...]]]:
    """Yields the files of *package* that use the module ``re`` at all; its name has to stand in them."""
    for path in sorted((ROOT / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"\bre\b", text):
            yield path.relative_to(ROOT), list_nodes(path)


def expressions(package: str) -> Iterator[Expression]:
    for path, nodes in sources(package):
        names = {
            id(node.value): target.id
            for node in nodes
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for call in calls_of_re(nodes):
            assert isinstance(call.func, ast.Attribute)
            # Flags are names of the module re, and nothing else is evaluated.
            arguments = [eval(compile(ast.Expression(each), str(path), "eval"), {"re": re}) for each in call.args]  # noqa: S307
            used = {
                node.attr
                for node in nodes
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == names.get(id(call))
            }
            methods = sorted({FINDING.get(method, method) for method in used} & set(METHODS))
            yield Expression(f"{path}:{call.lineno}", re.compile(*arguments), tuple(methods) or METHODS)


def test_every_expression_is_compiled_from_a_constant() -> None:
    """Then those below are all there are; a pattern from outside would be run by RE2 (placement/patterns.py)."""
    found = 0
    for path, nodes in (source for package in PACKAGES for source in sources(package)):
        for call in calls_of_re(nodes):
            assert isinstance(call.func, ast.Attribute)
            assert call.func.attr == "compile", f"{path}:{call.lineno}: compile it, by name, at the top of the module"
            assert isinstance(call.args[0], ast.Constant), f"{path}:{call.lineno}: not a constant"
            found += 1
        for node in nodes:
            assert not (isinstance(node, ast.ImportFrom) and node.module == "re"), f"{path}: import re, not from it"
    assert found > 40


@pytest.mark.long
@pytest.mark.parametrize("package", PACKAGES)
def test_time_is_in_proportion_to_the_text(package: str) -> None:
    """64 KiB of the worst that its structure suggests take no longer than a fraction of a second."""
    for expression in expressions(package):
        slow = find_slow_text(expression.pattern, expression.methods)
        assert slow is None, f"{expression.place}: {expression.pattern.pattern!r}: {slow}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a+)+$", "match"),
        (r"^(\w+-?)*$", "fullmatch"),
        (r"(?:x|x)*y", "match"),
        (r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.", "finditer"),
        (r"[ \t]+$", "search"),
        (r"[a-z]+[0-9a-z]*=", "match"),
        (r"[0-9]+(?:\.[0-9]+)?[a-z]", "finditer"),
    ],
)
def test_what_is_slow_is_found(pattern: str, method: str) -> None:
    assert find_slow_text(re.compile(pattern), [method]) is not None
