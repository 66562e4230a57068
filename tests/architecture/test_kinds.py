"""The kinds of preemption as rooms: no circle of imports, laws apart from planners, and no names of kinds elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kornel.core.preemption.registry import KINDS, SOURCES
from tests.architecture.test_imports import ROOT, imports, modules, within
from tests.architecture.trees import list_nodes

FILES = dict(modules("core"))
ROOMS = {kind.name: f"core.preemption.{kind.name.replace('-', '_')}" for kind in KINDS}
"""By kind, its folder."""
ROOMS_AND_REGISTRY = {
    "core.preemption.registry",
    *(module for module in FILES if any(within(module, room) for room in ROOMS.values())),
}
EXCEPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "core.domain.preemption_kinds": (tuple(ROOMS), "lists their names and keys"),
    "core.engine.configuration.configure": (("quota",), "a max that is lowered starts a timer"),
    "core.engine.engine": (("quota",), "a person preempts in the order of a lowered max"),
    "core.snapshot.called_functions": (
        ("guarantee", "quota", "monitor"),
        "lists the functions that records of a snapshot refer to",
    ),
    "core.snapshot.schema": (
        ("guarantee", "quota", "monitor"),
        "lists the types of every record of a snapshot",
    ),
    "core.telling.configuration.enforcement_trial": (("quota",), "foretells what a lowered max would do"),
    "core.telling.queues.above_max": (("quota",), "shows what queues hold above their max"),
    "core.telling.reader": (("quota",), "says whom a person would preempt"),
    "core.telling.what_if.questions": (("quota",), "asks the planner of a supposed max"),
    "core.telling.what_if.sandbox": (("required-node", "guarantee"), "supposes what the planners would do"),
}
"""Modules that name kinds all the same, which, and why."""


def module_of(name: str) -> str:
    """The module that *name*, which may be something in it, is imported from."""
    while name not in FILES:
        name = name.rpartition(".")[0]
    return name


@cache
def neighbours(module: str) -> frozenset[str]:
    return frozenset(module_of(name) for name in imports(FILES[module]) if name.startswith("core.")) - {module}


def reached_from(module: str) -> set[str]:
    """Every module that *module* imports by however many steps, types included."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        ahead += (new := neighbours(ahead.pop()) - found)
        found |= new
    return found


def test_no_room_is_in_a_circle_of_imports() -> None:
    assert not [module for module in FILES if module.startswith("core.preemption.") and module in reached_from(module)]


def test_laws_share_no_code_with_planners() -> None:
    """They read records, views and plans, and what all laws share."""
    laws = [module for module in FILES if re.search(r"^core\.laws|laws$", module)]
    assert laws
    for module, name in ((law, name) for law in laws for name in neighbours(law)):
        assert re.fullmatch(
            r"core\.(domain|model|laws)(\..*)?|core\.policies\.view"
            r"|core\.preemption\.((monitor|quota|quota\.by_hand)\.)?plan"
            r"|core\.preemption\.(guarantee\.queue_laws|quota\.laws)",
            name,
        ), f"{module} imports {name}"


def texts(path: Path) -> Iterator[str]:
    """Yields the texts in *path* but for the words of other vocabularies: what an enumeration defines, and what the
    fields of a message are called."""
    nodes = list(list_nodes(path))
    words = {id(node) for each in nodes for node in list_words(each)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            yield node.value


def list_words(node: ast.AST) -> list[ast.expr]:
    """Returns the values of an enumeration's members, the argument of ``HasField``, or what ``WhichOneof`` may be."""
    match node:
        case ast.ClassDef(bases=bases) if any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in bases):
            return [each.value for each in node.body if isinstance(each, ast.Assign)]
        case ast.Call(func=ast.Attribute(attr="HasField"), args=arguments):
            return arguments
        case ast.Match(subject=ast.Call(func=ast.Attribute(attr="WhichOneof"))):
            return [each.pattern.value for each in node.cases if isinstance(each.pattern, ast.MatchValue)]
    return []


def test_words_of_other_vocabularies_are_no_names_of_kinds(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        'class Why(StrEnum):\n    A = "a"\n    b("b")\n'
        'match message.WhichOneof("c"):\n    case "d":\n        f("e")\n'
        'message.HasField("f")\nmatch "g":\n    case "h":\n        pass\n',
        encoding="utf-8",
    )
    assert set(texts(path)) == {"b", "c", "e", "g", "h"}


def imported_kinds(module: str) -> set[str]:
    """Returns the kinds from whose rooms *module* imports."""
    return {kind for kind, room in ROOMS.items() if any(within(name, room) for name in imports(FILES[module]))}


def named_kinds(module: str) -> set[str]:
    """Returns the kinds that *module* names: by importing from their rooms, or in a text."""
    return imported_kinds(module) | set(texts(FILES[module])) & set(ROOMS)


def test_kinds_are_named_in_their_rooms_alone() -> None:
    """Everything else reads their records, but for the exceptions, which are as many as they have to be."""
    named = {module: named_kinds(module) for module in FILES if module not in ROOMS_AND_REGISTRY}
    expected = {module: set(kinds) for module, (kinds, _) in EXCEPTIONS.items()}
    assert {module: kinds for module, kinds in named.items() if kinds} == expected, "read core.preemption.registry"


@pytest.mark.parametrize("kind", ROOMS)
def test_a_kind_imports_nothing_of_another(kind: str) -> None:
    for module in FILES:
        if within(module, ROOMS[kind]):
            assert imported_kinds(module) <= {kind}, module


def test_the_page_knows_none_by_name() -> None:
    """Classes of elements have names of their own."""
    for path in (ROOT / "core" / "web" / "static").rglob("*.js"):
        text = re.sub(r"classList\.add\([^)]*\)", "", path.read_text(encoding="utf-8"))
        named = {name for name in SOURCES if re.search(rf"""["'`]{name}["'`]""", text)}
        # The one draws what queues are guaranteed, the other asks what-if by the question called so.
        allowed = {"queues.js": {"guarantee"}, "queue.js": {"quota"}}.get(path.name, set())
        assert named <= allowed, f"{path} names {named}"
