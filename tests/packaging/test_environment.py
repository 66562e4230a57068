"""`make venv` and `make runtime`: which Python they take, when they make an environment anew, and what they install.

A stand-in for Python records what it is told; the last test builds a real environment from a fresh copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINIMUM = ">=3.11"
MOST_MEGABYTES = 200
STAND_IN = """#!/bin/sh
case $1 in
-c) echo {version} ;;
-m)
    echo "$@" >> {log}
    if [ "$2" = venv ]; then
        mkdir -p "$3/bin" "$3/lib/python{version}/site-packages"
        cp "$0" "$3/bin/python"
        echo "#!$(cd "$3" && pwd -P)/bin/python" > "$3/bin/pip"
        touch "$3/pyvenv.cfg"
    fi ;;
esac
"""


class Checkout:
    """A folder with what the environment is made from, and Pythons that only pretend."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder.parent / "log"
        (folder / "requirements").mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", folder)
        shutil.copy(ROOT / "requirements/environment.sh", folder / "requirements")
        (folder / "pyproject.toml").write_text(f'[project]\nrequires-python = "{MINIMUM}"\n')
        for lock in ("runtime", "build", "dev"):
            (folder / f"requirements/{lock}.lock").touch()
        self.age("pyproject.toml", "requirements/runtime.lock", "requirements/build.lock", "requirements/dev.lock")

    def age(self, *names: str) -> None:
        """Makes files older than anything that is made now."""
        for name in names:
            os.utime(self.folder / name, (0, 0))

    def python(self, version: str, name: str = "") -> str:
        file = self.folder.parent / (name or f"python{version}")
        file.write_text(STAND_IN.format(version=version, log=self.log))
        file.chmod(0o755)
        return str(file)

    def make(self, target: str, python: str = "", *, named: bool = False) -> subprocess.CompletedProcess[str]:
        """`make` with *python* as what the machine calls python3, or as what the caller names."""
        search = self.folder.parent / "search"
        search.mkdir(exist_ok=True)
        link = search / "python3"
        link.unlink(missing_ok=True)
        link.symlink_to(python or "/nowhere")
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
        command = ["make", "--no-print-directory", "-C", str(self.folder), target]
        return subprocess.run(
            [*command, f"PYTHON={python}"] if named else command,
            env=variables | {"PATH": f"{search}:{variables['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def done(self) -> list[str]:
        """What was asked of Python since the last time: a new environment, or files that were installed."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return ["new" if line.startswith("-m venv") else " ".join(re.findall(r"\w+\.lock|\.$", line)) for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


def test_the_script_reads_the_version_that_the_project_declares() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert declared == MINIMUM
    assert f'\nrequires-python = "{declared}"\n' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
def test_an_old_python_is_refused_in_one_sentence(checkout: Checkout, version: str) -> None:
    done = checkout.make("venv", checkout.python(version))
    assert done.returncode != 0
    assert done.stderr.startswith(f"Kornel needs Python 3.11 or newer, and python3 is {version}. Name another: ")
    assert checkout.done() == []
    assert not (checkout.folder / ".venv").exists()


def test_a_python_that_is_not_there_is_said(checkout: Checkout) -> None:
    done = checkout.make("venv", "/nowhere/python3", named=True)
    assert done.returncode != 0
    assert "there is no /nowhere/python3 that starts" in done.stderr


def test_everything_is_installed_once(checkout: Checkout) -> None:
    python = checkout.python("3.12")
    assert checkout.make("venv", python).returncode == 0
    assert checkout.done() == ["new", "dev.lock", "."]
    assert checkout.make("venv", python).returncode == 0
    assert checkout.make("runtime", python).returncode == 0
    assert checkout.done() == []


def test_the_runtime_grows_into_the_whole(checkout: Checkout) -> None:
    python = checkout.python("3.11")
    assert checkout.make("runtime", python).returncode == 0
    assert checkout.done() == ["new", "runtime.lock build.lock", "."]
    assert checkout.make("runtime", python).returncode == 0
    assert checkout.done() == []
    assert checkout.make("venv", python).returncode == 0
    assert checkout.done() == ["dev.lock", "."]


def test_what_changed_is_installed_again(checkout: Checkout) -> None:
    python = checkout.python("3.11")
    for target, lock in (("runtime", "build"), ("venv", "dev")):
        checkout.make(target, python)
        checkout.done()
        later = (checkout.folder / ".venv/pyvenv.cfg").stat().st_mtime + 1000
        os.utime(checkout.folder / f"requirements/{lock}.lock", (later, later))
        assert checkout.make(target, python).returncode == 0
        assert checkout.done()[-1] == "."
        checkout.age(f"requirements/{lock}.lock")


def _remove_python(venv: Path) -> None:
    (venv / "bin/python").unlink()


def _point_nowhere(venv: Path) -> None:
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to("/nowhere/python3")


def _break_python(venv: Path) -> None:
    (venv / "bin/python").write_text("#!/bin/sh\nexit 1\n")


def _upgrade_python(venv: Path) -> None:
    (venv / "lib/python3.12").rename(venv / "lib/python3.11")


def _stop_halfway(venv: Path) -> None:
    (venv / "bin/pip").unlink()


def _move(venv: Path) -> None:
    (venv / "bin/pip").write_text("#!/elsewhere/.venv/bin/python\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_remove_python, "it has no Python that could be started"),
        (_point_nowhere, "it has no Python that could be started"),
        (_break_python, "its Python does not start"),
        (_upgrade_python, "its Python is 3.12 now, and it was made for another"),
        (_stop_halfway, "it was never completed"),
        (_move, "it was made in another folder"),
    ],
)
def test_a_broken_environment_is_made_anew(checkout: Checkout, damage: object, said: str) -> None:
    assert callable(damage)
    python = checkout.python("3.12")
    checkout.make("venv", python)
    checkout.done()
    damage(checkout.folder / ".venv")
    done = checkout.make("venv", python)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f".venv is made anew: {said}\n"
    assert checkout.done() == ["new", "dev.lock", "."]


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    python = checkout.python("3.12")
    checkout.make("runtime", python)
    checkout.done()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert checkout.make("runtime", python).returncode == 0
    assert checkout.done() == ["new", "runtime.lock build.lock", "."]


def test_another_version_is_taken_when_it_is_named_and_stays(checkout: Checkout) -> None:
    """What is only the default changes nothing, even where it is too old."""
    old, new = checkout.python("3.9"), checkout.python("3.13")
    checkout.make("venv", checkout.python("3.11"))
    checkout.done()
    assert checkout.make("venv", new, named=True).returncode == 0
    assert checkout.done() == ["new", "dev.lock", "."]
    assert checkout.make("venv", old).returncode == 0
    assert checkout.done() == []
    refused = checkout.make("venv", old, named=True)
    assert refused.returncode != 0
    assert "is 3.9. Name another" in refused.stderr
    assert (checkout.folder / ".venv/bin/pip").exists()


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Checkout) -> None:
    (checkout.folder / ".venv/bin").mkdir(parents=True)
    (checkout.folder / ".venv/bin/mine").touch()
    done = checkout.make("venv", checkout.python("3.12"))
    assert done.returncode != 0
    assert "is no environment of Python" in done.stderr
    assert (checkout.folder / ".venv/bin/mine").exists()


@pytest.mark.long
def test_the_demo_needs_one_command_and_no_tools(tmp_path: Path) -> None:
    """From a fresh copy, into an environment that holds neither pytest nor a linter."""
    fresh = tmp_path / "fresh"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, fresh, symlinks=True, ignore=ignored)
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "MAKE", "VIRTUAL_ENV", "KORNEL"))
    }
    done = subprocess.run(
        ["make", "demo", "KIND=guarantee"], cwd=fresh, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    [packages] = (fresh / ".venv/lib").glob("python3.*/site-packages")
    assert not {"pytest", "mypy", "ruff", "playwright", "mkdocs"} & {path.name for path in packages.iterdir()}
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < MOST_MEGABYTES * 1_000_000
