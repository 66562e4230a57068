"""What a user installs: an sdist of the tree, the wheel that is built from it, and that in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

import kornel
from tests.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
VERSION: Final = kornel.__version__
COMMANDS: Final = ("kornel", "kornel-shim-mock", "kornel-local", "kornel-conformance")
SUPPORTED: Final = ("3.11", "3.12", "3.13")
LINKS: Final = {path.name: path.resolve() for path in (ROOT / "kornel").iterdir() if path.is_symlink()}
"""The folder of each package by the name that it has below ``kornel``."""
TOLD: Final = ("CHANGELOG.md", *(f"docs/releases/{path.name}" for path in (ROOT / "docs/releases").iterdir()))
"""What users are told of releases. In the wheel it is in ``share/doc/kornel``."""
BUILT_WITH: Final = (".gitignore", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml", *TOLD)
"""The files in the sdist with which the wheel is built, and which are not in its packages."""
ABOUT: Final = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


@dataclass(frozen=True)
class Environment:
    """An environment outside the checkout, and a working directory to run it in."""

    bin: Path
    cwd: Path

    def run(self, program: str, *arguments: str) -> str:
        """Standard output of a *program* of the environment. Fails the test, with all output, if it fails."""
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.cwd,
            env=self.variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def variables(self) -> dict[str, str]:
        """Returns the environment variables of a program, none of which leads Python to the checkout."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return variables | {"COLUMNS": "120", "NO_COLOR": "1"}

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Yields the address of a core that the environment's own program serves."""
        ready = self.cwd / "ready"
        arguments = ("--grpc", "127.0.0.1:0", "--rest-address", "off", "--ready-file", str(ready))
        with (
            (self.cwd / "log").open("w+b") as log,
            subprocess.Popen(
                [self.bin / "kornel", "serve", *arguments], cwd=self.cwd, env=self.variables(), stdout=log, stderr=log
            ) as core,
        ):
            try:
                wait_until(lambda: ready.exists() or core.poll() is not None, "the core to serve")
                assert core.poll() is None, (self.cwd / "log").read_text()
                yield ready.read_text().strip()
            finally:
                core.terminate()
        assert core.returncode == 0, (self.cwd / "log").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist of this tree, and the wheel that is built from the sdist."""
    return build_distributions(ROOT, tmp_path_factory.mktemp("dist"))


def build_distributions(tree: Path, target: Path, *options: str) -> Path:
    """Builds sdist and wheel of *tree* with the tools that are installed here. Returns *target*, where they are."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", target, tree]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel, and with what the lock file names for it and nothing else."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", symlinks=True)
    [packages] = (home / "venv/lib").glob("python3.*/site-packages")
    link_locked_packages(packages)
    environment = Environment(home / "venv" / "bin", home)
    run_pip(environment, "install", "--no-deps", "--no-index", str(built / f"kornel-{VERSION}-py3-none-any.whl"))
    return environment


def link_locked_packages(folder: Path) -> None:
    """Makes the packages that Kornel is locked to, as they are installed here, importable from *folder* too."""
    lock = (ROOT / "requirements/runtime.lock").read_text()
    for requirement in map(Requirement, re.findall(r"^[\w.-]+==[^\\\n]+", lock, re.MULTILINE)):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        package = distribution(requirement.name)
        assert requirement.specifier.contains(package.version), f"{requirement} is not what is installed"
        for file in package.files or ():
            if ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).symlink_to(package.locate_file(file))


def run_pip(environment: Environment, *arguments: str) -> None:
    """Runs this environment's pip for another one, which has none."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python")
    done = subprocess.run([*pip, environment.bin / "python", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def list_sources(*folders: Path) -> list[Path]:
    """Returns the files below *folders* that git tracks, or would track if they were added."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git, so nobody tells which files are sources")
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *map(str, folders))
    names = subprocess.run(
        ["git", "-c", "safe.directory=*", *listing], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def name_in_wheel(source: Path) -> str:
    """Returns the name in an installation of a file that belongs there, by the links in ``kornel/``."""
    folders = {**LINKS, "conformance/spec": ROOT / "docs" / "spec"}
    for name, folder in folders.items():
        if source.is_relative_to(folder):
            return f"kornel/{name}/{source.relative_to(folder).as_posix()}"
    return source.relative_to(ROOT).as_posix()


def test_distributions_hold_what_git_tracks_and_nothing_else(built: Path) -> None:
    """The sdist has it under the names of the tree, the wheel under those by which it is imported, byte for byte."""
    sources = list_sources(ROOT / "kornel", ROOT / "docs" / "spec", *LINKS.values())
    assert len(sources) > 900
    with tarfile.open(built / f"kornel-{VERSION}.tar.gz") as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        packed = {name.partition("/")[2]: file.read() for name, file in files.items() if file is not None}
    expected = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sources}
    about = packed.pop("PKG-INFO")
    assert f"\nVersion: {VERSION}\n".encode() in about
    compare_files(packed, expected | {name: (ROOT / name).read_bytes() for name in BUILT_WITH})
    with zipfile.ZipFile(built / f"kornel-{VERSION}-py3-none-any.whl") as archive:
        names = archive.namelist()
        held = {name: archive.read(name) for name in names if ".dist-info/" not in name}
    documents = f"kornel-{VERSION}.data/data/share/doc/kornel/"
    told = {name.removeprefix(documents): held.pop(name) for name in names if name.startswith(documents)}
    compare_files(told, {name: (ROOT / name).read_bytes() for name in TOLD})
    assert len(names) == len(set(names))
    assert {name.partition("/")[2] for name in names if name.startswith(f"kornel-{VERSION}.dist-info/")} == set(ABOUT)
    compare_files(held, {name_in_wheel(path): path.read_bytes() for path in sources})


