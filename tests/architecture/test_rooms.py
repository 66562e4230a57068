"""The structure inside core/partition and core/preemption: which room may import which, and that there is no circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.architecture.test_imports import imports, modules, within

MODULES = {
    "planning": ("preemption",),
    "records": ("partition.defaults", "partition.history", "partition.scheduling.reserving_record"),
    "state": ("partition.state",),
    "books": ("partition.books",),
    "waiting": ("partition.waiting",),
    "asks": ("partition.asks",),
    "preempting": (
        "preemption.governor.governing", "preemption.guarantee.consulting", "preemption.monitor.drive",
        "preemption.monitor.noticing", "preemption.pacing", "preemption.preempting", "preemption.quota.drive",
        "preemption.quota.standing", "preemption.quota.timers", "preemption.required_node.drive",
    ),
    "gangs": ("partition.gangs",),
    "lifecycle": ("partition.lifecycle", "partition.withdrawing"),
    "configuration": ("partition.configuration",),
    "scheduling": ("partition.scheduling", "partition.gangs.timeouts", "preemption.guarantee.rounds"),
    "kinds": (
        "preemption.governor.source", "preemption.guarantee.kind", "preemption.kind", "preemption.monitor.kind",
        "preemption.quota.kind", "preemption.registry", "preemption.required_node.kind", "preemption.rounds",
    ),
    "intake": ("partition.intake",),
    "audit": ("partition.books.audit", "partition.books.findings", "partition.gangs.audit"),
    "engine": ("partition.dissolving", "partition.engine"),
}  # fmt: skip
"""The rooms and what belongs to each: the longest beginning of a module's name decides."""

_BOOKED = {"records", "state", "books"}
_MOVED = _BOOKED | {"waiting", "asks"}
_DECIDED = _MOVED | {"planning", "preempting", "gangs"}

ROOMS: dict[str, set[str]] = {
    "planning": set(),
    "records": set(),
    "state": {"planning", "records"},
    "books": {"records", "state"},
    "waiting": {"state"},
    "asks": _BOOKED | {"waiting"},
    "preempting": _MOVED | {"planning"},
    "gangs": _MOVED | {"preempting"},
    "lifecycle": _DECIDED,
    "configuration": _MOVED | {"planning", "preempting"},
    "scheduling": _DECIDED | {"lifecycle"},
    "kinds": _DECIDED | {"scheduling"},
    "intake": _DECIDED | {"lifecycle", "configuration", "scheduling"},
    "audit": {"state", "waiting"},
    "engine": set(MODULES),
}
"""Which rooms each one may import besides itself, from the lowest to the highest."""

PACKAGES = ("core.partition", "core.preemption")
ALL = {**dict(modules("core/partition")), **dict(modules("core/preemption"))}


def room_of(module: str) -> str | None:
    """Returns the room that *module* belongs to; a package itself belongs to none."""
    name = module.removeprefix("core.")
    found = [(len(known), room) for room, named in MODULES.items() for known in named if within(name, known)]
    return max(found)[1] if found else None


def imported(path: Path) -> set[str]:
    """Returns the modules of both packages that *path* imports, at run time or for types."""
    return {module for name in imports(path) if (module := _module(name)) is not None}


def _module(name: str) -> str | None:
    """Returns the module that *name*, a module or something in one, belongs to; ``None``: it is in neither package."""
    if name in ALL:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in ALL else None


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Returns one circle in *graph*, beginning and ending with the same name; empty: there is none."""
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for after in sorted(graph[name]):
            if found := follow(after, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := follow(name, []))), [])


def packages() -> Iterator[str]:
    return (module for module, path in ALL.items() if path.name == "__init__.py")


@pytest.mark.parametrize(("module", "path"), list(ALL.items()), ids=str)
def test_rooms_import_what_is_below_them(module: str, path: Path) -> None:
    """Each module imports its own room and those that the table names, at run time and for types."""
    if path.name == "__init__.py":
        assert not imported(path), f"{module} is a package, and imports {imported(path)}"
        return
    room = room_of(module)
    assert room is not None, f"{module} belongs to no room; add it to MODULES on purpose"
    allowed = ROOMS[room] | {room}
    stray = {name: room_of(name) for name in imported(path) - set(packages()) if room_of(name) not in allowed}
    assert not stray, f"{module}, of room {room!r}, must not import {stray}"


def test_nothing_imports_in_a_circle() -> None:
    """Neither at run time nor for types only."""
    assert not circle({module: imported(path) - {module} for module, path in ALL.items()})


def test_rooms_are_in_order() -> None:
    """Each room is allowed only rooms that stand above it in the table, except the one that may import all."""
    order = list(ROOMS)
    assert order == list(MODULES)
    for number, room in enumerate(order[:-1]):
        later = ROOMS[room] & set(order[number:])
        assert not later, f"{room} may import {later}"


def test_a_circle_is_found() -> None:
    """The search above sees one of any length, and what hangs on it is no part of it."""
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_no_import_hides_in_a_function() -> None:
    """What a function imports when it is called is an arrow too, and a sign that there was a circle."""
    for module, path in ALL.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                hidden = [at.lineno for at in ast.walk(node) if isinstance(at, ast.Import | ast.ImportFrom)]
                assert not hidden, f"{module} imports within a function, at lines {hidden}"
