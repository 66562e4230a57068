"""How this suite itself is run: what is left out, what is dealt out, what is said at the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.examples import PART, scale_examples
from tests.missing_programs import PROGRAMS, describe_missing
from tests.patience import PATIENCE_S
from tests.temporary import prefer_memory
from tests.workers import BROWSERS, COSTS, Occupancy, group_tests, name_unit

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, plugin: str = "tests.workers") -> subprocess.CompletedProcess[str]:
    """Runs pytest in *folder*, which has no configuration of its own.

    It keeps its temporary files there: elsewhere it would remove old ones, and fail where a disk is still mounted.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            plugin,
            "--rootdir",
            str(folder),
            *arguments,
        ],
        cwd=folder,
        env=environment
        | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_DEBUG_TEMPROOT": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )


def test_programs_that_are_missing_are_told_in_one_line() -> None:
    reasons = ["no browser at /usr/bin/chromium-headless-shell: install it"] * 2
    reasons += ["helm is not installed", "curl is not installed", "no token is revoked here"]
    assert describe_missing(reasons) == (
        "4 tests skipped, because these are missing: a browser (2), helm (1), curl (1)."
        " To get them: apt-get install chromium-headless-shell curl, https://helm.sh/docs/intro/install"
    )
    assert describe_missing(["no token is revoked here"]) == ""


def test_what_tells_a_missing_program_is_what_tests_say() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    here = (
        Path(__file__).read_text(encoding="utf-8"),
        (ROOT / "tests/missing_programs.py").read_text(encoding="utf-8"),
    )
    unsaid = [known for known in PROGRAMS if not any(known in text for text in texts if text not in here)]
    assert not unsaid


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/unit/test_a.py::test_b[c::d]", "tests/unit/test_a.py"),
        ("tests/e2e/test_a.py::test_b[c::d]", "tests/e2e/test_a.py::test_b[c::d]"),
        ("tests/architecture/test_a.py::test_b[core/c.py]", "tests/architecture"),
        ("tests/e2e/toy_kind/test_a.py::test_b", "tests/e2e/toy_kind/test_a.py"),
    ],
)
def test_files_that_share_something_stay_together(test: str, unit: str) -> None:
    assert name_unit(test) == unit


def test_the_costliest_units_come_first() -> None:
    tests = ["tests/unit/a.py::1", "tests/e2e/b.py::1", "tests/unit/a.py::2", "tests/e2e/b.py::2", "tests/unit/c.py::1"]
    costs = {"tests/e2e/b.py::2": 3.0, "tests/unit/c.py": 7.0}
    assert group_tests(tests, costs) == [[4], [3], [0, 2], [1]]


@pytest.mark.parametrize(
    ("units", "idle", "then"),
    [(6, 20, 8), (11, 90, 12), (8, 3, 8), (8, 0, 7), (6, 0, 6)],
    ids=["more", "most", "as many", "fewer", "least"],
)
def test_as_many_units_run_as_keep_processors_busy(units: int, idle: int, then: int) -> None:
    assert Occupancy(6, 12).adapt(units, idle, 100) == then


BROWSES = """
import os, pathlib, pytest, time
@pytest.mark.parametrize("n", range(8))
def test_it(n):
    pathlib.Path("browsed", str(os.getpid())).touch()
    pathlib.Path("test", str(n)).touch()
"""
WAITS_FOR_THEM = """
import pathlib, time
def test_it():
    while len(list(pathlib.Path("test").iterdir())) < 8: time.sleep(0.01)
"""


def test_few_workers_start_a_browser(tmp_path: Path) -> None:
    """Others take nothing that needs one, even if they have nothing else to do."""
    for folder in ("browsed", "test", "tests/e2e/web", "tests/unit"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests/e2e/web/test_made.py").write_text(BROWSES, encoding="utf-8")
    (tmp_path / "tests/unit/test_made.py").write_text(WAITS_FOR_THEM, encoding="utf-8")
    done = run(tmp_path, "--workers", "6", "--import-mode=importlib")
    assert "9 passed" in done.stdout, done.stdout
    assert 1 <= len(list((tmp_path / "browsed").iterdir())) <= BROWSERS


def test_temporary_files_are_kept_in_memory_if_programs_can_run_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)
    prefer_memory(tmp_path / "missing", 0)
    prefer_memory(tmp_path, 2**60)
    with monkeypatch.context() as patch:
        patch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC, f_bavail=2**40, f_frsize=1))
        prefer_memory(tmp_path, 0)
    assert "TMPDIR" not in os.environ
    prefer_memory(tmp_path, 0)
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    prefer_memory(tmp_path, 0)
    assert os.environ["TMPDIR"] == "/elsewhere"


