"""The structure inside core/state, core/preemption, core/engine and core/service as a test: which room may import
which, and no circles."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.architecture.test_imports import ROOT, imports, modules, within
from tests.architecture.trees import list_nodes

_KINDS = ("guarantee", "required_node", "quota", "monitor")

FLOORS = ("state", "preemption", "engine")
"""The floors of what decides, from the lowest to the highest: each room lies on one of them."""

MODULES = {
    "records": ("state.options", "state.history", "state.records"),
    "state": ("state.partition_state",),
    "books": ("state.books",),
    "waiting": ("state.waiting",),
    "asks": ("state.asks",),
    "audit": (
        "state.books.audit", "state.books.device_audit", "state.books.domain_audit", "state.books.findings",
        "state.books.gang_audit",
    ),
    "plans": (
        "preemption.plan", "preemption.monitor.plan", "preemption.quota.plan", "preemption.quota.by_hand.plan",
    ),
    "laws": (
        "preemption.guarantee.queue_laws", "preemption.quota.by_hand.laws",
        *(f"preemption.{kind}.laws" for kind in _KINDS),
    ),
    "planners": (
        "preemption.entitlement", "preemption.gang_losses", "preemption.priorities", "preemption.run_times",
        "preemption.walk", "preemption.quota.by_hand.planner",
        *(f"preemption.{kind}.planner" for kind in _KINDS),
        *(f"preemption.guarantee.{room}" for room in ("gangs", "rules", "search")),
        *(f"preemption.quota.{name}" for name in ("gang_choice", "shares", "timer_rules", "victims")),
        "preemption.monitor.selection",
    ),
    "preemption": ("preemption",),
    "kinds": (
        "preemption.kind", "preemption.quota.by_hand.kind", "preemption.registry", "preemption.slices",
        *(f"preemption.{kind}.{name}" for kind in _KINDS for name in ("foresight", "kind")),
    ),
    "gangs": ("engine.gangs",),
    "lifecycle": ("engine.lifecycle", "engine.withdrawing"),
    "configuration": ("engine.configuration",),
    "scheduling": (
        "engine.scheduling",
        *(f"engine.gangs.gang_{name}" for name in ("holds", "places", "savings", "turns", "vetting")),
        "engine.gangs.timeouts",
    ),
    "cycles": ("engine.scheduling.cycle", "engine.scheduling.rounds"),
    "intake": ("engine.intake",),
    "engine": ("engine.dissolving", "engine.engine"),
}  # fmt: skip
"""The rooms and what belongs to each: the longest beginning of a module's name decides."""

_STATE = {"records", "state", "books", "waiting", "asks"}
_DECIDED = _STATE | {"plans", "planners", "preemption", "gangs"}

ROOMS: dict[str, set[str]] = {
    "records": set(),
    "state": {"records"},
    "books": {"records", "state"},
    "waiting": {"records", "state"},
    "asks": {"records", "state", "books", "waiting"},
    "audit": {"state", "waiting"},
    "plans": {"records"},
    "laws": {"plans"},
    "planners": {"records", "plans"},
    "preemption": _STATE | {"plans", "laws", "planners"},
    "kinds": _STATE | {"plans", "laws", "planners", "preemption"},
    "gangs": _DECIDED - {"gangs"},
    "lifecycle": _DECIDED,
    "configuration": _DECIDED,
    "scheduling": _DECIDED | {"lifecycle", "kinds"},
    "cycles": _DECIDED | {"lifecycle", "kinds", "scheduling"},
    "intake": _DECIDED | {"lifecycle", "configuration", "kinds", "scheduling"},
    "engine": set(MODULES),
}
"""Which rooms each one may import besides itself, from the lowest to the highest."""

