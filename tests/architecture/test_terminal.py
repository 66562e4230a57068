"""Everything that a command writes passes one place, where names from outside are written visibly."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.trees import list_nodes

ROOT = Path(__file__).parents[2]
WRITER = ROOT / "cli/terminal.py"
ENTRY = ROOT / "cli/entry.py"
"""The module that writes the version, before anything else is imported."""
JOINER = ROOT / "cli/text/lines.py"
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

COMMANDS = sorted(
    path
    for folder in ("cli", "core/commands", "simulate")
    for path in (ROOT / folder).rglob("*.py")
    if path not in (WRITER, ENTRY)
)
PROGRAMS = sorted(
    path
    for folder in ("shim_client", "shim_mock", "shim_local", "conformance")
    for path in (ROOT / folder).rglob("*.py")
)


def calls_in(paths: Iterable[Path]) -> Iterator[tuple[str, ast.Call, str, ast.expr | None]]:
    """Yields each call in *paths*: its place, itself, the name of what is called and whose it is."""
    for path, node in ((each, node) for each in paths for node in list_nodes(each)):
        if isinstance(node, ast.Call):
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node.func, ast.Name):
                yield place, node, node.func.id, None
            elif isinstance(node.func, ast.Attribute):
                yield place, node, node.func.attr, node.func.value


def test_commands_write_through_the_terminal_only() -> None:
    """cli.terminal is the only one that writes."""
    for place, _, name, owner in calls_in(COMMANDS):
        writes = name in WRITING and (
            owner is None or ast.unparse(owner).startswith(("typer", "click", "sys.stdout", "sys.stderr"))
        )
        assert not writes, f"{place}: cli.terminal writes"
    assert not [path for path in COMMANDS if "rich" in path.read_text(encoding="utf-8").split("import")]


def test_lines_are_joined_in_one_place() -> None:
    """What joins lines writes each of them visibly first, so that a name within one has none of its own."""
    for place, _, name, owner in calls_in(path for path in (ROOT / "cli/text").glob("*.py") if path != JOINER):
        joins = name == "join" and isinstance(owner, ast.Constant) and "\n" in str(owner.value)
        assert not joins, f"{place}: cli.text.lines joins"


def test_other_programs_write_names_visibly() -> None:
    """What they echo, and what they keep markup out of, is a name or a message of the core."""
    for place, node, name, owner in calls_in(PROGRAMS):
        if (name == "escape" and owner is None) or (name == "echo" and owner is not None):
            argument = node.args[0]
            assert isinstance(argument, ast.Call), f"{place}: write_visibly it"
            called = argument.func
            by = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            assert by in VISIBLY, f"{place}: write_visibly it"