def test_costs_are_those_of_tests_that_exist() -> None:
    """``make test-costs`` writes them again."""
    known: dict[str, float] = json.loads(COSTS.read_text(encoding="utf-8"))
    for unit in known:
        file, *test = unit.partition("[")[0].split("::")
        assert (ROOT / file).exists(), unit
        text = (ROOT / file).read_text(encoding="utf-8") if test else ""
        # A machine of Hypothesis has a test that it has not written.
        assert all(re.search(rf"\b{name}\b", text) for name in test if name != "runTest"), unit


SHARES = """
import os, pathlib, pytest
@pytest.fixture(scope="session")
def shared():
    yield os.getpid()
    pathlib.Path("removed", str(os.getpid())).touch()
@pytest.fixture(scope="module")
def near():
    yield
    pathlib.Path("left").touch()
@pytest.mark.parametrize("n", range(3))
def test_it(n, shared, near):
    print("process", shared)
    assert shared == os.getpid() and shared == int(os.environ.setdefault("FIRST", str(shared)))
    if n == 1: os.kill(os.getpid(), 9)
"""
FOLLOWS = """
import pathlib
def test_it(): assert pathlib.Path("left").exists()
"""


def test_a_worker_that_dies_fails_one_test(tmp_path: Path) -> None:
    """Others go on behind it; what tests share lives as long as its file or its worker, and is removed then."""
    (tmp_path / "removed").mkdir()
    (tmp_path / "test_first.py").write_text(SHARES, encoding="utf-8")
    (tmp_path / "test_second.py").write_text(FOLLOWS, encoding="utf-8")
    done = run(tmp_path, "--workers", "1", "-s")
    assert "3 passed" in done.stdout, done.stdout
    assert "\ntest_first.py::test_it[1]: its worker died (SIGKILL)\n" in done.stdout
    processes = re.findall(r"process (\d+)", done.stdout)
    assert len(set(processes)) == 2
    assert [path.name for path in (tmp_path / "removed").iterdir()] == processes[-1:]


LEAKS = """
class Cycle:
    def __init__(self, held): self.held, self.itself = held, self
def test_first(): pass
def test_last(): Cycle(open("left", "wb"))
"""


def test_what_a_file_leaves_open_fails_its_last_test(tmp_path: Path) -> None:
    """Whatever the tests of other files do, in which the collector of cycles might meet it."""
    (tmp_path / "test_leaks.py").write_text(LEAKS, encoding="utf-8")
    (tmp_path / "test_others.py").write_text("import gc\ndef test_it(): gc.collect()", encoding="utf-8")
    done = run(tmp_path, "--workers", "1", "-W", "error")
    assert "3 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_leaks.py::test_last" in done.stdout
    assert "unclosed file" in done.stdout


TOO_LONG = "import time\ndef test_it(): time.sleep(60)"


def test_who_takes_too_long_is_told_so(tmp_path: Path) -> None:
    """The time is long enough for the test to have begun, on a busy machine too."""
    (tmp_path / "test_made.py").write_text(TOO_LONG, encoding="utf-8")
    done = run(tmp_path, "-p", "pytest_timeout", "--timeout", "3", "--workers", "1")
    assert "Timeout (>3.0s)" in done.stdout, done.stdout


def test_examples_are_scaled_by_the_profile(request: pytest.FixtureRequest) -> None:
    whole = request.config.getoption("--hypothesis-profile") not in (None, "brief")
    assert scale_examples(500) == (500 if whole else 500 // PART)
    assert scale_examples(3) == (3 if whole else 2)


DRAWS = """
from hypothesis import given, settings, strategies
@given(number=strategies.integers(0, 10**30))
def test_it(number): print("drawn", number)
"""


def draw_examples(folder: Path, *options: str) -> list[str]:
    """Returns what a property draws in a run of its own with the suite's settings."""
    (folder / "test_made.py").write_text(DRAWS, encoding="utf-8")
    done = run(folder, "-p", "_hypothesis_pytestplugin", "-s", *options, plugin="tests.conftest")
    assert done.returncode == 0, done.stdout
    assert not (folder / ".hypothesis/examples").exists()
    return [line for line in done.stdout.splitlines() if "drawn" in line]


@pytest.mark.long
def test_examples_are_new_only_where_a_seed_is_named(tmp_path: Path) -> None:
    """Otherwise a change could fail for a find that has nothing to do with it."""
    usual = draw_examples(tmp_path)
    assert len(usual) == 25
    assert draw_examples(tmp_path) == usual
    assert draw_examples(tmp_path, "--hypothesis-seed=7") != usual
