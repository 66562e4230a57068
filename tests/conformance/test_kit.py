"""The kit itself: its command against a core in another process, its outputs, and what it may know."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import grpc
import grpc.aio
import pytest
from rich.console import Console
from typer.testing import CliRunner

from kornel.conformance.bench import Bench
from kornel.conformance.case import Case, select_cases
from kornel.conformance.cli import _run_cases, app
from kornel.conformance.clock import CoreClock, RealClock, clock_of
from kornel.conformance.connection import Settings
from kornel.conformance.entries import Entry, Kind, Want, new, released
from kornel.conformance.gaps import judge_result, load_gaps
from kornel.conformance.messages import allocation
from kornel.conformance.outcome import Result, Verdict
from kornel.conformance.report import as_json, nothing_failed, print_report, verdict_line, write_junit
from kornel.conformance.runner import run_case
from kornel.v1 import test_clock_pb2, test_clock_pb2_grpc
from tests.conformance.processes import ROOT, finished, served_core, served_process
from tests.e2e.harness import running_core
from tests.patience import PATIENCE_S
from tests.prepared import find_program


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A core in a process of its own."""
    with served_core(tmp_path) as where:
        yield where


def test_command_against_a_process(address: str, tmp_path: Path) -> None:
    """The command runs chosen cases one after the other on one core, and exits 0 when all pass."""
    chosen = [word for text in ("1", "3", "7-8", "26", "73", "129", "138", "150") for word in ("--case", text)]
    junit = tmp_path / "out" / "junit.xml"
    chosen += ["--deadline", f"{PATIENCE_S:g}"]
    done = finished("kornel.conformance", "core", "--address", address, "--json", "--junit", str(junit), *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert {entry["id"]: entry["verdict"] for entry in results} == dict.fromkeys(
        ("1", "3", "7", "8", "26", "73", "129", "138", "150"), "pass"
    )
    assert results[0]["rule"] == "protocol.md 5.1"
    suite = ET.parse(junit).getroot()  # noqa: S314 (written by us)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("9", "0", "0")


def test_command_tells_of_failures_and_gaps(address: str, tmp_path: Path) -> None:
    """What fails is named with what was expected; a known gap may fail, and what would take long is one."""
    chosen = ("--case", "1", "--case", "107")
    bad = tmp_path / "gaps.toml"
    bad.write_text('1 = "this core cannot do that"\n')
    done = finished("kornel.conformance", "core", "--address", address, "--gaps", str(bad), *chosen)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "passes, but is listed as a known gap: this core cannot do that" in " ".join(done.stdout.split())
    assert "needs a test clock, or 31 s of waiting" in " ".join(done.stdout.split())
    assert "does NOT conform: failed 1" in done.stdout


@pytest.mark.long
def test_pytest_against_an_address(address: str, tmp_path: Path) -> None:
    """``pytest tests/conformance --core-address`` runs the cases against that core."""
    gaps = tmp_path / "gaps"
    gaps.write_text("26 not yet\n")
    options = ("-q", "-rs", "-p", "no:cacheprovider", "--core-address", address, "--core-gaps", str(gaps))
    cases = [f"tests/conformance/test_contract.py::test_case[{number}]" for number in (1, 26, 107)]
    done = finished("pytest", *options, *cases)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "passes, but is listed as a known gap: not yet" in done.stdout
    assert "needs a test clock" in done.stdout
    assert "1 failed, 1 passed, 1 skipped" in done.stdout


def test_command_without_a_core() -> None:
    """An address where nobody serves, or that is no core for the kit, is not a failed case: exit status 3."""
    done = finished("kornel.conformance", "core", "--address", "127.0.0.1:1", "--case", "1")
    assert done.returncode == 3
    assert "cannot register at 127.0.0.1:1" in done.stderr


def test_the_core_dies(tmp_path: Path) -> None:
    """The run stops there, shows what was checked, names the case and exits 3."""
    with served_process(tmp_path) as (address, core):
        chosen = ("--case", "26", "--case", "171", "--case", "172")
        kill = ("--restart", f"kill -9 {find_program(core.pid)}; false")
        done = finished("kornel.conformance", "core", "--address", address, *chosen, *kill)
        core.wait(PATIENCE_S)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "2 cases: 1 pass, 1 fail: does NOT conform: failed 171" in done.stdout
    assert "error: stopped after case 171 (after a kill a shim" in done.stderr
    assert f"cannot register at {address}: " in done.stderr


@pytest.mark.parametrize(
    ("answers", "tried", "lost"),
    [(0, [], "cannot register at"), (1, ["1"], "stopped after case 1 (title): cannot register at")],
)
async def test_a_registration_hangs(answers: int, tried: list[str], lost: str) -> None:
    """It is said after the deadline, 5 s unless another is given, at the start and in a case."""

    left = iter(range(answers))

    async def answer(request: bytes, context: object) -> bytes:
        if next(left, None) is None:
            await asyncio.Event().wait()
        return b""

    async def register(bench: Bench) -> None:
        await bench.register()

    server = grpc.aio.server()
    method = {"RegisterResourceManager": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("si.v1.Scheduler", method),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    cases = [replace(a_case(number), script=register) for number in (1, 2)]
    results, why = await _run_cases(f"127.0.0.1:{port}", cases, 0.0, Settings(deadline_s=1.0), {})
    await server.stop(None)
    assert Settings().deadline_s == 5.0
    assert [result.case.id for result in results] == tried
    assert why.startswith(lost)
    assert why.endswith("connected, but no answer within 1 s")
    for result in results:
        assert result.reason == "expected an answer to the registration, but none came within 1 s"


def test_command_without_a_shim() -> None:
    """A command that cannot be started is not a shim that fails."""
    done = finished("kornel.conformance", "shim", "--", "no-such-shim", "--core", "{address}")
    assert done.returncode == 3
    assert "cannot start no-such-shim" in done.stderr


def test_shim_command(tmp_path: Path) -> None:
    """The address comes by environment too; the shim's own options stay its own; its output is kept."""
    script = "import os, sys; print(sys.argv[1:], os.environ['KORNEL_ADDRESS'] == sys.argv[2]); sys.exit(7)"
    options = ("--check", "s1", "--check", "S2", "--log", str(tmp_path))
    done = finished("kornel.conformance", "shim", *options, "--", sys.executable, "-c", script, "--junit", "{address}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 checks: 0 pass, 1 not seen, 1 fail: does NOT conform: failed S1" in done.stdout
    said = (tmp_path / "first.log").read_text()
    assert said.startswith("['--junit', '127.0.0.1:")
    assert said.endswith("True\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["core", "--case", "9999"], "there is no case 9999"),
        (["core", "--case", "x"], "neither a case number nor a range"),
        (["core", "--group", "nothing"], "there is no group nothing"),
        (["core", "--gaps", "no-such-file"], "cannot read the gaps"),
        (["shim", "--check", "S99", "--", "true"], "there is no check S99"),
        (["shim"], "give the command"),
    ],
)
def test_wrong_usage(arguments: list[str], complaint: str) -> None:
    """What is wrong is named, and the exit status is 2."""
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert complaint in " ".join(done.output.split())


@pytest.mark.parametrize(("kind", "first"), [("core", "1 registration"), ("shim", "S1 start")])
def test_listing(kind: str, first: str) -> None:
    """Everything that is checked, with its rule."""
    done = CliRunner().invoke(app, [kind, "--list"])
    assert done.exit_code == 0
    assert " ".join(done.output.split()).startswith(f"{first} protocol.md")


def test_no_module_imports_the_core() -> None:
    """The kit knows only the wire."""
    for path in (ROOT / "conformance").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if f"{name}.".startswith("kornel.core.")], path


async def _nothing(_: object) -> None: ...


def a_case(number: int, group: str = "g", waits_s: float = 0.0) -> Case:
    return Case(number, "title", "protocol.md 1", group, _nothing, waits_s)


def test_gaps_are_judged_both_ways() -> None:
    """A known gap may fail and must not pass; a gap for another reason stays one."""
    gaps = {"1": "later"}
    verdicts = {
        verdict: judge_result(Result(a_case(1), verdict), gaps).verdict
        for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.GAP)
    }
    assert verdicts == {Verdict.PASS: Verdict.FAIL, Verdict.FAIL: Verdict.GAP, Verdict.GAP: Verdict.GAP}
    assert judge_result(Result(a_case(2), Verdict.FAIL), gaps).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gaps.toml", '7 = "why"\n"9-10" = "because"\nS8 = "no gangs"\n'),
        ("gaps.yaml", "7: why\n9-10: because\nS8: no gangs\n"),
        ("gaps", "# ours\n7 why\n9-10  because # of that\n\nS8 no gangs\n"),
    ],
)
def test_gap_files(tmp_path: Path, name: str, text: str) -> None:
    """TOML, YAML and lines of text say the same; ranges are spread out."""
    path = tmp_path / name
    path.write_text(text)
    assert load_gaps(str(path)) == {"7": "why", "9": "because", "10": "because", "S8": "no gangs"}


