"""The structure as a test: which way imports point, and what the engine may not know."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.trees import list_nodes

ROOT = Path(__file__).parents[2]

LAYERS = {
    "core.domain": set(),
    "core.config": {"core.domain", "core.policies.placement.patterns"},
    "core.model": {"core.domain"},
    "core.laws": {"core.domain", "core.model", "core.policies.view", "core.preemption.plan"},
    "core.policies": {"core.domain", "core.model"},
    "core.state": {"core.domain", "core.config", "core.model", "core.policies"},
    "core.preemption": {"core.domain", "core.model", "core.laws", "core.policies", "core.state"},
    "core.engine": {"core.domain", "core.config", "core.model", "core.policies", "core.preemption", "core.state"},
    "core.telling": {
        "core.domain", "core.config", "core.engine", "core.model", "core.laws", "core.policies", "core.preemption",
        "core.state",
    },
    "core.service": {"core.domain", "core.config", "core.preemption", "core.telling"},
    "core.archive": {"core.config", "core.domain", "core.preemption", "core.service", "core.telling.encoding"},
    "core.snapshot": {
        "core.domain", "core.config", "core.engine", "core.model", "core.policies", "core.preemption", "core.state",
    },
    "core.journal": {
        "core.archive", "core.config", "core.domain", "core.engine", "core.service", "core.snapshot",
        "core.state.options",
    },
    "core.security": {"core.domain", "core.config", "core.service"},
    "core.tracing": {"core.domain"},
    "core.metrics": {"core.domain", "core.preemption", "core.service", "core.telling"},
    "core.rest": {
        "core.archive", "core.config", "core.domain", "core.metrics", "core.preemption", "core.security",
        "core.service", "core.telling",
    },
    "core.web": set(),
    "core.process": {
        "core.archive", "core.config", "core.domain", "core.journal", "core.metrics", "core.rest", "core.security",
        "core.service", "core.state.options", "core.telling", "core.tracing", "core.web",
    },
    "core.commands": {
        "core.config", "core.engine", "core.journal", "core.process", "core.security", "core.service",
        "core.state.options", "core.telling",
    },
}  # fmt: skip
"""Which packages of ours each one may import besides itself."""

SHELL = (
    "core.archive",
    "core.journal",
    "core.metrics",
    "core.rest",
    "core.security",
    "core.service",
    "core.tracing",
    "core.web",
    "core.process",
    "core.commands",
)
"""Where the outside world is allowed: clock, network, logging, tasks."""

OUTSIDE_WORLD = {
    "asyncio", "concurrent", "datetime", "grpc", "http", "io", "logging", "multiprocessing", "os", "pathlib",
    "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "structlog",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "uvloop",
}  # fmt: skip

CALENDAR = {"core.telling.encoding.values": {"datetime"}}
"""Which modules write times as text, for which they need the calendar and no clock."""

OURS = ("core", "cli", "shared", "shim_client", "shim_mock", "shim_local", "conformance", "simulate", "si")
"""Folders that are packages below ``kornel``: one that were imported by its short name would be loaded twice."""

_OURS = f"(?:{'|'.join(OURS)})"
MAY_IMPORT_BY_FOLDER = re.compile(
    rf"^\s*(?:from\s+(?:\.|{_OURS}\b)|import\b(?:.*[\s,])?{_OURS}\b|(?:from|import)\b.*\\$)", re.MULTILINE
)
"""Stands in every file that imports relatively or by the short name, and in few others: only these are parsed."""

WIRE_ONLY = ("cli", "shim_client", "shim_mock", "shim_local", "conformance")


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


FOLDERS = sorted(f"core/{path.name}" for path in (ROOT / "core").iterdir() if any(path.glob("**/*.py")))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Returns the full name of everything that *path* imports, at run time or for types; ours without ``kornel.``."""
    names = tuple(_imported_names(path))
    for name in names:
        assert name.partition(".")[0] not in OURS, f"{path}: everything of ours is imported from below kornel"
    below = ((name, name.removeprefix("kornel.")) for name in names)
    return tuple(short if short.partition(".")[0] in OURS else name for name, short in below)


