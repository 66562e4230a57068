"""Everything that a command writes passes one place, where names from outside are written visibly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.trees import list_nodes

ROOT = Path(__file__).parents[2]
WRITER = ROOT / "core/cli/terminal.py"
ENTRY = ROOT / "core/cli/entry.py"
"""The module that writes the version, before anything else is imported."""
JOINER = ROOT / "core/cli/text/lines.py"
WRITING = {
    "print",
    "echo",
    "secho",
    "write",
    "writelines",
    "print_json",
    "pager",
    "echo_via_pager",
    "confirm",
    "prompt",
}
VISIBLY = {"write_visibly", "_write_lines", "_plain", "as_json"}

COMMANDS = sorted(path for path in (ROOT / "core/cli").rglob("*.py") if path not in (WRITER, ENTRY))
PROGRAMS = sorted(
    path
    for folder in ("shim_client", "shim_mock", "shim_local", "conformance")
    for path in (ROOT / folder).rglob("*.py")
)


def calls(path: Path) -> Iterator[tuple[ast.Call, str, ast.expr | None]]:
    """Each call in *path*, with the name of what is called and whose it is."""
    for node in list_nodes(path):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node, node.func.id, None
            elif isinstance(node.func, ast.Attribute):
                yield node, node.func.attr, node.func.value


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_write_through_the_terminal_only(path: Path) -> None:
    """core.cli.terminal is the only one that writes."""
    for node, name, owner in calls(path):
        writes = name in WRITING and (
            owner is None or ast.unparse(owner).startswith(("typer", "click", "sys.stdout", "sys.stderr"))
        )
        assert not writes, f"{place(path, node)}: core.cli.terminal writes"
    assert "rich" not in path.read_text(encoding="utf-8").split("import"), path


@pytest.mark.parametrize(
    "path", sorted((ROOT / "core/cli/text").glob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_lines_are_joined_in_one_place(path: Path) -> None:
    """What joins lines writes each of them visibly first, so that a name within one has none of its own."""
    if path == JOINER:
        return
    for node, name, owner in calls(path):
        joins = name == "join" and isinstance(owner, ast.Constant) and "\n" in str(owner.value)
        assert not joins, f"{place(path, node)}: core.cli.text.lines joins"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_other_programs_write_names_visibly(path: Path) -> None:
    """What they echo, and what they keep markup out of, is a name or a message of the core."""
    for node, name, owner in calls(path):
        if (name == "escape" and owner is None) or (name == "echo" and owner is not None):
            argument = node.args[0]
            assert isinstance(argument, ast.Call), f"{place(path, node)}: write_visibly it"
            called = argument.func
            by = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            assert by in VISIBLY, f"{place(path, node)}: write_visibly it"
