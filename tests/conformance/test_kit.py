"""The kit itself: its command against a core in another process, and what it may know."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from conformance.case import Case, all_cases
from conformance.cli import run
from conformance.entries import Entry, Kind, Want, new, released
from conformance.known_gaps import GAPS
from conformance.messages import allocation
from conformance.runner import Result, Verdict, judged, select

ROOT = Path(__file__).parents[2]
START_S = 20.0


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the kit's command."""
    return subprocess.run(
        [sys.executable, "-m", "conformance", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", "PATH": "", "COLUMNS": "200"}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A core in a process of its own."""
    ready = tmp_path / "ready"
    core = subprocess.Popen(
        [sys.executable, "-m", "core", "serve", "--grpc", "127.0.0.1:0", "--ready-file", str(ready)],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    try:
        give_up = time.monotonic() + START_S
        while not ready.exists():
            assert core.poll() is None, "the core ended"
            assert time.monotonic() < give_up, "the core did not start"
            time.sleep(0.02)
        yield ready.read_text().strip()
    finally:
        core.send_signal(signal.SIGTERM)
        assert core.wait(START_S) == 0


def test_command_against_a_process(address: str) -> None:
    """The command runs chosen cases one after the other on one core, and exits 0 when all pass."""
    numbers = (1, 3, 7, 26, 48, 73, 101, 129, 138, 150)
    cases = [word for number in numbers for word in ("--case", str(number))]
    done = command("--core", address, "--json", *cases)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {entry["case"]: entry["verdict"] for entry in json.loads(done.stdout)}
    assert verdicts == dict.fromkeys(numbers, "pass")


def test_command_tells_of_failures(address: str) -> None:
    """A case that fails is in the table with what was expected, and the exit status is 1; slow ones are skipped."""
    gap = next(str(case.number) for case in all_cases() if case.number in GAPS and not case.waits_s)
    done = command("--core", address, "--deadline", "0.5", "--case", gap, "--case", "107")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 fail, 1 skip" in done.stdout
    assert "expected" in done.stdout
    expected = command("--core", address, "--deadline", "0.5", "--case", gap, "--expect-gaps")
    assert expected.returncode == 0
    assert "1 gap" in expected.stdout


def test_command_without_a_core() -> None:
    """An address where nobody serves, or that is no core for the kit, is not a failed case: exit status 2."""
    done = command("--core", "127.0.0.1:1", "--case", "1")
    assert done.returncode == 2
    assert "cannot register at 127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("arguments", [["--case", "9999"], ["--group", "nothing"]])
def test_unknown_selection(arguments: list[str]) -> None:
    """An unknown case or group is refused with its name."""
    app = typer.Typer()
    app.command()(run)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert arguments[1] in done.output


def test_no_module_imports_the_core() -> None:
    """The kit knows only the wire."""
    for path in (ROOT / "conformance").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name == "core" or name.startswith("core.")], path


async def _nothing(_: object) -> None: ...


def a_case(number: int, group: str = "g") -> Case:
    return Case(number, "title", group, _nothing)


def test_gaps_are_judged_both_ways() -> None:
    """A known gap may fail and must not pass; what is skipped stays skipped."""
    gaps = {1: "later"}
    verdicts = {
        verdict: judged(Result(a_case(1), verdict), gaps).verdict
        for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.SKIP)
    }
    assert verdicts == {
        Verdict.PASS: Verdict.FAIL,
        Verdict.FAIL: Verdict.GAP,
        Verdict.SKIP: Verdict.SKIP,
    }
    assert judged(Result(a_case(2), Verdict.FAIL), gaps).verdict is Verdict.FAIL


def test_selection_is_a_union_in_order() -> None:
    """Numbers and groups add up; nothing chosen means everything."""
    cases = (a_case(1, "a"), a_case(2, "b"), a_case(3, "a"))
    assert select(cases) == cases
    assert [each.number for each in select(cases, [3], ["b"])] == [2, 3]


def test_patterns_compare_what_they_name() -> None:
    """A pattern without a detail takes any; a wrong kind, key, detail or application does not match."""
    entry = Entry(Kind.NEW, "k", "n1", "app", 1, allocation("k"))
    assert new("k").matches(entry)
    assert new("k", "n1", "app").matches(entry)
    others: list[Want] = [new("x"), new("k", "n2"), new("k", "n1", "other"), released("k")]
    assert not any(want.matches(entry) for want in others)