def _imported_names(path: Path) -> Iterator[str]:
    for node in list_nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str | None:
    return next((layer for layer in LAYERS if module == layer or module.startswith(f"{layer}.")), None)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder: str) -> None:
    """Each layer imports only itself and the layers below it; the package around them nothing."""
    assert not list(imports(ROOT / "core" / "__init__.py"))
    strays = {module: stray for module, path in modules(folder) if (stray := find_strays(module, path))}
    assert not strays


def find_strays(module: str, path: Path) -> list[str]:
    """Returns what *module* imports although its layer may not."""
    layer = layer_of(module)
    assert layer is not None, f"{module} belongs to no layer; add it to LAYERS on purpose"
    allowed = LAYERS[layer] | {layer}
    ours = [name for name in imports(path) if within(name, "core")]
    stray = [name for name in ours if not any(within(name, package) for package in allowed) and name != "core.laws"]
    if "core.laws" not in allowed:
        stray += [name for name in ours if within(name, "core.laws")]
    return stray


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder.replace("/", ".") not in SHELL])
def test_engine_knows_nothing_of_the_outside_world(folder: str) -> None:
    """No clock, I/O, randomness, logging or asyncio below the service, and no asynchronous function either."""
    for module, path in modules(folder):
        outside = OUTSIDE_WORLD - CALENDAR.get(module, set())
        strangers = {name for name in imports(path) if name.split(".")[0] in outside}
        assert not strangers, f"{module} imports {strangers}"
        nodes = list_nodes(path)
        assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes), module
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        assert not called & {"open", "print", "input"}, f"{module} does I/O"


def test_domain_uses_only_the_standard_library() -> None:
    """The values of the field depend on nothing."""
    for module, path in modules("core/domain"):
        for name in imports(path):
            assert within(name, "core.domain") or name.split(".")[0] in sys.stdlib_module_names, f"{module}: {name}"


def test_every_module_is_in_a_folder() -> None:
    """Then the folders above have all of them."""
    assert [path.name for path in (ROOT / "core").glob("*.py")] == ["__init__.py"]


def test_nobody_knows_the_simulator() -> None:
    """It plays the model on the engine; neither knows, nor does anybody else."""
    for package in OURS[:-1]:
        for module, path in modules(package):
            strays = [name for name in imports(path) if within(name, "simulate")]
            assert package == "simulate" or not strays, module


def test_the_model_of_a_cluster_knows_no_time_and_no_wire() -> None:
    """It asks its agenda what time it is, and its adapters send for it."""
    outside = (OUTSIDE_WORLD - {"random"}) | {"kornel.cli"}
    within_mock = {"model", "scenario", "queues"}
    for module, path in modules("shim_mock/model"):
        names = imports(path)
        assert not {name for name in names if name.split(".")[0] in outside}, module
        ours = [name.split(".")[1] for name in names if within(name, "shim_mock")]
        assert set(ours) <= within_mock, module


@pytest.mark.parametrize("package", WIRE_ONLY)
def test_shims_know_only_the_wire(package: str) -> None:
    """Clients, the commands, the simulated cluster and the conformance kit never import the core, nor the core them;
    but the core's own commands are made and written like all others."""
    for module, path in modules(package):
        assert not [name for name in imports(path) if within(name, "core")], module
    for module, path in modules("core"):
        if not (package == "cli" and within(module, "core.commands")):
            assert not [name for name in imports(path) if within(name, package)], module


def test_the_commands_name_the_core_once() -> None:
    """The table of commands finds those of the core by the name of their package; nothing else of it is known."""
    named = [
        f"{module}: {node.value}"
        for module, path in modules("cli")
        for node in list_nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "kornel.core" in node.value
    ]
    assert named == ["cli.loading: kornel.core.commands"]


def test_what_is_shared_knows_nothing_of_ours() -> None:
    """Everything may import it, the engine too."""
    for module, path in modules("shared"):
        assert not [name for name in imports(path) if name.partition(".")[0] in OURS], module


def test_nobody_imports_by_the_name_of_a_folder() -> None:
    """Tests and documents import by the names of an installation too; ``core`` may be anybody's."""
    for folder in ("tests", "docs"):
        for module, path in modules(folder):
            if MAY_IMPORT_BY_FOLDER.search(path.read_text()):
                assert not {name.partition(".")[0] for name in _imported_names(path)} & set(OURS), module
