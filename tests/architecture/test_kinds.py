"""The kinds of preemption as rooms: no circle of imports, laws apart from planners, and no names of kinds elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kornel.core.preemption.registry import SOURCES
from tests.architecture.test_imports import ROOT, imports, modules

FILES = dict(modules("core"))
LOOKERS_ON = ("archive", "cli", "client", "metrics", "process", "rest", "security", "service", "tracing")
"""Packages that tell of decisions of any kind."""
OTHER_MEANING = {
    "core.cli.explain": {"quota"},
    "core.service.explain_wire": {"quota"},
    "core.cli.text.status": {"monitor"},
    "core.rest.configuration_document": {"governor"},
}
"""What-if has a question called so, the status a part, and the configuration a section."""


def module_of(name: str) -> str:
    """The module that *name*, which may be something in it, is imported from."""
    while name not in FILES:
        name = name.rpartition(".")[0]
    return name


def neighbours(module: str) -> set[str]:
    return {module_of(name) for name in imports(FILES[module]) if name.startswith("core.")} - {module}


def reached_from(module: str) -> set[str]:
    """Every module that *module* imports by however many steps, types included."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        ahead += (new := neighbours(ahead.pop()) - found)
        found |= new
    return found


@pytest.mark.parametrize("module", [module for module in FILES if module.startswith("core.preemption.")])
def test_no_room_is_in_a_circle_of_imports(module: str) -> None:
    assert module not in reached_from(module)


@pytest.mark.parametrize("module", [module for module in FILES if re.search(r"^core\.laws|\.laws$", module)])
def test_laws_share_no_code_with_planners(module: str) -> None:
    """They read records, views and plans, and what all laws share."""
    for name in neighbours(module):
        assert re.fullmatch(
            r"core\.(domain|model|laws)(\..*)?|core\.policies\.view|core\.preemption\.(monitor\.)?plan", name
        ), f"{module} imports {name}"


def texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("package", LOOKERS_ON)
def test_who_tells_of_kinds_knows_none_by_name(package: str) -> None:
    for module, path in modules(f"core/{package}"):
        named = set(texts(path)) & set(SOURCES) - OTHER_MEANING.get(module, set())
        assert not named, f"{module} names {named}: read core.preemption.registry"


def test_the_page_knows_none_by_name() -> None:
    for path in (ROOT / "core" / "web" / "static").rglob("*.js"):
        named = {name for name in SOURCES if re.search(rf"""["'`]{name}["'`]""", path.read_text(encoding="utf-8"))}
        allowed = {"guarantee"} if path.name == "queues.js" else set()
        assert named <= allowed, f"{path} names {named}"
