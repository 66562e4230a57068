"""What a user installs: the wheel, in an environment that knows nothing of this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "shim_client", "shim_mock", "shim_local", "conformance", "si", "v1")

# Building an environment fetches and unpacks the locked dependencies.
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Environment:
    """An environment outside the checkout, and a working directory to run it in."""

    bin: Path
    cwd: Path

    def run(self, program: str, *arguments: str) -> str:
        """Standard output of a *program* of the environment. Fails the test, with all output, if it fails."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.cwd,
            env=variables | {"COLUMNS": "120", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target)]
    subprocess.run([sys.executable, *command, str(ROOT)], check=True)
    (built,) = target.glob("kornel-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", with_pip=True)
    environment = Environment(home / "venv" / "bin", home)
    pip = ("-m", "pip", "install", "--quiet", "--no-deps")
    environment.run("python", *pip, "--require-hashes", "-r", str(ROOT / "requirements/runtime.lock"))
    environment.run("python", *pip, "--no-index", str(wheel))
    return environment


@pytest.mark.long
def test_wheel_holds_all_packages_and_nothing_else(wheel: Path) -> None:
    """One name, ``kornel``, and the metadata are all that the wheel puts into an environment."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"kornel"}
    assert {name.split("/")[1] for name in names} == {*PACKAGES, "__init__.py", "__main__.py", "py.typed"}
    assert len(names) == len(set(names))


@pytest.mark.long
def test_wheel_holds_the_contract_and_the_licence(wheel: Path) -> None:
    """The .proto files travel with the stubs made from them, type information and the licence too."""
    names = zipfile.ZipFile(wheel).namelist()
    protos = {f"kornel/v1/{path.name}" for path in (ROOT / "proto" / "kornel" / "v1").glob("*.proto")}
    assert protos | {"kornel/si/v1/si.proto"} <= set(names)
    assert len(protos) > 5
    assert {"kornel/si/v1/si_pb2.pyi", "kornel/py.typed"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.long
def test_wheel_holds_the_rules(wheel: Path) -> None:
    """The pages that the conformance kit cites, as they are in the sources."""
    pages = {f"kornel/conformance/spec/{path.name}": path.read_bytes() for path in (ROOT / "docs" / "spec").iterdir()}
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if name.startswith("kornel/conformance/spec/")}
    assert held == pages
    assert len(held) == 5


@pytest.mark.long
def test_cited_rules_can_be_read_from_the_wheel(installed: Environment) -> None:
    """Whoever has only the wheel reads what a report cites."""
    assert installed.run("kornel-conformance", "rule", "protocol.md", "8.2").startswith(
        "### 8.2 A known key, sent again"
    )
    assert installed.run("kornel-conformance", "rule", "--case", "83").startswith("83. ")


@pytest.mark.long
def test_history_database_is_made_from_the_wheel(installed: Environment) -> None:
    """The migrations are in the wheel, and Alembic finds them there."""
    lines = [
        "from kornel.core.archive.database import Database",
        "from kornel.core.archive.settings import history_settings",
        "settings = history_settings('history.db')",
        "Database(settings.url, 5.0).prepare_tables()",
        "import sqlite3",
        "print(*sqlite3.connect('history.db').execute('SELECT version_num FROM history_version'))",
    ]
    assert installed.run("python", "-W", "error::DeprecationWarning", "-c", "\n".join(lines)).strip() == "('0004',)"


@pytest.mark.long
def test_wheel_holds_the_web_page(wheel: Path) -> None:
    """Every file that the page is made of is there, and no other kind of file."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("kornel/core/web/static/")}
    page = ROOT / "core" / "web" / "static"
    assert names == {f"kornel/{path.relative_to(ROOT).as_posix()}" for path in page.rglob("*") if path.is_file()}
    assert {"kornel/core/web/static/index.html", "kornel/core/web/static/app/main.js"} <= names


@pytest.mark.long
def test_locked_versions_satisfy_the_declared_ones(installed: Environment) -> None:
    """The lock file names every dependency the wheel declares, in a version it allows."""
    installed.run("python", "-m", "pip", "check")


@pytest.mark.long
@pytest.mark.parametrize("command", ["kornel", "kornel-shim-mock", "kornel-local", "kornel-conformance"])
def test_commands_explain_themselves(installed: Environment, command: str) -> None:
    """Each console script runs and prints its usage."""
    assert "usage" in installed.run(command, "--help").lower()