def compare_files(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Fails the test with the names of the files that are missing, too many or different."""
    missing, unexpected = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    assert not missing
    assert not unexpected
    assert not [name for name, content in expected.items() if found[name] != content]


@pytest.mark.long
def test_the_image_gets_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """The container's build sees of the tree only what .dockerignore lets in, and has no sdist in between."""
    context = tmp_path / "context"
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        for path in ROOT.glob(line[1:]) if line.startswith("!") else ():
            to = context / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, to)
    name = f"kornel-{VERSION}-py3-none-any.whl"
    with (
        zipfile.ZipFile(built / name) as wheel,
        zipfile.ZipFile(build_distributions(context, tmp_path, "--wheel") / name) as other,
    ):
        assert other.namelist() == wheel.namelist()
        assert not [one for one in wheel.namelist() if other.read(one) != wheel.read(one)]


@pytest.mark.long
def test_the_installed_core_serves(installed: Environment) -> None:
    """The programs of the environment talk to each other over gRPC."""
    check_serving(installed)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_explain_themselves(installed: Environment, command: str) -> None:
    """Each program prints its usage, and the version."""
    check_command(installed, command)


def check_serving(environment: Environment) -> None:
    with environment.serve() as address:
        assert environment.run("kornel", "health", "--core", address) == "SERVING\n"
        assert environment.run("kornel", "status", "--core", address).startswith(f"core {VERSION}, ")


def check_command(environment: Environment, command: str) -> None:
    assert "usage" in environment.run(command, "--help").lower()
    assert environment.run(command, "--version") == f"{command} {VERSION}\n"


@pytest.mark.long
@pytest.mark.parametrize("number", SUPPORTED)
def test_every_python_runs_what_its_pip_makes_of_the_sdist(built: Path, tmp_path: Path, number: str) -> None:
    """The Pythons that are on this machine install the sdist, with what the lock file names, and run the programs."""
    venv_folder = tmp_path / "venv"
    subprocess.run([find_python(number), "-m", "venv", venv_folder], check=True, capture_output=True)
    environment = Environment(venv_folder / "bin", tmp_path)
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-compile")
    environment.run("python", *pip, "--require-hashes", "-r", str(ROOT / "requirements/runtime.lock"))
    environment.run("python", *pip, str(built / f"kornel-{VERSION}.tar.gz"))
    assert environment.run("python", "--version").startswith(f"Python {number}.")
    check_serving(environment)
    for command in COMMANDS:
        check_command(environment, command)


def find_python(number: str) -> str:
    """Returns the first Python of the version *number* that starts; skips the test where there is none."""
    managed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob(f"versions/{number}.*/bin")
    for folder in (*os.get_exec_path(), *managed):
        path = Path(folder) / f"python{number}"
        # A version manager may have left a command that only says that the version is not chosen.
        if path.is_file() and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(path)
    pytest.skip(f"Python {number} is not installed")


@pytest.mark.long
def test_nothing_comes_from_the_checkout(installed: Environment) -> None:
    """Every package, stubs included, is imported from the environment, with warnings as errors, and says what its
    metadata say."""
    lines = [
        "import sys, kornel.core, kornel.cli, kornel.shared, kornel.shim_client, kornel.shim_mock",
        "import kornel.shim_local, kornel.conformance, kornel.simulate",
        "import kornel.si.v1.si_pb2_grpc, kornel.v1.configuration_pb2_grpc, kornel.v1.status_pb2_grpc",
        "from importlib.metadata import version",
        "loaded = [m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)]",
        "print(kornel.__file__, kornel.__version__, version('kornel'), *sys.path, *loaded, sep='\\n')",
    ]
    file, *versions, paths = installed.run("python", "-W", "error", "-c", "\n".join(lines)).split("\n", 3)
    assert file.startswith(f"{installed.bin.parent}{os.sep}")
    assert versions == [VERSION, VERSION]
    assert not [path for path in paths.split("\n") if path.startswith(f"{ROOT}{os.sep}")]
    assert "si/v1/si_pb2_grpc.py\n" in paths


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
def test_locked_versions_satisfy_the_declared_ones(installed: Environment) -> None:
    """The lock file names every dependency the wheel declares, in a version it allows."""
    run_pip(installed, "check")


@pytest.mark.long
def test_folders_of_another_project_are_not_ours(installed: Environment, tmp_path: Path) -> None:
    """A project that has packages by the names of our folders, as many have a ``core``, is none of our business."""
    for name in LINKS:
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

def save_and_exit(number, frame):
    late = float(pathlib.Path(os.environ["KORNEL_PREEMPT_AT"]).read_text()) - time.time()
    saved.write_text(str(done))
    print("saves with", late > 0, flush=True)
    sys.exit(0)

signal.signal(signal.SIGUSR1, save_and_exit)
print("begins at", done, flush=True)
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
        wait_until(lambda: text in local("logs", job), f"{text!r} to be in the log of {job}")

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