INSIDE: dict[str, dict[str, set[str]]] = {
    "core.config": {"text": set(), "keys": {"text"}, "checks": {"keys", "text"}},
    "core.journal": {
        "content": set(),
        "database": {"content"},
        "snapshots": {"content", "database"},
        "following": {"content", "database", "snapshots"},
        "writing": {"content", "database"},
    },
    "core.preemption.guarantee": {
        "rules": set(),
        "search": {"rules"},
        "gangs": {"rules", "search"},
        "attempts": {"gangs", "rules", "search"},
    },
    "core.rest": {
        "http": set(),
        "serving": {"http"},
        "documents": {"http", "serving"},
        "handlers": {"documents", "http", "serving"},
    },
    "core.service": {
        "wire": set(),
        "machine": {"wire"},
        "metrics": set(),
        "logs": set(),
        "connections": set(),
        "streams": {"connections", "machine", "metrics", "wire"},
        "calls": {"connections", "machine", "metrics", "streams", "wire"},
        "callbacks": {"machine", "metrics", "streams", "wire"},
        "runner": {"callbacks", "machine", "metrics", "streams", "wire"},
        "configuration": {"connections", "machine", "runner", "wire"},
        "events": {"configuration", "connections", "machine", "metrics", "wire"},
        "managers": {"callbacks", "calls", "configuration", "machine", "runner", "streams", "wire"},
        "resolvers": {"machine", "metrics"},
        "services": {
            "callbacks", "calls", "configuration", "connections", "events", "machine", "managers", "metrics",
            "resolvers", "runner", "streams", "wire",
        },
    },
}  # fmt: skip
"""The folders of a room: which of them each one imports, no more and no fewer, from the lowest to the highest."""

MOST_FILES = 20
"""The most files of Python in one folder of ours."""

ALL = {module: path for floor in FLOORS for module, path in modules(f"core/{floor}")}


def room_of(module: str) -> str | None:
    """The room that *module* belongs to; the package itself belongs to none."""
    name = module.removeprefix("core.")
    found = [(len(known), room) for room, named in MODULES.items() for known in named if within(name, known)]
    return max(found)[1] if found else None


def imported(path: Path) -> set[str]:
    """The modules of the partition that *path* imports, at run time or for types."""
    return {module for name in imports(path) if (module := _module(name)) is not None}


def _module(name: str) -> str | None:
    """The module that *name*, a module or something in one, belongs to; ``None``: it is not of the partition."""
    if name in ALL:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in ALL else None


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle in *graph*, beginning and ending with the same name; empty: there is none."""
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


def test_rooms_import_what_is_below_them() -> None:
    """Each module imports its own room and those that the table names, at run time and for types."""
    around = set(packages())
    for module in ALL.keys() - around:
        room = room_of(module)
        assert room is not None, f"{module} belongs to no room; add it to MODULES on purpose"
        allowed = ROOMS[room] | {room}
        found = {name: room_of(name) for name in imported(ALL[module]) - around}
        stray = {name: other for name, other in found.items() if other not in allowed}
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


def test_floors_lie_on_one_another() -> None:
    """The state is below preemption, and the engine above it: no arrow points back up."""
    found = [floor for named in MODULES.values() for floor in dict.fromkeys(name.split(".")[0] for name in named)]
    assert found == sorted(found, key=FLOORS.index)
    assert set(found) == set(FLOORS)


def test_a_circle_is_found() -> None:
    """The search above sees one of any length, and what hangs on it is no part of it."""
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_no_import_hides_in_a_function() -> None:
    """What a function imports when it is called is an arrow too, and a sign that there was a circle."""
    for module, path in ALL.items():
        for node in list_nodes(path):
            if isinstance(node, ast.FunctionDef):
                hidden = [at.lineno for at in ast.walk(node) if isinstance(at, ast.Import | ast.ImportFrom)]
                assert not hidden, f"{module} imports within a function, at lines {hidden}"


@pytest.mark.parametrize("package", INSIDE)
def test_folders_of_a_room_import_what_the_table_names(package: str) -> None:
    """Each arrow of the table is needed."""
    table, depth = INSIDE[package], package.count(".") + 1
    found: dict[str, set[str]] = {folder: set() for folder in table}
    for module, path in modules(package.replace(".", "/")):
        if len(folder := module.split(".")[depth:]) > 1 and path.parent.name == folder[0]:
            others = {name.split(".")[depth] for name in imports(path) if within(name, package) and name != package}
            found.setdefault(folder[0], set()).update(others & set(table) - {folder[0]})
    assert found == table
    order = list(table)
    assert all(others <= set(order[:number]) for number, others in enumerate(table.values()))


def test_no_module_of_the_service_imports_in_a_circle() -> None:
    """Within a room neither."""
    paths = dict(modules("core/service"))
    known = {module: {name for name in imports(path) if within(name, "core.service")} for module, path in paths.items()}
    graph = {
        module: {name if name in paths else name.rpartition(".")[0] for name in names} - {module}
        for module, names in known.items()
    }
    assert not circle(graph)


def test_folders_are_small_enough_to_read() -> None:
    """Nobody looks through more files than fit on a screen."""
    paths = (path for folder in ("core", "cli", "shared") for path in (ROOT / folder).rglob("*.py"))
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in paths)
    assert not {folder: count for folder, count in folders.items() if count > MOST_FILES}