@pytest.mark.parametrize(
    ("name", "text"), [("g.toml", "7 ="), ("g.yaml", "[7]"), ("g.yaml", "7: ''"), ("g.txt", "7"), ("g.toml", "x = 1")]
)
def test_bad_gap_files(tmp_path: Path, name: str, text: str) -> None:
    """A file that says something else is refused with its name."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load_gaps(str(path))


def test_selection_is_a_union_in_order() -> None:
    """Numbers, ranges and groups add up; nothing chosen means everything."""
    cases = (a_case(1, "a"), a_case(2, "b"), a_case(3, "a"), a_case(5, "c"))
    assert select_cases(cases) == cases
    assert [each.number for each in select_cases(cases, ["3-4"], ["b"])] == [2, 3]


def test_verdict_and_junit(tmp_path: Path) -> None:
    """One line for people, one file for machines, and nothing but a failure makes a core not conform."""
    results = [
        Result(a_case(1), Verdict.PASS, took_s=0.5),
        Result(a_case(2), Verdict.GAP, "later"),
        Result(a_case(3), Verdict.UNSEEN, "never"),
    ]
    assert nothing_failed(results)
    assert verdict_line(results, "cases") == "3 cases: 1 pass, 1 known gap, 1 not seen, 0 fail: conforms"
    results.append(Result(a_case(42), Verdict.FAIL, "expected <this>"))
    assert not nothing_failed(results)
    assert verdict_line(results, "cases").endswith("1 fail: does NOT conform: failed 42")
    write_junit(tmp_path / "junit.xml", results, "conformance.core")
    suite = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 (written by us)
    assert [suite.get(name) for name in ("tests", "failures", "skipped", "time")] == ["4", "1", "2", "0.500"]
    failed = suite.findall("testcase")[3]
    assert failed.get("name") == "42 title"
    assert failed.findall("properties/property")[0].attrib == {"name": "rule", "value": "protocol.md 1"}
    assert failed.findall("failure")[0].get("message") == "expected <this>"


def test_reports_write_what_a_peer_says_visibly(tmp_path: Path) -> None:
    """A core or shim under test can neither write on the terminal nor break the files for machines."""
    hostile = "\x1b[2J\x07\x9b\u202e\r\nFORGED [red]x[/] \x00\x7f\ud800"
    results = [Result(a_case(1), Verdict.FAIL, hostile), Result(a_case(2), Verdict.GAP, hostile)]
    output = io.StringIO()
    print_report(Console(file=output, width=500), results, "cases")
    assert all(line.isprintable() for line in output.getvalue().splitlines())
    assert r"\x1b[2J\x07\x9b\u202e\r\nFORGED [red]x[/] \x00\x7f\ud800" in output.getvalue()
    assert [each["reason"] for each in json.loads(as_json(results))] == [hostile, hostile]
    assert as_json(results).replace("\n", "").isprintable()
    write_junit(tmp_path / "junit.xml", results, "conformance.core")
    suite = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 (written by us)
    assert suite.findall("testcase/failure")[0].get("message", "").isprintable()


class _StandingClock(test_clock_pb2_grpc.TestClockServiceServicer):
    now_ns = 10**18

    async def AdvanceClock(
        self, request: test_clock_pb2.AdvanceClockRequest, context: object
    ) -> test_clock_pb2.AdvanceClockResponse:
        self.now_ns += request.by_ns
        return test_clock_pb2.AdvanceClockResponse(now_ns=self.now_ns)


async def test_a_core_with_a_test_clock_is_not_waited_for() -> None:
    """Its clock is moved; a core without one makes the kit wait, as long as its patience lasts."""
    server = grpc.aio.server()
    test_clock_pb2_grpc.add_TestClockServiceServicer_to_server(_StandingClock(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with clock_of(f"127.0.0.1:{port}") as clock:
        assert isinstance(clock, CoreClock)
        assert clock.patience_s == math.inf
        await clock.advance_time(3 * 24 * 3600)
        assert await clock.now_ns() == 10**18 + 3 * 24 * 3600 * 10**9
    await server.stop(None)
    async with running_core() as core, clock_of(core.address, 7.0) as clock:
        assert isinstance(clock, RealClock | CoreClock)
    too_long = await run_case(a_case(1, waits_s=8), "127.0.0.1:1", RealClock(7.0), Settings())
    assert (too_long.verdict, too_long.tried) == (Verdict.GAP, False)


def test_patterns_compare_what_they_name() -> None:
    """A pattern without a detail takes any; a wrong kind, key, detail or application does not match."""
    entry = Entry(Kind.NEW, "k", "n1", "app", 1, allocation("k"))
    assert new("k").matches_entry(entry)
    assert new("k", "n1", "app").matches_entry(entry)
    others: list[Want] = [new("x"), new("k", "n2"), new("k", "n1", "other"), released("k")]
    assert not any(want.matches_entry(entry) for want in others)
