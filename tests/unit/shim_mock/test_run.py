"""Whole runs: what is judged, how they end, and what a person gets to see."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from xml.etree import ElementTree as ET

import grpc
import pytest
from rich.console import Console
from typer.testing import CliRunner

from kornel.shim_client import RegistrationRefused, ResyncRequired
from kornel.shim_mock.cli import app
from kornel.shim_mock.picture import draw_run
from kornel.shim_mock.report import percentile, print_report
from kornel.shim_mock.run import RunResult, run_scenario
from kornel.si.v1 import si_pb2 as si
from tests.unit.shim_client.fake_core import End, FakeCore, serving
from tests.unit.shim_mock.scenarios import GOOD, small
from tests.unit.shim_mock.test_cluster import place_everything

PLACED = ("- nothing lost", "- all pods placed within 1m\n  - preempted at most 0 from root.batch")


async def played(core: FakeCore, *changes: tuple[str, str]) -> RunResult:
    async with serving(core) as address:
        return await run_scenario(small(*changes), address)


async def test_a_run_passes_when_every_expectation_is_met() -> None:
    """A core that places everything passes, and the run ends by itself once nothing can happen any more."""
    core = FakeCore()
    core.decide = place_everything
    result = await played(core, PLACED)
    assert result.passed
    assert [verdict.met for verdict in result.verdicts] == [True, True]
    assert not result.timed_out
    assert core.registrations[0].config.startswith("partitions:")


async def test_a_run_fails_when_time_runs_out() -> None:
    """An expectation whose time passes is not met, and says how far things got."""
    result = await played(FakeCore(), ("- nothing lost", "- all pods placed within 500ms"))
    assert not result.passed
    assert result.verdicts[0].detail == "not in time; 2 waiting, 0 not submitted"


async def test_preempting_below_a_guarantee_is_caught() -> None:
    """A core that evicts a queue below its guarantee is caught by the cluster's own books."""
    core = FakeCore()

    def evict_the_first(request: si.AllocationRequest) -> si.AllocationResponse | None:
        # In one message with the placements: a run ends when nothing happens for a moment.
        response = place_everything(request)
        if response is not None and len(core.asks) == 2:
            response.released.add(allocationKey="job-worker-0", terminationType=si.PREEMPTED_BY_SCHEDULER)
        return response

    core.decide = evict_the_first
    soon = ("releases:\n  delay: 10s", "releases:\n  delay: 1s")
    result = await played(core, soon, ("- nothing lost", "- queue root.batch never below guaranteed"))
    assert not result.passed
    assert result.verdicts[0].detail == "vcore 1.0 of 2.0 by preempting job-worker-0; once in all"


async def test_without_a_status_service_what_needs_it_is_not_met() -> None:
    """A core that serves only si.v1 can be played against; what only its books could show counts as not met."""
    core = FakeCore()
    core.decide = place_everything
    result = await played(core, ("- nothing lost", "- nothing lost\n  - no law violations"))
    assert result.status is None
    assert [verdict.met for verdict in result.verdicts] == [False, False]


async def test_latency_work_can_wait_for_quiet() -> None:
    """An application that comes after quiet is added only when the first one has been placed and all is still."""
    core = FakeCore()
    core.decide = place_everything
    late = (
        "  - id: late\n    queue: root.prod\n    after: quiet\n    tasks:\n      - name: x\n"
        "        resources: {vcore: 1}\n"
    )
    result = await played(core, PLACED, ("releases:\n", f"{late}releases:\n"))
    assert result.passed
    assert [ask.applicationID for ask in core.asks] == ["job", "job", "late"]


async def test_what_ends_a_stream_ends_the_run() -> None:
    """When the core forgets the RM the run raises that, not a group of consequences."""
    core = FakeCore()
    async with serving(core) as address:
        run = asyncio.create_task(run_scenario(small(), address))
        await core.until(lambda: core.asks)
        await core.say("allocation", End(grpc.StatusCode.FAILED_PRECONDITION, "who are you"))
        with pytest.raises(ResyncRequired, match="who are you"):
            await run


async def test_a_refused_configuration_is_raised() -> None:
    """A queue configuration that the core refuses ends the run before it starts."""
    core = FakeCore()
    core.refusal = End(grpc.StatusCode.INVALID_ARGUMENT, "no")
    with pytest.raises(RegistrationRefused):
        await played(core)


async def test_report_and_picture_show_the_run() -> None:
    """The report names queues and verdicts; the picture is well-formed and has a line per queue and a legend."""
    core = FakeCore()
    core.decide = place_everything
    result = await played(core, PLACED)
    output = io.StringIO()
    print_report(Console(file=output, width=120), result, picture=Path("x.svg"))
    assert "root.batch" in output.getvalue()
    assert "PASSED" in output.getvalue()
    picture = draw_run(result.cluster.accounts, {"vcore": 8000, "memory": 1}, title="a & b")
    root = ET.fromstring(picture)  # noqa: S314 (our own text)
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert kinds.count("polyline") == 2
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"a & b", "root.batch", "guaranteed", "real seconds"} <= set(texts)


async def test_report_writes_what_a_core_says_visibly() -> None:
    """Its messages go to the terminal of whoever runs the scenario."""
    core = FakeCore()
    core.decide = place_everything
    result = await played(core, PLACED)
    result.cluster.anomalies.append("\x1b[2J\x07\u202e\nFORGED [red]x[/]")
    output = io.StringIO()
    print_report(Console(file=output, width=200), result, picture=None)
    assert r"\x1b[2J\x07\u202e\nFORGED [red]x[/]" in output.getvalue()
    assert all(line.isprintable() for line in output.getvalue().splitlines())


@pytest.mark.parametrize(("percent", "value"), [(50, 2), (75, 3), (99, 4), (100, 4), (0, 1)])
def test_percentiles(percent: float, value: float) -> None:
    """A percentile is one of the values: the smallest that so many do not exceed."""
    assert percentile([4, 1, 3, 2], percent) == value
    assert percentile([], percent) == 0


def test_a_bad_scenario_exits_2_with_its_place(tmp_path: Path) -> None:
    """The command line prints file, line and field of a mistake and exits with 2."""
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("speed: 100", "speed: 0"), encoding="utf-8")
    outcome = CliRunner().invoke(app, ["run", str(path)])
    assert outcome.exit_code == 2
    assert f"{path}:3: speed: 0 is outside" in outcome.stderr


def test_no_core_exits_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that does not answer is named, with what to do about it, and the exit status is 3."""
    path = tmp_path / "good.yaml"
    path.write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr("kornel.shim_mock.cli.CONNECT_S", 0.2)
    outcome = CliRunner().invoke(app, ["run", str(path), "--core", "127.0.0.1:1"])
    assert outcome.exit_code == 3
    assert "no core answers at 127.0.0.1:1" in outcome.stderr


def test_a_bad_trace_exits_2(tmp_path: Path) -> None:
    """A folder without a trace is refused with 2."""
    outcome = CliRunner().invoke(app, ["trace", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "node_list" in outcome.stderr


def test_builtin_scenarios_are_listed() -> None:
    """The scenarios that come along are listed with what they show."""
    outcome = CliRunner().invoke(app, ["scenarios"])
    assert outcome.exit_code == 0
    assert "guarantee" in outcome.stdout