@pytest.mark.long
def test_nothing_comes_from_the_checkout(installed: Environment) -> None:
    """Every package, stubs included, is imported from the environment, with warnings as errors."""
    lines = [
        "import sys, kornel.core, kornel.shim_client, kornel.shim_mock, kornel.shim_local, kornel.conformance",
        "import kornel.si.v1.si_pb2_grpc, kornel.v1.configuration_pb2_grpc, kornel.v1.status_pb2_grpc",
        "loaded = [m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)]",
        "print(*sys.path, *loaded, sep='\\n')",
    ]
    paths = installed.run("python", "-W", "error", "-c", "\n".join(lines)).split("\n")
    assert not [path for path in paths if path.startswith(f"{ROOT}{os.sep}")]
    assert any(path.endswith("si/v1/si_pb2_grpc.py") for path in paths)


@pytest.mark.long
def test_folders_of_another_project_are_not_ours(installed: Environment, tmp_path: Path) -> None:
    """A project that has packages by the names of our folders, as many have a ``core``, is none of our business."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('{name} of another project')\n")
    beside = Environment(installed.bin, tmp_path)
    assert "expected" in beside.run("kornel-shim-mock", "demo", "--kind", "guarantee")
    assert beside.run("python", "-m", "kornel", "version").startswith("kornel")


TRAINING = """\
import os, pathlib, signal, sys, time

saved, done = pathlib.Path("saved"), 0
if saved.exists():
    done = int(saved.read_text())
print("begins at", done, flush=True)

def save_and_exit(number, frame):
    late = float(pathlib.Path(os.environ["KORNEL_PREEMPT_AT"]).read_text()) - time.time()
    saved.write_text(str(done))
    print("saves with", late > 0, flush=True)
    sys.exit(0)

signal.signal(signal.SIGUSR1, save_and_exit)
while not (saved.exists() and pathlib.Path("enough").exists()):
    done += 1
    time.sleep(0.05)
print("ends", flush=True)
"""


@pytest.mark.long
def test_training_is_preempted_and_resumed(installed: Environment, tmp_path: Path) -> None:
    """A user without Kubernetes installs the wheel, says ``kornel-local up``, submits, and sees just that."""
    (tmp_path / "train.py").write_text(TRAINING)
    user = Environment(installed.bin, tmp_path)
    python = str(installed.bin / "python")

    def local(*words: str) -> str:
        return user.run("kornel-local", "--state", str(tmp_path / "s"), *words)

    def wait_for_log(job: str, text: str) -> None:
        end = time.monotonic() + 60
        while text not in local("logs", job):
            assert time.monotonic() < end, f"{text!r} is not in the log of {job}"

    try:
        assert local("up", "--vcore", "2").startswith("up\n")
        training = local("submit", "--vcore", "2", "--", python, "train.py").strip()
        wait_for_log(training, "begins at 0")
        urgent = local("submit", "--queue", "urgent", "--vcore", "2", "--", "sleep", "0.1").strip()
        local("wait", urgent)
        wait_for_log(training, "begins at ")
        assert "preempted once, attempt 2" in local("ps")
        (tmp_path / "enough").touch()
        local("wait", training)
        assert local("logs", "--attempt", "1", training).splitlines() == ["begins at 0", "saves with True"]
        resumed = local("logs", training).splitlines()
        assert int(resumed[0].removeprefix("begins at ")) > 0
        assert resumed[-1] == "ends"
    finally:
        local("down", "--cancel")


@pytest.mark.long
def test_installed_version_is_the_declared_one(installed: Environment) -> None:
    """Metadata of the installed wheel and of the checkout agree."""
    code = "from importlib.metadata import version; print(version('kornel'))"
    assert installed.run("python", "-c", code).strip() == version("kornel")


@pytest.mark.parametrize("name", ["build", "dev"])
def test_lock_files_agree(name: str) -> None:
    """A package has the same version, with hashes and from no particular host, in every lock file."""
    locks = {lock: (ROOT / f"requirements/{lock}.lock").read_text() for lock in ("runtime", name)}
    pins = {lock: dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)) for lock, text in locks.items()}
    shared = pins["runtime"].keys() & pins[name].keys()
    assert {package: pins[name][package] for package in shared} == {
        package: pins["runtime"][package] for package in shared
    }
    assert all(pins.values())
    assert not [text for text in locks.values() if "://" in text or "--index" in text]
    for text in locks.values():
        pinned = re.findall(r"^[\w.-]+==", text, re.MULTILINE)
        assert len(re.findall(r"^[\w.-]+==[^\n]*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(pinned)


def test_dev_lock_contains_the_runtime_lock() -> None:
    """What is tested is what is shipped: every runtime pin is a dev pin."""
    runtime, dev = (
        set(re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / f"requirements/{lock}.lock").read_text(), re.MULTILINE))
        for lock in ("runtime", "dev")
    )
    assert runtime <= dev
